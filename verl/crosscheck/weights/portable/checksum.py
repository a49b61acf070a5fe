# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A checksum of a tensor that each rank computes over what it holds, and that adds up over the ranks.

    checksum = sum over elements of bits(element) * row_weight(row) * column_weight(column)   modulo 2**64

Rows and columns are those of `regions`. The weights are odd and pseudo-random, so a change of any one element changes
the sum, and elements that trade places change it but for a small chance (about 2**-50 for most, 2**-32 for a number and
its negative in float32; of float64 that last pair is not seen). It finds accidents, not forgers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.weights.portable.regions import Block, Region

MASK = (1 << 64) - 1
_BLOCK_ELEMENTS = 1 << 20
_ROW_SEED, _COLUMN_SEED = 0x6A09E667F3BCC908, 0xBB67AE8584CAA73B
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Weights = npt.NDArray[np.int64]


def checksum(values: torch.Tensor, region: Region) -> int:
    """The part of a tensor's checksum that belongs to a region.

    Args:
        values: [E], the region's elements in its order, of any type of 1 to 8 bytes, on any device.
    """
    bits_E = bits(values)
    total = at = 0
    for block in region.blocks:
        total += _block(bits_E[at : at + block.elements], block)
        at += block.elements
    return total & MASK


def bits(values: torch.Tensor) -> npt.NDArray[Any]:
    """The elements' bits as signed integers, in main memory; shares memory where it can."""
    array: npt.NDArray[Any] = values.detach().reshape(-1).to("cpu").view(_SIGNED[values.element_size()]).numpy()
    return array


def _block(bits_E: npt.NDArray[Any], block: Block) -> int:
    width = block.stop - block.start
    matrix_RW = bits_E.reshape(-1, width)
    rows_at_once = max(1, _BLOCK_ELEMENTS // width)
    total = 0
    for left in range(0, width, _BLOCK_ELEMENTS):
        right = min(width, left + _BLOCK_ELEMENTS)
        columns = _column_weights(block.start + left, block.start + right)
        for top in range(0, len(matrix_RW), rows_at_once):
            part = matrix_RW[top : top + rows_at_once, left:right]
            sums = np.einsum("rc,c->r", part, columns)
            total += int(np.dot(sums, _weights(block.rows_R[top : top + rows_at_once], _ROW_SEED)))
    return total


@lru_cache(maxsize=16)
def _column_weights(start: int, stop: int) -> Weights:
    return _weights(np.arange(start, stop), _COLUMN_SEED)


def _weights(index: npt.NDArray[np.int64], seed: int) -> Weights:
    """Odd numbers that look random; splitmix64 of the index."""
    x = index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) | np.uint64(1)).view(np.int64)
