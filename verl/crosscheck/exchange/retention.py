# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which checkpoints may go, and which a pair of runs still needs. Pure functions; whoever deletes asks here."""

from __future__ import annotations

from collections.abc import Collection

from verl.crosscheck.settings import NEVER_DELETED


def removable(present: Collection[int], taken: int, keep: int | None) -> list[int]:
    """Indexes among `present` that the writer may delete now, ascending.

    Args:
        present: checkpoints on disk.
        taken: how many the reader has done with, counted from index 0: it has said so for every index below this.
        keep: newest ones to keep; None keeps all, and less than `NEVER_DELETED` is taken for that.
    """
    if keep is None:
        return []
    newest = sorted(present)[-max(keep, NEVER_DELETED) :]
    return sorted(index for index in set(present).difference(newest) if index < taken)


def lost(first_needed: int, first_made: int, present: Collection[int]) -> list[int]:
    """Indexes that a reader needs and nobody will give it: gone from the disk, and not to be made again.

    Args:
        first_needed: the reader takes every index from here on.
        first_made: the writer makes every index from here on.
        present: what is on disk.
    """
    return [index for index in range(first_needed, first_made) if index not in present]
