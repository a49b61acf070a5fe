# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The notes that doctors of several hosts leave for each other in an exchange directory.

Each host has one note and replaces it at every visit. It names the visits of other hosts that were seen there, so that
a host that finds its own last visit named knows that both see each other.
"""

from __future__ import annotations

import pwd
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.documents import Document, read_document
from verl.crosscheck.exchange.layout import STAGING_PREFIX, Layout
from verl.crosscheck.exchange.publish import publish_document
from verl.crosscheck.inspection.directory_contents import names_in


class Note(Document, frozen=True):
    """The note of one host.

    Args:
        visit: a random name for one visit of that host.
        told: wall-clock time of that host, for people.
        file_system: kind and source of the file system as that host sees it.
        seen: visits of other hosts that it found, by host.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/doctor-note"

    host: str
    visit: str
    told: str
    file_system: str
    seen: dict[str, str]


@dataclass(frozen=True)
class Found:
    """A note of another host as this one sees it.

    Args:
        note: None if it cannot be read.
        age_s: seconds between its writing and now, both by the file system's clock.
        owner: name or number of the user that it belongs to.
        problem: why it cannot be read.
        sees_this_host: whether it names this host's last visit; None if this host has not been here before.
    """

    name: str
    note: Note | None
    age_s: float
    owner: str
    problem: str
    sees_this_host: bool | None


def read_notes(places: Layout, host: str, now_s: float) -> list[Found]:
    """Return the notes of all other hosts.

    Args:
        now_s: time by the file system's clock: when it says that a file written just now was written.
    """
    own = places.doctor_note(host)
    last = _read(own)[0]
    found = []
    for name in sorted(names_in(places.doctor)):
        if name == own.name or name.startswith(STAGING_PREFIX):
            continue
        path = places.doctor / name
        with suppress(FileNotFoundError):
            status = path.lstat()
            note, problem = _read(path)
            sees = None if last is None or note is None else note.seen.get(last.host) == last.visit
            found.append(Found(name, note, now_s - status.st_mtime, _user(status.st_uid), problem, sees))
    return found


def leave_note(places: Layout, note: Note) -> None:
    """Replace this host's note.

    Raises:
        OSError: the file system's own.
    """
    with suppress(FileExistsError):
        filesystem.active().mkdir(places.doctor)
    publish_document(places.doctor_note(note.host), note, replace=True)


def _read(path: Path) -> tuple[Note | None, str]:
    try:
        return read_document(path, Note), ""
    except FileNotFoundError:
        return None, "it is gone"
    except DamagedError as e:
        return None, str(e)


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
