# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The responses that a person should look at, token by token.

Where comparisons were logged, this is the only part of a report that reads evidence and rollouts, and of few steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.diagnosis.findings import StepComparison, Verdict, WorstRow
from verl.crosscheck.diagnosis.log_probs import SOURCES
from verl.crosscheck.evidence.step import MASK
from verl.crosscheck.report.comparisons import load_evidence
from verl.crosscheck.report.model import Token, TokenRow
from verl.crosscheck.report.pairs import RecordedPair
from verl.crosscheck.report.row_texts import Decode, RowTexts, Texts

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
    sides = [load_evidence(pair, mode, step.global_step) for mode in ("ckpt", "rollout")] if rows else []
    if not sides or None in sides:
        return
    known = texts.of_step(step.global_step, [row.row_id for row in rows])
    for row in rows:
        shown = _row(number, step.global_step, sides, row, known.get(row.row_id), texts)
        if shown is not None:
            yield shown


def _row(
    number: int, step: int, sides: Sequence[StepEvidence], row: WorstRow, known: Texts | None, texts: RowTexts
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
