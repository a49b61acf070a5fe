# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Measure an exchange directory: artefacts, earlier sessions, leftovers, free space, and steps per hour.

Runs write and delete meanwhile: a file that vanishes during the measurement counts as absent. Links are not followed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.artefacts import read_artefact_about
from verl.crosscheck.exchange.layout import ArtefactKind, Layout
from verl.crosscheck.exchange.session.claim import Session

PACE_STEPS = 20
"""Rollouts that the pace is judged by, the newest ones."""


@dataclass(frozen=True)
class KeptCheckpoint:
    """A checkpoint in the directory."""

    index: int
    size_bytes: int
    complete: bool
    """Whether it has its manifest."""


@dataclass(frozen=True)
class SizedEntry:
    """Another file or folder; its path is relative to the directory."""

    path: str
    size_bytes: int


@dataclass(frozen=True)
class Pace:
    """How many steps per hour the pair of runs does."""

    steps_per_hour: float
    steps: int
    """Between the first and the last rollout that this was judged by."""
    first: str
    last: str


@dataclass(frozen=True)
class DirectoryContents:
    """What a directory holds. Sizes are sums of file sizes, in bytes.

    Args:
        first_rollout, last_rollout: indexes; None if there is none.
        of_earlier_session: whether the newest artefact of a kind was made in another session than the current one, and
            will be put aside when the run that writes that kind starts; kinds.
        earlier: folders of earlier sessions, with `sessions/unknown`.
        staged: what is being prepared, or was when its writer died.
        other: names in the directory that the exchange does not give.
    """

    rollouts: int
    rollouts_bytes: int
    first_rollout: int | None
    last_rollout: int | None
    checkpoints: tuple[KeptCheckpoint, ...]
    of_earlier_session: tuple[str, ...]
    earlier: tuple[SizedEntry, ...]
    staged: tuple[SizedEntry, ...]
    other: tuple[str, ...]
    free_bytes: int | None
    pace: Pace | None


def directory_contents(places: Layout, session: Session | None) -> DirectoryContents:
    """Return what lies in `places` now; artefacts are expected to be of `session`.

    Raises:
        OSError: the directory itself cannot be listed.
    """
    root = places.root
    names = filesystem.active().names(root)
    rollouts, ckpts = (layout.artefacts(names, kind) for kind in (ArtefactKind.ROLLOUT, ArtefactKind.CKPT))
    return DirectoryContents(
        rollouts=len(rollouts),
        rollouts_bytes=sum(size_bytes(places.rollout(index)) for index in rollouts),
        first_rollout=rollouts[0] if rollouts else None,
        last_rollout=rollouts[-1] if rollouts else None,
        checkpoints=tuple(_kept(places, index) for index in ckpts),
        of_earlier_session=tuple(
            kind
            for kind, indexes in ((ArtefactKind.ROLLOUT, rollouts), (ArtefactKind.CKPT, ckpts))
            if session and indexes and _about(places.artefact(kind, indexes[-1])).get("session") != session.id
        ),
        earlier=tuple(SizedEntry(_below(root, path), size_bytes(path)) for path in earlier_folders(places, session)),
        staged=tuple(SizedEntry(_below(root, path), size_bytes(path)) for path in staged(places)),
        other=tuple(sorted(name for name in names if not is_known(name))),
        free_bytes=_free_bytes(root),
        pace=pace(places, rollouts),
    )


def earlier_folders(places: Layout, session: Session | None) -> list[Path]:
    """Return the folders of sessions before `session`, and the folder of artefacts of no session, where they exist."""
    names = names_in(places.sessions)
    numbers = [number for number in layout.session_numbers(names) if session is None or number < session.number]
    unknown = [places.unknown] if places.unknown.name in names else []
    return [*(places.session(number) for number in numbers), *unknown]


def staged(places: Layout) -> list[Path]:
    """Return all staging paths: files and folders that a run prepares or deletes, or did when it died."""
    folders = [places.root, places.sessions]
    for number in layout.session_numbers(names_in(places.sessions)):
        session = places.session(number)
        runs = layout.runs_folder(session)
        folders += [session, runs, *(runs / name for name in names_in(runs) if layout.is_run(name))]
    return [
        folder / name
        for folder in folders
        for name in sorted(names_in(folder))
        if name.startswith(layout.STAGING_PREFIX)
    ]


def staged_sessions(places: Layout) -> list[Path]:
    """Return the staging folders of sessions, which a run prepares or deletes."""
    return [places.sessions / name for name in layout.staged_sessions(names_in(places.sessions))]


def is_known(name: str) -> bool:
    """Return whether the exchange gives this name to something in its directory, or in the folder of a session."""
    places = Layout(Path())
    return (
        layout.kind_and_index(name) is not None
        or name.startswith(layout.STAGING_PREFIX)
        or name in (places.sessions.name, places.doctor.name, layout.SESSION, layout.runs_folder(Path()).name)
    )


def pace(places: Layout, rollouts: Iterable[int]) -> Pace | None:
    """Return the pace by the times at which the newest rollouts were written; None with fewer than two steps.

    All times are of the file system's clock. A step may make several rollouts: its first one counts.
    """
    moments: dict[int, tuple[float, int]] = {}
    for index in sorted(rollouts)[-PACE_STEPS:]:
        path = places.rollout(index)
        about = _about(path)
        step = about.get("global_step")
        with suppress(OSError):
            if about.get("call") == "training" and type(step) is int:
                moments.setdefault(step, (path.lstat().st_mtime, index))
    if len(moments) < 2:
        return None
    first, last = min(moments), max(moments)
    (first_s, first_index), (last_s, last_index) = moments[first], moments[last]
    if last_s <= first_s:
        return None
    rate = (last - first) / (last_s - first_s) * 3600
    return Pace(rate, last - first, places.rollout(first_index).name, places.rollout(last_index).name)


def size_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files below a folder; 0 if it vanished meanwhile."""
    try:
        if path.is_symlink() or not path.is_dir():
            return path.lstat().st_size
        return _bytes_below(os.fspath(path))
    except OSError:
        return 0


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder; none if it cannot be listed."""
    try:
        return filesystem.active().names(folder)
    except OSError:
        return []


def _bytes_below(folder: str) -> int:
    total = 0
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    total += _bytes_below(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _kept(places: Layout, index: int) -> KeptCheckpoint:
    path = places.ckpt(index)
    return KeptCheckpoint(index, size_bytes(path), layout.MANIFEST in names_in(path))


def _about(path: Path) -> dict[str, object]:
    with suppress(DamagedError, OSError):
        return read_artefact_about(path)
    return {}


def _below(root: Path, path: Path) -> str:
    return path.relative_to(root).as_posix()


def _free_bytes(root: Path) -> int | None:
    try:
        return filesystem.active().free_bytes(root)
    except OSError:
        return None
