# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums of tensors: each rank sums over what it holds, the trainer adds the sums up and compares.

    checksum = sum over elements of bits(element) * row_weight(row) * column_weight(column)   modulo 2**64

Rows and columns are those of `regions`. The weights are odd and pseudo-random, so a change of any one element changes
the sum. Elements that trade places change it but for a small chance (about 2**-50 for most, 2**-32 for a number and its
negative in float32; with float64 the exchange of such a pair is not seen). It finds accidents, not forgers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.weights.portable.manifest import TensorEntry
from verl.crosscheck.weights.regions import Block, Region
from verl.crosscheck.weights.tensors import LocalTensor

MASK = (1 << 64) - 1
_BLOCK_ELEMENTS = 1 << 20
_ROW_SEED, _COLUMN_SEED = 0x6A09E667F3BCC908, 0xBB67AE8584CAA73B
_SIGNED = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Weights = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PartSum:
    """The checksum of what one rank holds of one tensor."""

    name: str
    """Name of the tensor in the module."""
    replica: int
    """The ranks of a replica hold the tensor together."""
    elements: int
    checksum: int


@dataclass(frozen=True)
class TensorSum:
    """The checksum of what the ranks of one replica hold together of one tensor."""

    elements: int
    checksum: int

    @property
    def hex(self) -> str:
        """As a manifest has it."""
        return f"{self.checksum:016x}"


def part_of(tensor: LocalTensor) -> PartSum:
    """Return a rank's part of a tensor's checksum."""
    return PartSum(tensor.name, tensor.replica, tensor.region.elements, checksum(tensor.local, tensor.region))


def checksum(values: torch.Tensor, region: Region) -> int:
    """Return the part of a tensor's checksum that belongs to a region.

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
    """Return the elements' bits as signed integers in main memory; shares memory where that is possible."""
    array: npt.NDArray[Any] = values.detach().reshape(-1).to("cpu").view(_SIGNED[values.element_size()]).numpy()
    return array


def totals(ranks: Iterable[Sequence[PartSum]]) -> dict[str, dict[int, TensorSum]]:
    """Return the sums over ranks, by tensor and replica."""
    found: dict[str, dict[int, TensorSum]] = {}
    for part in (part for rank in ranks for part in rank):
        replicas = found.setdefault(part.name, {})
        before = replicas.get(part.replica, TensorSum(0, 0))
        replicas[part.replica] = TensorSum(before.elements + part.elements, (before.checksum + part.checksum) & MASK)
    return found


def first_difference(ranks: Iterable[Sequence[PartSum]], expected: Mapping[str, TensorEntry]) -> str:
    """Return which tensor is not the expected one, and how; empty if all are.

    Args:
        ranks: the parts of every rank.
        expected: what each of the module's tensors should be, by its name in the module.
    """
    found = totals(ranks)
    different = []
    for name, entry in expected.items():
        for replica, total in found.get(name, {0: TensorSum(0, 0)}).items():
            if (total.elements, total.hex) != (entry.elements, entry.checksum):
                different.append((name, replica, total, entry))
    if not different:
        return ""
    name, replica, total, entry = different[0]
    count = len({each[0] for each in different})
    others = f" ({count} tensors differ)" if count > 1 else ""
    if total.elements != entry.elements:
        return (
            f"{name}: {entry.elements} elements expected, the ranks of replica {replica} hold {total.elements}{others}"
        )
    return f"{name}: checksum {entry.checksum} expected, {total.hex} found{others}"


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
    """Return odd numbers that look random: splitmix64 of the index."""
    x = index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return ((x ^ (x >> np.uint64(31))) | np.uint64(1)).view(np.int64)
