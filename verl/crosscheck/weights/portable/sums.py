# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checksums from all ranks, put together: what the trainer compares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verl.crosscheck.weights.portable.checksum import MASK
from verl.crosscheck.weights.portable.manifest import Entry


@dataclass(frozen=True)
class PartSum:
    """What one rank holds of one tensor."""

    name: str
    """In the module."""
    replica: int
    """The ranks of a replica hold the tensor together."""
    elements: int
    checksum: int


@dataclass(frozen=True)
class Total:
    """What the ranks of one replica hold together."""

    elements: int
    checksum: int


def totals(ranks: Iterable[Sequence[PartSum]]) -> dict[str, dict[int, Total]]:
    """By tensor and replica."""
    found: dict[str, dict[int, Total]] = {}
    for part in (part for rank in ranks for part in rank):
        replicas = found.setdefault(part.name, {})
        before = replicas.get(part.replica, Total(0, 0))
        replicas[part.replica] = Total(before.elements + part.elements, (before.checksum + part.checksum) & MASK)
    return found


def first_difference(ranks: Iterable[Sequence[PartSum]], expected: Mapping[str, Entry]) -> str:
    """Which tensor is not the expected one, and how; empty if all are.

    Args:
        ranks: the parts of every rank.
        expected: what each of the module's tensors should be, by its name in the module.
    """
    found = totals(ranks)
    different = []
    for name, entry in expected.items():
        for replica, total in found.get(name, {0: Total(0, 0)}).items():
            if total != Total(entry.elements, entry.checksum):
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
    return f"{name}: checksum {entry.checksum:016x} expected, {total.checksum:016x} found{others}"
