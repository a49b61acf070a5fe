# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Looks whether something will fit before hours of work are put into saving it."""

from __future__ import annotations

from pathlib import Path

from verl.crosscheck.errors import SpaceError
from verl.crosscheck.exchange import filesystem

_UNITS = ("B", "kB", "MB", "GB", "TB")


def require_space(target: Path, needed_bytes: int) -> None:
    """Return if `target` will fit beside what is there.

    Args:
        needed_bytes: what the last artefact of its kind took; 0 if there was none.

    Raises:
        SpaceError: it will not.
    """
    try:
        free_bytes = filesystem.active().free_bytes(target.parent)
    except OSError:  # whoever saves will learn what is wrong
        return
    if free_bytes < needed_bytes:
        raise SpaceError(
            f"{target} will not fit: the last one took {readable(needed_bytes)}, {readable(free_bytes)} are free, "
            f"{readable(needed_bytes - free_bytes)} are missing. Free that much in {target.parent} (`verl-crosscheck "
            f"clean {target.parent}` lists what earlier sessions left), or keep fewer checkpoints with "
            "trainer.share_data_keep_ckpts"
        )


def readable(size_bytes: float) -> str:
    """Bytes as people say them, with decimal units: `1.5 GB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} {_UNITS[-1]}"
