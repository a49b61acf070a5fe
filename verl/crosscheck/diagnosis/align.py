# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The rows that two runs have in common, and their tokens side by side.

Each run keeps rows in the order of their identity, and perhaps not all; a row has the same tokens wherever it is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.diagnosis.distances import SampleColumn, Scratch
from verl.crosscheck.evidence.step import MASK, StepEvidence
from verl.crosscheck.reasons import Reason, ReasonCode, because

BLOCK_TOKENS = 1 << 17
"""Tokens of a block, at least: 512 KiB of float32 for each of the handful of arrays that are in use at once."""

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RowSource:
    """One column of log-probs of one run, [L]."""

    of_taker: bool
    column: str
    """`ROLLOUT`, `TRAIN` or `REF`."""


class Alignment:
    """The R rows that sampler and taker have in common, in the order of their identity.

    Args:
        sampler, taker: evidence of the same step.
    """

    def __init__(self, sampler: StepEvidence, taker: StepEvidence) -> None:
        self.sides = (sampler, taker)
        ids, at_sampler, at_taker = np.intersect1d(sampler.row_ids, taker.row_ids, return_indices=True)
        self.row_ids: npt.NDArray[np.uint64] = ids
        self.rows_at: tuple[Ints, Ints] = (at_sampler, at_taker)
        lengths = tuple(side.lengths[at] for side, at in zip(self.sides, self.rows_at, strict=True))
        self.lengths_differ = int(np.count_nonzero(lengths[0] != lengths[1]))
        self.lengths: Ints = lengths[0].astype(np.int64)
        self._starts = tuple(_starts(side)[at] for side, at in zip(self.sides, self.rows_at, strict=True))

    @property
    def rows(self) -> int:
        return len(self.row_ids)

    def column(self, taker: bool, name: str) -> npt.NDArray[Any] | None:
        """[R] a column of `StepEvidence.rows`; None if it is not there or not of one value a row."""
        side, at = self.sides[taker], self.rows_at[taker]
        column = side.rows.get(name)
        return column[at] if column is not None and column.shape == side.row_ids.shape else None

    def why_no_tokens(self, source: RowSource) -> Reason | None:
        """Why a column of log-probs cannot be compared; None if it can."""
        side = self.sides[source.of_taker]
        column = side.tokens.get(source.column)
        if column is None:
            recorded = side.missing.get(f"tokens/{source.column}") or side.missing.get("tokens")
            no_column = because(ReasonCode.NO_COLUMN, run=side.run_id, mode=side.mode, column=source.column)
            return recorded or no_column
        if column.shape != (int(side.lengths.sum()),):
            return because(
                ReasonCode.COLUMN_SHAPE,
                column=source.column,
                run=side.run_id,
                mode=side.mode,
                shape=str(column.shape),
                expected=f"({int(side.lengths.sum())},)",
            )
        return because(ReasonCode.LENGTHS_DIFFER, rows=self.lengths_differ) if self.lengths_differ else None

    def blocks(self, sources: Collection[RowSource]) -> Iterator[tuple[dict[RowSource, SampleColumn], Ints]]:
        """Columns of log-probs block by block, tokens of the mask alone, and how many tokens each row has of them. The
        mask is what both runs train on.

        A block is valid until the next one is asked for."""
        scratch = Scratch()
        for first, last in _spans(self.lengths):
            rows = slice(first, last)
            mask = self._mask(rows)
            columns = {source: self._tokens(source, rows) for source in sources}
            counts = self.lengths[rows]
            if mask is not None:
                chosen = np.flatnonzero(mask)
                columns = {
                    source: column.take(chosen, out=scratch.array(("log_prob", source), chosen.size), mode="clip")
                    for source, column in columns.items()
                }
                counts = _count(mask, counts)
            yield (
                {
                    source: SampleColumn(column, scratch.array(("prob", source), column.size))
                    for source, column in columns.items()
                },
                counts,
            )

    def mask_diff_rows(self) -> int | None:
        """Rows in which the two masks differ; None if a run recorded none."""
        if any(self._bad_mask(taker) for taker in (False, True)) or self.lengths_differ:
            return None
        differ = 0
        for first, last in _spans(self.lengths):
            rows = slice(first, last)
            unequal = self._side(False, MASK, rows) != self._side(True, MASK, rows)
            if unequal.any():
                differ += int(np.count_nonzero(_count(unequal, self.lengths[rows])))
        return differ

    def _bad_mask(self, taker: bool) -> bool:
        side = self.sides[taker]
        mask = side.tokens.get(MASK)
        return mask is None or mask.shape != (int(side.lengths.sum()),)

    def _mask(self, rows: slice) -> npt.NDArray[np.bool_] | None:
        """What both train on; None if that is every token."""
        mask = None
        for taker in (False, True):
            if not self._bad_mask(taker):
                own = self._side(taker, MASK, rows)
                mask = own if mask is None else mask & own
        return None if mask is None or mask.all() else mask

    def _tokens(self, source: RowSource, rows: slice) -> npt.NDArray[np.float32]:
        return self._side(source.of_taker, source.column, rows).astype(np.float32, copy=False)

    def _side(self, taker: bool, name: str, rows: slice) -> npt.NDArray[Any]:
        """Tokens of the rows, one after the other; without a copy where they lie so."""
        column, starts, lengths = self.sides[taker].tokens[name], self._starts[taker][rows], self.lengths[rows]
        if not len(starts):
            return column[:0]
        ends = starts + lengths
        if (starts[1:] == ends[:-1]).all():
            return column[starts[0] : ends[-1]]
        return np.concatenate([column[start:end] for start, end in zip(starts, ends, strict=True)])


def _starts(side: StepEvidence) -> Ints:
    """[R] where the tokens of each row begin."""
    starts: Ints = np.cumsum(side.lengths, dtype=np.int64) - side.lengths
    return starts


def _spans(lengths: Ints) -> Iterator[tuple[int, int]]:
    """First and last row of blocks of about `BLOCK_TOKENS` tokens, none of them cut."""
    ends = np.cumsum(lengths)
    first = done = 0
    while first < len(lengths):
        last = max(first + 1, int(np.searchsorted(ends, done + BLOCK_TOKENS, side="right")))
        yield first, last
        first, done = last, int(ends[last - 1])


def _count(marks: npt.NDArray[np.bool_], lengths: Ints) -> Ints:
    """[R] marked tokens of each row."""
    before = np.concatenate(([0], np.cumsum(marks, dtype=np.int64)))
    ends = np.cumsum(lengths)
    counts: Ints = before[ends] - before[ends - lengths]
    return counts
