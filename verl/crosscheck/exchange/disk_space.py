# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Space on the disk: which checkpoints may be deleted, what a reader loses by that, and whether the next one fits.

Whoever deletes asks here first. `removable` and `lost` are pure functions of indexes.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from verl.crosscheck.errors import SpaceError
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.settings import NEVER_DELETED

_UNITS = ("B", "kB", "MB", "GB", "TB")


def removable(present: Collection[int], taken: int, keep: int | None) -> list[int]:
    """Return the indexes among `present` that the writer may delete now, ascending.

    Args:
        present: checkpoints on disk.
        taken: how many the reader needs no more, counted from index 0: it has reported that for every index below this.
        keep: how many of the newest to keep, at least `NEVER_DELETED`; None keeps all.
    """
    if keep is None:
        return []
    newest = sorted(present)[-max(keep, NEVER_DELETED) :]
    return sorted(index for index in set(present).difference(newest) if index < taken)


def lost(first_needed: int, first_made: int, present: Collection[int]) -> list[int]:
    """Return the indexes that a reader needs and can never get: neither on the disk nor going to be made again.

    Args:
        first_needed: the reader takes every index from here on.
        first_made: the writer makes every index from here on.
        present: what is on disk.
    """
    return [index for index in range(first_needed, first_made) if index not in present]


def require_space(target: Path, needed_bytes: int) -> None:
    """Raise unless `target` will fit on its file system.

    Args:
        needed_bytes: what the last artefact of its kind took; 0 if there was none.

    Raises:
        SpaceError: less is free than that.
    """
    try:
        free_bytes = filesystem.active().free_bytes(target.parent)
    except OSError:  # the save itself will fail with the reason
        return
    if free_bytes < needed_bytes:
        raise SpaceError(
            f"{target} will not fit: the last one took {readable(needed_bytes)}, {readable(free_bytes)} are free, "
            f"{readable(needed_bytes - free_bytes)} are missing. Free that much in {target.parent} (`verl-crosscheck "
            f"clean {target.parent}` lists what earlier sessions left), or keep fewer checkpoints with "
            "trainer.share_data_keep_ckpts"
        )


def readable(size_bytes: float) -> str:
    """Return a number of bytes with a decimal unit: `1.5 GB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} {_UNITS[-1]}"
