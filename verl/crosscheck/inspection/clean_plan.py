# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Plan what `verl-crosscheck clean` deletes, and delete it: only names that the exchange gives, never through links.

A plan takes what earlier sessions left. With `everything` it also takes the current session, once its runs have ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.clock import Clock
from verl.crosscheck.console import printable
from verl.crosscheck.errors import DamagedError, DirectoryError, SessionError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.artefacts import session_of
from verl.crosscheck.exchange.layout import WRITES, Layout
from verl.crosscheck.exchange.publish import discard
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import Session, current_session, is_live, read_session
from verl.crosscheck.exchange.session.liveness import is_running
from verl.crosscheck.exchange.session.peer import newest_run
from verl.crosscheck.inspection.directory_contents import earlier_folders, names_in, size_bytes, staged, staged_sessions
from verl.crosscheck.settings import MODES


@dataclass(frozen=True)
class CleanItem:
    """A file or folder to delete; its path is relative to the directory.

    Args:
        refused: why it stays nevertheless; empty if it does not.
    """

    path: str
    size_bytes: int
    why: str
    refused: str = ""


@dataclass(frozen=True)
class CleanPlan:
    """What a cleaning deletes.

    Args:
        session: number of the current session; None if there is none left, after a cleaning that was interrupted.
        runs: number of the current run of each mode.
        living: runs that this host knows to live, or that may live on another one; nothing goes before they have ended.
    """

    directory: str
    session: int | None
    runs: Mapping[str, int | None]
    items: tuple[CleanItem, ...]
    living: tuple[str, ...]

    @property
    def going(self) -> list[CleanItem]:
        return [item for item in self.items if not item.refused]


def plan(root: Path, *, everything: bool) -> CleanPlan:
    """Return the plan for a directory; change nothing.

    Args:
        everything: the current session too.

    Raises:
        DirectoryError: no two runs have used this directory, or links stand in for its folders.
        DamagedError: the current session cannot be read.
    """
    places = Layout(root)
    session = _require_exchange(places)
    return CleanPlan(
        directory=str(root),
        session=session.number if session else None,
        runs=_newest_runs(session),
        items=tuple(_items(places, session, everything=everything)),
        living=tuple(_living(session)),
    )


def require_all_ended(root: Path, silence_s: float, clock: Clock, tell: Callable[[str], object]) -> None:
    """Raise unless every run of the current session has ended, as far as this host can know.

    Args:
        silence_s: how long to watch a run of another host that has not reported its end.

    Raises:
        SessionError: one lives; nothing was deleted.
    """
    session = _require_exchange(Layout(root))
    for mode in MODES:
        run = session.newest(mode) if session else None
        if session is None or run is None:
            continue
        try:
            if not is_live(run, silence_s=silence_s, clock=clock, announce=tell):
                continue
            identity = run_files.read_card(run).identity
        except (DamagedError, FileNotFoundError):  # no run that could write: each of its reports would fail
            continue
        raise SessionError(
            f"{identity} lives in {session.folder}, so nothing was deleted. End it first, or wait for it"
        )


def carry_out(made: CleanPlan, gone: Callable[[CleanItem], object]) -> list[tuple[CleanItem, str]]:
    """Delete what a plan names; return the items that could not be deleted, each with the reason.

    The folder of the current session is deleted last, so that an interrupted cleaning can be repeated.

    Args:
        gone: called with each item after it was deleted.

    Raises:
        SessionError: a run has started meanwhile; the rest is left alone.
    """
    root, failed = Path(made.directory), []
    for item in made.going:
        current = current_session(root)
        if (current.number if current else None, _newest_runs(current)) != (made.session, made.runs):
            raise SessionError(
                f"a run has started in {root} meanwhile, or has been cleaned away; the rest was left alone"
            )
        try:
            _remove(root / item.path)
        except OSError as e:
            failed.append((item, e.strerror or str(e)))
        else:
            gone(item)
    with suppress(OSError):  # not empty, which is what it mostly is
        filesystem.active().rmdir(Layout(root).sessions)
    return failed


def _newest_runs(session: Session | None) -> dict[str, int | None]:
    return {mode: newest_run(session.folder, mode) for mode in MODES} if session else {}


def _remove(path: Path) -> None:
    if path.name.startswith(layout.STAGING_PREFIX):
        with suppress(FileNotFoundError):
            filesystem.active().remove(path)
    else:
        discard(path)


def _require_exchange(places: Layout) -> Session | None:
    """Return the current session; None if only the remains of one are there."""
    for folder in (places.sessions, places.doctor):
        if folder.is_symlink():
            raise DirectoryError(f"{folder} is a symbolic link, which no run makes; nothing was deleted")
    session = current_session(places.root)
    if session is None and not staged_sessions(places):
        raise DirectoryError(
            f"{places.root} holds no session of two runs, so nothing here is known to be theirs; nothing was deleted"
        )
    return session


def _items(places: Layout, session: Session | None, *, everything: bool) -> Iterator[CleanItem]:
    root = places.root
    if session is None:
        for path in staged_sessions(places):
            yield _item(root, path, "left of a session")
        return
    for folder in earlier_folders(places, session):
        why = "artefacts of no session" if folder == places.unknown else "an earlier session"
        yield _item(root, folder, why, _session_refusal(folder))
    yield from _artefacts(places, session, everything=everything)
    for path in staged(places):
        if everything and path.is_relative_to(session.folder):
            continue
        if not any(path.is_relative_to(folder) for folder in earlier_folders(places, session)):
            yield _item(root, path, "left in preparation by a run that has ended")
    if everything and places.doctor.name in names_in(root):
        yield _item(root, places.doctor, "notes of verl-crosscheck doctor")
    if everything:
        yield _item(root, session.folder, "the current session: who took part")


def _artefacts(places: Layout, session: Session, *, everything: bool) -> Iterator[CleanItem]:
    """Yield artefacts in the directory itself: of earlier sessions, and with `everything` all others."""
    names = names_in(places.root)
    earlier = _ids(places, session)
    for kind in WRITES.values():
        for index in layout.artefacts(names, kind):
            path = places.artefact(kind, index)
            made_in = session_of(path)
            if made_in is not None and made_in in earlier:
                yield _item(places.root, path, f"of session {earlier[made_in]}, an earlier one")
            elif everything:
                whose = "of the current session" if made_in == session.id else "of no session of this directory"
                yield _item(places.root, path, whose)


def _ids(places: Layout, session: Session) -> dict[str, int]:
    """Return the number of each earlier session that can be read, by the session's id."""
    found = {}
    for number in layout.session_numbers(names_in(places.sessions)):
        with suppress(DamagedError, OSError):
            each = read_session(places.session(number))
            if number < session.number:
                found[each.id] = number
    return found


def _item(root: Path, path: Path, why: str, refused: str = "") -> CleanItem:
    return CleanItem(path.relative_to(root).as_posix(), size_bytes(path), why, refused or _refusal(path))


def _refusal(path: Path) -> str:
    """Return why a path may not be deleted: it is a link, or another user owns part of it. Empty if it may."""
    if path.is_symlink():
        return "is a symbolic link, which no run makes"
    for each in _all_below(os.fspath(path)):
        try:
            owner = os.lstat(each).st_uid
        except OSError:
            continue
        if owner != os.geteuid():
            where = "it" if each == os.fspath(path) else printable(os.path.relpath(each, path))
            return f"{where} belongs to user {owner}"
    return ""


def _session_refusal(folder: Path) -> str:
    """Return why an earlier session stays: a run of it that was taken for dead still lives on this host. Else empty."""
    runs = layout.runs_folder(folder)
    for name in names_in(runs):
        names = layout.RunNames(runs / name)
        with suppress(DamagedError, OSError):
            if run_files.read_end(names) is None and is_running(run_files.read_card(names).process):
                return f"its run {name} still lives on this host"
    return ""


def _living(session: Session | None) -> Iterator[str]:
    for mode in MODES if session else ():
        run = session.newest(mode) if session else None
        with suppress(DamagedError, OSError):
            if run is None or run_files.read_end(run) is not None:
                continue
            card = run_files.read_card(run)
            here = is_running(card.process)
            if here is not False:
                yield f"{card.identity} {'lives' if here else 'may live on its host'}"


def _all_below(path: str) -> Iterator[str]:
    yield path
    if os.path.islink(path) or not os.path.isdir(path):  # noqa: PTH114, PTH112
        return
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            yield os.path.join(folder, name)  # noqa: PTH118
