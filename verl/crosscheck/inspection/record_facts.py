# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Read facts from a rollout or another record.

A record that was altered is refused. An unaltered one may come from any program, so its content is not trusted: columns
that do not have the form of prompts and responses are not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import DamagedError, SettingsError
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.exchange.record.record import StoredRecord, read_stored
from verl.crosscheck.exchange.record.types import StoredTensor
from verl.crosscheck.identity import Call

SCORES = ("rm_scores", "token_level_scores", "token_level_rewards")
"""Columns that hold a row's score, spread over its tokens; the first that is there is taken."""

Decode = Callable[[list[int]], str]


@dataclass(frozen=True)
class ColumnFacts:
    """One column. `values` is the range of its numbers, or its first cell."""

    group: str
    """`tensor`, `array`, or `echoed`: not in the file, taken from the batch of whoever asks."""
    name: str
    type: str
    shape: tuple[int, ...]
    values: str


@dataclass(frozen=True)
class Lengths:
    """Tokens of a row, over all rows."""

    what: str
    shortest: int
    mean: float
    longest: int
    width: int
    """With padding."""


@dataclass(frozen=True)
class Row:
    """One row.

    Args:
        asked: start of its prompt, as text that was saved along.
        prompt, response: decoded; None without a tokenizer.
        score: None if there is none.
    """

    row: int
    asked: str
    prompt: str | None
    response: str | None
    prompt_tokens: int | None
    response_tokens: int | None
    score: float | None


@dataclass(frozen=True)
class RecordFacts:
    """A record whose digest is right.

    Args:
        about: what it says of itself.
        distinct_prompts: of a rollout; None for another record.
        meta: keys of further values.
    """

    path: str
    size_bytes: int
    about: Mapping[str, Any]
    distinct_prompts: int | None
    columns: tuple[ColumnFacts, ...]
    lengths: tuple[Lengths, ...]
    rows: tuple[Row, ...]
    meta: tuple[str, ...]
    kind: str = "record"


def record_facts(path: Path, rows: int, decode: Decode | None = None) -> RecordFacts:
    """Return what is in a record.

    Args:
        rows: how many rows to show.
        decode: from token ids to text.

    Raises:
        DamagedError: not a record, not as it was written, or a rollout without its call.
    """
    record = read_stored(path)
    call = _call(path, record)
    tokens = Tokens.of(record)
    scores = _scores(record)
    echoed = record.meta.get("echoed", [])
    return RecordFacts(
        path=str(path),
        size_bytes=path.lstat().st_size,
        about=record.about,
        distinct_prompts=None if call is None else len(set(call.prompts.digests)),
        columns=(
            *(
                ColumnFacts("tensor", name, each.type, each.shape, _values(each))
                for name, each in record.tensors.items()
            ),
            *(
                ColumnFacts("array", name, str(each.dtype), tuple(each.shape), _first(each))
                for name, each in record.arrays.items()
            ),
            *(ColumnFacts("echoed", str(name), "", (), "") for name in (echoed if isinstance(echoed, list) else [])),
        ),
        lengths=tuple(tokens.lengths()) if tokens else (),
        rows=tuple(_rows(rows, call, tokens, scores, decode)),
        meta=tuple(name for name in record.meta if name not in ("call", "columns", "echoed")),
    )


def tokenizer(path: str) -> Decode:
    """Return a function that decodes token ids with the tokenizer of a model folder, or of a downloaded model.

    Raises:
        SettingsError: there is none.
    """
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(path, local_files_only=True)
    except Exception as e:  # transformers raises whatever its parsers do
        reason = str(e).strip().partition("\n")[0]
        told = reason or type(e).__name__
        if not Path(path).is_dir():
            told = "there is no such folder, and no model of that name has been downloaded to this machine"
        raise SettingsError(
            f"--tokenizer {path!r} cannot be loaded: {told}. Name the model folder of the runs "
            "(actor_rollout_ref.model.path)"
        ) from None

    def decode(ids: list[int]) -> str:
        try:
            return str(found.decode(ids, skip_special_tokens=False))
        except Exception as e:
            raise SettingsError(f"--tokenizer {path!r} cannot decode these tokens: {type(e).__name__}: {e}") from None

    return decode


@dataclass(frozen=True)
class Tokens:
    """Prompts (B rows, P tokens) and responses (B, R) of a batch, with the mask (B, P + R) of what is no padding."""

    prompts_BP: npt.NDArray[Any]
    responses_BR: npt.NDArray[Any]
    mask_BT: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, record: StoredRecord) -> Tokens | None:
        """Return the tokens of a record; None if its columns do not have this form."""
        found = [record.tensors.get(name) for name in ("prompts", "responses", "attention_mask")]
        tensors = [each for each in found if each is not None and len(each.shape) == 2]
        if len(tensors) != 3 or any(each.is_float or each.is_complex for each in tensors):
            return None
        prompts, responses, mask = (each.numpy() for each in tensors)
        rows = prompts.shape[0]
        if mask.shape != (rows, prompts.shape[1] + responses.shape[1]) or responses.shape[0] != rows or not rows:
            return None
        return cls(prompts, responses, mask != 0)

    @property
    def width(self) -> int:
        """Tokens of a prompt, padding included."""
        return int(self.prompts_BP.shape[1])

    def prompt(self, row: int) -> list[int]:
        """Return the token ids of a row's prompt, without padding."""
        return [int(each) for each in self.prompts_BP[row][self.mask_BT[row, : self.width]]]

    def response(self, row: int) -> list[int]:
        return [int(each) for each in self.responses_BR[row][self.mask_BT[row, self.width :]]]

    def lengths(self) -> Iterator[Lengths]:
        for what, mask in (("prompt", self.mask_BT[:, : self.width]), ("response", self.mask_BT[:, self.width :])):
            counts = mask.sum(axis=1)
            mean = float(counts.mean())
            yield Lengths(what, int(counts.min()), mean, int(counts.max()), mask.shape[1])


def _call(path: Path, record: StoredRecord) -> Call | None:
    if record.about.get("kind") != ArtefactKind.ROLLOUT:
        return None
    try:
        return Call.from_json(record.meta["call"])
    except (KeyError, TypeError, ValueError, AttributeError) as e:
        raise DamagedError(
            f"{path} calls itself a rollout, and the call that it answers cannot be read ({e!r})"
        ) from None


def _rows(
    number: int, call: Call | None, tokens: Tokens | None, scores: npt.NDArray[np.float64] | None, decode: Decode | None
) -> Iterator[Row]:
    there = tokens.prompts_BP.shape[0] if tokens else len(call.prompts.digests) if call else 0
    for row in range(min(number, there)):
        prompt, response = (tokens.prompt(row), tokens.response(row)) if tokens else (None, None)
        known = call is not None and row < len(call.prompts.digests)
        yield Row(
            row=row,
            asked=call.prompts.preview(row) if call is not None and known else "",
            prompt=decode(prompt) if decode and prompt is not None else None,
            response=decode(response) if decode and response is not None else None,
            prompt_tokens=None if prompt is None else len(prompt),
            response_tokens=None if response is None else len(response),
            score=float(scores[row]) if scores is not None and row < len(scores) else None,
        )


def _scores(record: StoredRecord) -> npt.NDArray[np.float64] | None:
    """Return the score of each row (float64 [B]), summed over its tokens; None without a column of scores."""
    for name in SCORES:
        found = record.tensors.get(name)
        if found is not None and len(found.shape) == 2 and found.is_float:
            sums: npt.NDArray[np.float64] = found.numpy().astype(np.float64).sum(axis=1)
            return sums
    return None


def _values(tensor: StoredTensor) -> str:
    """Return the range of the finite numbers as text, and how many others there are."""
    if 0 in tensor.shape or tensor.is_complex:
        return ""
    numbers = tensor.numpy().astype(np.float64 if tensor.is_float else np.int64)
    finite = numbers[np.isfinite(numbers)]
    odd = numbers.size - finite.size
    note = f", {odd} not finite" if odd else ""
    if not finite.size:
        return note.removeprefix(", ")
    least, most = finite.min().item(), finite.max().item()
    return (f"{least:.4g}" if least == most else f"{least:.4g} to {most:.4g}") + note


def _first(array: Any) -> str:
    """Return the first cell as text, shortened."""
    if not array.size:
        return ""
    text = repr(array.reshape(-1)[0].tolist() if hasattr(array.reshape(-1)[0], "tolist") else array.reshape(-1)[0])
    return text if len(text) <= 60 else f"{text[:57]}..."
