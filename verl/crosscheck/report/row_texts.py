# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The tokens of single responses: from the rollout that both runs trained on, if that is still in the directory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.report.pairs import RecordedPair, rollouts

Decode = Callable[[list[int]], str]

PROMPT_TOKENS = 48
"""Of the end of a prompt that are shown."""
_PART_OF_A_LETTER = "\ufffd"


@dataclass(frozen=True)
class Texts:
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

    def of_step(self, global_step: int, row_ids: Sequence[int]) -> dict[int, Texts]:
        """Tokens of these rows; without those that are not found."""
        path = self._rollouts().get(global_step)
        if path is None:
            return {}
        try:
            return _rows_of(path, set(row_ids))
        except (CrossCheckError, OSError) as e:
            self._pair.tell_problem(path, e)
            return {}

    def tokens(self, known: Texts | None, first: int, last: int, length: int) -> tuple[list[str], str]:
        """Text of each token from `first` to before `last`, and what it is: `text`, `ids` or `positions`."""
        if known is None or len(known.response) != length:
            return [str(at) for at in range(first, last)], "positions"
        ids = known.response[first:last]
        return (pieces(ids, self._decode), "text") if self._decode else ([str(each) for each in ids], "ids")

    def prompt(self, known: Texts) -> str:
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
    from verl.crosscheck.exchange.record.record import read_about

    try:
        about = read_about(path)
    except (CrossCheckError, OSError):
        return None
    step = about.get("global_step")
    fits = about.get("session") == session_id and about.get("call") == "training"
    return step if fits and type(step) is int else None


def _rows_of(path: Path, wanted: set[int]) -> dict[int, Texts]:
    import torch

    from verl.crosscheck.evidence.row_identity import row_ids, unpadded
    from verl.crosscheck.exchange.directory import require_own_file
    from verl.crosscheck.exchange.record.record import read_record

    require_own_file(path)
    tensors = read_record(path).tensors
    columns = [tensors.get(name) for name in ("prompts", "responses", "attention_mask")]
    found = [each.numpy() for each in columns if isinstance(each, torch.Tensor) and each.dim() == 2]
    if len(found) != len(columns):
        return {}
    prompts, responses = unpadded(*found)
    ids = row_ids(prompts, responses)
    return {
        int(row_id): Texts(prompts[at].tolist(), responses[at].tolist())
        for at, row_id in enumerate(ids)
        if int(row_id) in wanted
    }
