# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which elements of a tensor a rank holds, in the order in which it holds them.

A tensor of any rank counts as a matrix [R, C]: C is its last dimension, R all the others together. A rank holds
blocks of it: some rows, and of each the same columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Block:
    """Columns `start` to `stop` of some rows."""

    rows_R: Rows
    start: int
    stop: int

    @property
    def elements(self) -> int:
        return len(self.rows_R) * (self.stop - self.start)


@dataclass(frozen=True, eq=False)
class Region:
    """Blocks of a matrix with C columns, one after the other."""

    columns: int
    blocks: tuple[Block, ...]

    @property
    def elements(self) -> int:
        return sum(block.elements for block in self.blocks)

    def runs(self) -> Iterator[tuple[int, int]]:
        """The first element and the number of elements of each part that is contiguous in the whole tensor."""
        for block in self.blocks:
            rows, width = block.rows_R, block.stop - block.start
            if width == self.columns:
                breaks = np.flatnonzero(np.diff(rows) != 1) + 1
                edges = [0, *breaks.tolist(), len(rows)]
                for one, other in pairwise(edges):
                    yield int(rows[one]) * self.columns, (other - one) * self.columns
            else:
                for row in rows.tolist():
                    yield row * self.columns + block.start, width


def whole(shape: Sequence[int]) -> Region:
    """All of a tensor."""
    return box(shape, [0] * len(shape), shape)


def box(shape: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> Region:
    """The box that starts at `offset` and has `size` elements along each dimension."""
    if not shape:
        return Region(1, (Block(np.zeros(1, np.int64), 0, 1),))
    if math.prod(size) == 0:
        return Region(shape[-1], ())
    rows = np.zeros(1, np.int64)
    for extent, first, count in zip(shape[:-1], offset, size, strict=False):
        rows = (rows[:, None] * extent + np.arange(first, first + count)[None, :]).reshape(-1)
    return Region(shape[-1], (Block(rows, offset[-1], offset[-1] + size[-1]),))


def flat_range(shape: Sequence[int], first: int, count: int) -> Region:
    """`count` elements of the flattened tensor, from element `first` on."""
    columns = shape[-1] if shape else 1
    blocks = []
    at, end = first, first + count
    while at < end:
        row, start = divmod(at, columns)
        full = (end - at) // columns
        if start == 0 and full:
            blocks.append(Block(np.arange(row, row + full), 0, columns))
            at += full * columns
        else:
            stop = min(columns, start + end - at)
            blocks.append(Block(np.array([row]), start, stop))
            at += stop - start
    return Region(columns, tuple(blocks))
