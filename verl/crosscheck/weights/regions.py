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
import torch

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


@dataclass(frozen=True)
class Region:
    """A box of a tensor, or a range of its flattened elements; a few numbers, to be sent to other ranks."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    offset: tuple[int, ...]
    size: tuple[int, ...]
    """Along each dimension of the tensor, or of its one flattened dimension."""
    is_range: bool = False

    @property
    def elements(self) -> int:
        return math.prod(self.size)

    @property
    def whole_elements(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape)

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The region as blocks of the matrix, one after the other."""
        if not self.elements:
            return ()
        return _range_blocks(self) if self.is_range else _box_blocks(self)

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first element and the number of elements of each part that is contiguous in the tensor."""
        columns = self.shape[-1] if self.shape else 1
        for block in self.blocks:
            rows, width = block.rows_R, block.stop - block.start
            if width == columns:
                breaks = np.flatnonzero(np.diff(rows) != 1) + 1
                edges = [0, *breaks.tolist(), len(rows)]
                for one, other in pairwise(edges):
                    yield int(rows[one]) * columns, (other - one) * columns
            else:
                for row in rows.tolist():
                    yield row * columns + block.start, width

    def of(self, whole: torch.Tensor) -> torch.Tensor:
        """Return this part of a whole contiguous tensor, sharing its memory."""
        if self.is_range:
            return whole.view(-1)[self.offset[0] : self.offset[0] + self.size[0]]
        return whole[tuple(slice(first, first + count) for first, count in zip(self.offset, self.size, strict=True))]


def whole(shape: Sequence[int]) -> Region:
    """Return the region that is all of a tensor."""
    return Region(tuple(shape), (0,) * len(shape), tuple(shape))


def box(shape: Sequence[int], offset: Sequence[int], size: Sequence[int]) -> Region:
    """Return the box that starts at `offset` and has `size` elements along each dimension."""
    return Region(tuple(shape), tuple(offset), tuple(size))


def flat_range(shape: Sequence[int], first: int, count: int) -> Region:
    """Return the region of `count` elements of the flattened tensor, from element `first` on."""
    return Region(tuple(shape), (first,), (count,), is_range=True)


def _box_blocks(region: Region) -> tuple[Block, ...]:
    if not region.shape:
        return (Block(np.zeros(1, np.int64), 0, 1),)
    rows = np.zeros(1, np.int64)
    for extent, first, count in zip(region.shape[:-1], region.offset, region.size, strict=False):
        rows = (rows[:, None] * extent + np.arange(first, first + count)[None, :]).reshape(-1)
    return (Block(rows, region.offset[-1], region.offset[-1] + region.size[-1]),)


def _range_blocks(region: Region) -> tuple[Block, ...]:
    columns = region.shape[-1] if region.shape else 1
    blocks = []
    at, end = region.offset[0], region.offset[0] + region.size[0]
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
    return tuple(blocks)
