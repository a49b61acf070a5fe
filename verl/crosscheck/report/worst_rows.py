# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Find the responses that a person should look at, with both log-probs of each token and the tokens' texts.

Where comparisons were logged, this is the only part of a report that reads evidence and rollouts, of few steps. The
texts come from the rollout that both runs trained on, if it is still in the directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.diagnosis.findings import StepComparison, Verdict, WorstRow
from verl.crosscheck.diagnosis.log_probs import SOURCES
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.evidence.step import MASK
from verl.crosscheck.report.model import Token, TokenRow
from verl.crosscheck.report.recorded_pair import RecordedPair, load_evidence, rollouts
from verl.crosscheck.settings import MODES

if TYPE_CHECKING:
    from verl.crosscheck.evidence.step import StepEvidence


SHOWN = 6
STEPS_READ = 3
"""Of each scenario at most."""
WINDOW = 160
"""Tokens of a response that are shown, around its worst."""


def rows_to_show(
    pairs: Sequence[tuple[int, RecordedPair, Sequence[StepComparison]]], verdict: Verdict, decode: Decode | None
) -> tuple[TokenRow, ...]:
    """The worst responses of the step in which the fault begins, then of the worst steps.

    Args:
        pairs: number of the scenario, its files, its steps.
        decode: from token ids to text; None shows ids.
    """
    found: list[TokenRow] = []
    share = max(1, SHOWN // max(1, len(pairs)))
    for number, pair, steps in pairs:
        texts = RowTexts(pair, decode)
        rows: list[TokenRow] = []
        for step in _steps(steps, verdict):
            left = min(share - len(rows), max(1, share // 2) if not rows else share)
            rows += list(_of_step(number, pair, step, texts, left))
            if len(rows) >= share:
                break
        found += rows
    return tuple(found)


def _steps(steps: Sequence[StepComparison], verdict: Verdict) -> list[StepComparison]:
    """The first at fault, then those with the worst rows; without a fault, these alone."""
    some = [step for step in steps if step.worst_rows]
    worst = sorted(some, key=lambda step: -step.worst_rows[0].logprob_abs_diff_mean)
    first = [step for step in some if step.global_step == verdict.first_step]
    return list({step.global_step: step for step in (*first, *worst)}.values())[:STEPS_READ]


def _of_step(number: int, pair: RecordedPair, step: StepComparison, texts: RowTexts, count: int) -> Iterator[TokenRow]:
    rows = list({row.row_id: row for row in reversed(step.worst_rows)}.values())[::-1][:count]
    sides = [load_evidence(pair, mode, step.global_step) for mode in MODES] if rows else []
    if not sides or None in sides:
        return
    known = texts.of_step(step.global_step, [row.row_id for row in rows])
    for row in rows:
        shown = _row(number, step.global_step, sides, row, known.get(row.row_id), texts)
        if shown is not None:
            yield shown


def _row(
    number: int, step: int, sides: Sequence[StepEvidence], row: WorstRow, known: RowTokens | None, texts: RowTexts
) -> TokenRow | None:
    """None if a run did not keep its log-probs."""
    columns = [_tokens(sides[source.of_taker], source.column, row.row_id) for source in SOURCES[row.aspect]]
    one, other = columns
    if one is None or other is None or len(one) != len(other) or not len(one):
        return None
    mask = _tokens(sides[0], MASK, row.row_id)
    trained = np.ones(len(one), np.bool_) if mask is None or len(mask) != len(one) else mask
    first, last = _window(np.where(trained, np.abs(one - other), 0.0))
    said, decoded = texts.tokens(known, first, last, len(one))
    tokens = tuple(
        Token(text, float(one[at]), float(other[at]), bool(trained[at]))
        for at, text in zip(range(first, last), said, strict=True)
    )
    return TokenRow(
        scenario=number,
        global_step=step,
        aspect=row.aspect,
        row_id=row.row_id,
        logprob_abs_diff_mean=row.logprob_abs_diff_mean,
        logprob_abs_diff_max=row.logprob_abs_diff_max,
        length=len(one),
        first=first,
        tokens=tokens,
        decoded=decoded,
        prompt="" if known is None else texts.prompt(known),
    )


def _tokens(side: StepEvidence, column: str, row_id: int) -> npt.NDArray[Any] | None:
    """Of one row."""
    values = side.tokens.get(column)
    at = np.flatnonzero(side.row_ids == np.uint64(row_id))
    if values is None or not len(at) or values.shape != (int(side.lengths.sum(dtype=np.int64)),):
        return None
    start = int(side.lengths[: at[0]].sum(dtype=np.int64))
    return values[start : start + int(side.lengths[at[0]])]


def _window(apart: npt.NDArray[Any]) -> tuple[int, int]:
    """First token that is shown, and the one after the last."""
    worst = int(np.nan_to_num(apart, nan=np.inf, posinf=np.inf).argmax())
    first = max(0, min(worst - WINDOW // 2, len(apart) - WINDOW))
    return first, min(len(apart), first + WINDOW)


Decode = Callable[[list[int]], str]

PROMPT_TOKENS = 48
"""Of the end of a prompt that are shown."""
_PART_OF_A_LETTER = "\ufffd"


@dataclass(frozen=True)
class RowTokens:
    """Token ids of one row, without padding."""

    prompt: list[int]
    response: list[int]


class RowTexts:
    """Looks rows up by their identity.

    Args:
        decode: from token ids to text; None shows ids.
    """

    def __init__(self, pair: RecordedPair, decode: Decode | None) -> None:
        self._pair, self._decode = pair, decode
        self._by_step: dict[int, Path] | None = None

    def of_step(self, global_step: int, row_ids: Sequence[int]) -> dict[int, RowTokens]:
        """Tokens of these rows; without those that are not found."""
        path = self._rollouts().get(global_step)
        if path is None:
            return {}
        try:
            return _rows_of(path, set(row_ids))
        except (CrossCheckError, OSError) as e:
            self._pair.tell_problem(path, e)
            return {}

    def tokens(self, known: RowTokens | None, first: int, last: int, length: int) -> tuple[list[str], str]:
        """Text of each token from `first` to before `last`, and what it is: `text`, `ids` or `positions`."""
        if known is None or len(known.response) != length:
            return [str(at) for at in range(first, last)], "positions"
        ids = known.response[first:last]
        return (pieces(ids, self._decode), "text") if self._decode else ([str(each) for each in ids], "ids")

    def prompt(self, known: RowTokens) -> str:
        """The end of the prompt, decoded or as ids."""
        ids = known.prompt[-PROMPT_TOKENS:]
        more = "\u2026 " if len(known.prompt) > PROMPT_TOKENS else ""
        return more + (self._decode(ids) if self._decode else " ".join(map(str, ids)))

    def _rollouts(self) -> dict[int, Path]:
        """The rollout of this session that each step trained on."""
        if self._by_step is None:
            self._by_step = {}
            for path in rollouts(self._pair):
                step = _step_of(path, self._pair.session.id)
                if step is not None:
                    self._by_step[step] = path
        return self._by_step


def pieces(ids: Sequence[int], decode: Decode) -> list[str]:
    """Text that each token adds; a letter of several tokens stands at its last."""
    found, before = [], ""
    for at in range(len(ids)):
        text = decode(list(ids[: at + 1]))
        if text.endswith(_PART_OF_A_LETTER) and at + 1 < len(ids):
            found.append("")
            continue
        found.append(text[len(before) :] if text.startswith(before) else text)
        before = text
    return found


def _step_of(path: Path, session_id: str) -> int | None:
    """The step that was trained on a rollout; None if it is of another session, or not for training."""
    from verl.crosscheck.exchange.record.container import read_about

    try:
        about = read_about(path)
    except (CrossCheckError, OSError):
        return None
    step = about.get("global_step")
    fits = about.get("session") == session_id and about.get("call") == "training"
    return step if fits and type(step) is int else None


def _rows_of(path: Path, wanted: set[int]) -> dict[int, RowTokens]:
    from verl.crosscheck.evidence.row_identity import row_ids, unpadded
    from verl.crosscheck.exchange.directory import require_own_file
    from verl.crosscheck.exchange.record.record import read_stored

    require_own_file(path)
    tensors = read_stored(path).tensors
    columns = [tensors.get(name) for name in ("prompts", "responses", "attention_mask")]
    found = [each.numpy() for each in columns if each is not None and len(each.shape) == 2]
    if len(found) != len(columns):
        return {}
    prompts, responses = unpadded(*found)
    ids = row_ids(prompts, responses)
    return {
        int(row_id): RowTokens(prompts[at].tolist(), responses[at].tolist())
        for at, row_id in enumerate(ids)
        if int(row_id) in wanted
    }
