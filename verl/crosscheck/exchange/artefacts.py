# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What lies in an exchange directory: which artefact belongs to which session, and the putting aside of old ones."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import WRITES, ArtefactKind, Layout
from verl.crosscheck.exchange.manifest import read_manifest
from verl.crosscheck.exchange.publish import sweep
from verl.crosscheck.exchange.record.container import read_about
from verl.crosscheck.exchange.session.claim import RunSlot, Session, sessions


def read_artefact_about(path: Path) -> dict[str, Any]:
    """What an artefact says of itself, without its body being read.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is not one.
    """
    if not layout.is_of_kind(path.name, ArtefactKind.CKPT):
        return read_about(path)
    try:
        return read_manifest(path).about
    except DamagedError:
        if os.path.lexists(path):
            raise
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path)) from None  # put aside meanwhile


def session_of(path: Path) -> str | None:
    """Id of the session that an artefact was made in; None if it says none, or nothing that can be read."""
    try:
        session = read_artefact_about(path).get("session")
    except (DamagedError, OSError):
        return None
    return session if isinstance(session, str) else None


def of_session(root: Path, kind: ArtefactKind, session: Session, indexes: Collection[int] | None = None) -> list[int]:
    """Indexes of the artefacts of `kind` in `root` that were made in `session`, ascending.

    Args:
        indexes: look at these alone.
    """
    places = Layout(root)
    found = layout.artefacts(filesystem.active().names(root), kind)
    return [
        index
        for index in found
        if (indexes is None or index in indexes) and session_of(places.artefact(kind, index)) == session.id
    ]


def put_aside(place: RunSlot) -> int:
    """Clear the directory of what earlier runs left of the kind that this run writes. Returns how many were moved.

    An artefact of an earlier session goes into that session's folder, one of no session of this directory into
    `sessions/unknown`, what was being prepared or taken away is removed. Nobody else may write that kind, and a reader
    takes none of another session's, so nothing here is in use.

    Raises:
        OSError: the file system's own.
    """
    kind, places, disk = WRITES[place.mode], Layout(place.root), filesystem.active()
    sweep(place.root, kind)
    folders = {session.id: session.folder for session in sessions(place.root)}
    taken: dict[Path, set[str]] = {}
    moved = 0
    for index in layout.artefacts(disk.names(place.root), kind):
        path = places.artefact(kind, index)
        session = session_of(path)
        if session != place.session.id:
            _move(path, folders.get(session or "", places.unknown), taken)
            moved += 1
    return moved


def _move(path: Path, folder: Path, taken: dict[Path, set[str]]) -> None:
    """Move into a folder, under another name if its own is taken. `taken` remembers what is there."""
    disk = filesystem.active()
    if folder not in taken:
        with suppress(FileExistsError):
            disk.mkdir(folder)
        taken[folder] = set(disk.names(folder))
    name = path.name if path.name not in taken[folder] else f"{path.name}-{secrets.token_hex(4)}"
    taken[folder].add(name)
    disk.rename(path, folder / name)
