# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The artefacts of an exchange directory: which session each belongs to, moving old ones away, which checkpoints may be
deleted, and whether the next artefact fits on the disk.

Whoever deletes asks here first. `removable` and `lost` are pure functions of indexes.
"""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import DamagedError, SpaceError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import WRITES, ArtefactKind, Layout
from verl.crosscheck.exchange.manifest import read_manifest
from verl.crosscheck.exchange.publish import sweep
from verl.crosscheck.exchange.record.container import read_about
from verl.crosscheck.exchange.session.claim import RunSlot, Session, sessions
from verl.crosscheck.settings import NEVER_DELETED
from verl.crosscheck.text import data_size


def read_artefact_about(path: Path) -> dict[str, Any]:
    """Return the `about` of an artefact without reading its body.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is not an artefact.
    """
    if not layout.is_of_kind(path.name, ArtefactKind.CKPT):
        return read_about(path)
    try:
        return read_manifest(path).about
    except DamagedError:
        if os.path.lexists(path):
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None  # moved away meanwhile


def session_of(path: Path) -> str | None:
    """Return the id of the session that an artefact was made in; None if it has none or cannot be read."""
    try:
        session = read_artefact_about(path).get("session")
    except (DamagedError, OSError):
        return None
    return session if isinstance(session, str) else None


def of_session(root: Path, kind: ArtefactKind, session: Session, indexes: Collection[int] | None = None) -> list[int]:
    """Return the indexes of the artefacts of `kind` in `root` that were made in `session`, ascending.

    Args:
        indexes: look only at these.
    """
    places = Layout(root)
    found = layout.artefacts(filesystem.active().names(root), kind)
    return [
        index
        for index in found
        if (indexes is None or index in indexes) and session_of(places.artefact(kind, index)) == session.id
    ]


def put_aside(slot: RunSlot) -> int:
    """Clear the directory of older artefacts of the kind that this run writes. Return how many were moved.

    An artefact of an earlier session is moved into that session's folder, one of no session of this directory into
    `sessions/unknown`; staged ones are removed. No other run writes that kind, and readers take no artefact of another
    session, so none of them is in use.

    Raises:
        OSError: the file system's own.
    """
    kind, places, disk = WRITES[slot.mode], Layout(slot.root), filesystem.active()
    sweep(slot.root, kind)
    folders = {session.id: session.folder for session in sessions(slot.root)}
    taken: dict[Path, set[str]] = {}
    moved = 0
    for index in layout.artefacts(disk.names(slot.root), kind):
        path = places.artefact(kind, index)
        session = session_of(path)
        if session != slot.session.id:
            _move(path, folders.get(session or "", places.unknown), taken)
            moved += 1
    return moved


def _move(path: Path, folder: Path, taken: dict[Path, set[str]]) -> None:
    """Move into a folder, under another name if its own is taken. `taken` caches the names of each folder."""
    disk = filesystem.active()
    if folder not in taken:
        with suppress(FileExistsError):
            disk.mkdir(folder)
        taken[folder] = set(disk.names(folder))
    name = path.name if path.name not in taken[folder] else f"{path.name}-{secrets.token_hex(4)}"
    taken[folder].add(name)
    disk.rename(path, folder / name)


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
            f"{target} will not fit: the last one took {data_size(needed_bytes)}, {data_size(free_bytes)} are free, "
            f"{data_size(needed_bytes - free_bytes)} are missing. Free that much in {target.parent} (`verl-crosscheck "
            f"clean {target.parent}` lists what earlier sessions left), or keep fewer checkpoints with "
            "trainer.share_data_keep_ckpts"
        )
