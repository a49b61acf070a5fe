# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Sessions: which runs take part, and which run may write.

A session is a folder with an id, and in it one folder for each run that took part: `ckpt_1`, `rollout_1`, and `ckpt_2`
if the first was started again. The highest number of a mode is its current run. A run claims its slot by renaming a
prepared folder, with its card in it, to the next number, in which exactly one run succeeds. A run that finds a higher
number of its own mode has been replaced, and stops. The newest session of a directory is the current one. Its artefacts
lie in the directory itself; those of earlier sessions are moved into their folders.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import msgspec
from msgspec.structs import replace

from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError, DirectoryError, PublishError, ResumeError, SessionError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.documents import Count, Document, read_document
from verl.crosscheck.exchange.layout import OTHER, Layout, RunNames
from verl.crosscheck.exchange.publish import publish_document, rename_new_folder
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.liveness import is_running
from verl.crosscheck.exchange.session.peer import newest_run
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Start
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S, MODES, ShareMode

_ATTEMPTS = 20
_LONGEST_PAUSE_S = 5.0
"""Between attempts; together they outlast the minute for which a network file system may show an old listing."""
_WATCH_EVERY_S = 1.0


class SessionFile(Document, frozen=True):
    """`session.json`: the number counts from 1, and so many steps were done before the session."""

    SCHEMA: ClassVar[str] = "verl-crosscheck/session"

    id: str
    number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    base_step: Count


@dataclass(frozen=True)
class Session:
    """One session on disk."""

    number: int
    id: str
    base_step: int
    """Number of steps done before it: index 0 of either kind belongs to the step after these."""
    folder: Path

    def run(self, mode: ShareMode, number: int) -> RunNames:
        return RunNames(layout.run_folder(self.folder, mode, number))

    def runs(self, mode: ShareMode) -> list[tuple[int, RunNames]]:
        """Return all runs of a mode that took part, in order."""
        names = filesystem.active().names(layout.runs_folder(self.folder))
        return [(number, self.run(mode, number)) for number in layout.run_numbers(names, mode)]

    def newest(self, mode: ShareMode) -> RunNames | None:
        """Return the current run of a mode; None if there is none."""
        number = newest_run(self.folder, mode)
        return None if number is None else self.run(mode, number)


@dataclass(frozen=True)
class RunSlot:
    """The slot of a run in a session. The run that holds it may write artefacts of its mode's kind."""

    root: Path
    session: Session
    mode: ShareMode
    number: int
    run_id: str

    @property
    def names(self) -> RunNames:
        return self.session.run(self.mode, self.number)

    @property
    def stamp(self) -> dict[str, str]:
        """The origin that every artefact of this run carries."""
        return {"session": self.session.id, "producer": self.run_id}

    def require_current(self) -> None:
        """Raise if another run has taken this slot.

        A run that was suspended, counted as dead and then continues must not write beside its successor.

        Raises:
            SessionError: another run has taken it, or has begun a new session.
            DirectoryError: the directory is gone.
        """
        number = newest_run(self.session.folder, self.mode)
        if number is not None and number > self.number:
            successor = "another run"
            with suppress(DamagedError, OSError, TypeError):
                successor = run_files.read_card(self.session.run(self.mode, number)).identity
            raise SessionError(
                f"this run, number {self.number} of mode {self.mode} in {self.session.folder}, was given up for dead "
                f"and replaced by {successor}. It wrote nothing since; end it"
            )
        try:
            newest = current_session(self.root)
        except FileNotFoundError as e:  # it is listed, and on its way out
            raise DirectoryError(
                f"{e.filename} is gone: the exchange directory was removed. Start both runs again with a new one"
            ) from None
        if newest is not None and newest.number > self.session.number:
            raise SessionError(
                f"a new session has begun in {self.root} while this run, of {self.session.folder}, showed no sign of "
                "life. It wrote nothing since; end it"
            )


def read_session(folder: Path) -> Session:
    """Return the session in a folder: one of `sessions/`, or a copy of it elsewhere.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is not what it should be.
    """
    found = read_document(folder / layout.SESSION, SessionFile)
    return Session(found.number, found.id, found.base_step, folder)


def sessions(root: Path) -> list[Session]:
    """Return the sessions of a directory, the newest last, without those that are damaged or of another version."""
    places = Layout(root)
    try:
        names = filesystem.active().names(places.sessions)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = []
    for number in layout.session_numbers(names):
        with suppress(DamagedError, FileNotFoundError):
            found.append(read_session(places.session(number)))
    return found


def current_session(root: Path) -> Session | None:
    """Return the newest session of a directory; None if there is none.

    Raises:
        DamagedError: it is not what it should be.
    """
    places = Layout(root)
    try:
        numbers = layout.session_numbers(filesystem.active().names(places.sessions))
    except (FileNotFoundError, NotADirectoryError):
        return None
    return read_session(places.session(numbers[-1])) if numbers else None


def claim(
    root: Path, card: Card, *, silence_s: float, clock: Clock, announce: Callable[[str], object] = lambda line: None
) -> RunSlot:
    """Take the slot of the card's mode and return it.

    The session is the current one if its other run lives or this run resumes it, else a new one. The card is written
    with that session, and with a start at its beginning if the given start belongs to another session.

    Args:
        silence_s: a run on another host counts as dead after that long without a change.
        announce: is given a line for people when it takes long.

    Raises:
        SessionError: another run of the mode lives.
        ResumeError: the session to join begins at another step than this run.
        DamagedError: what lies there is not of this version, or not what it should be.
        OSError: the file system's own.
    """
    with suppress(FileExistsError):
        filesystem.active().mkdir(Layout(root).sessions)
    for attempt in range(_ATTEMPTS):
        if attempt:
            clock.sleep(min(0.01 * 2**attempt, _LONGEST_PAUSE_S))
        session = current_session(root)
        with suppress(PublishError, _MovedError):  # another run was faster: look again
            joined = session is not None and _joins(session, card, silence_s, clock, announce)
            slot = _join(root, session, card) if session and joined else _begin(root, session, card)
            newest = current_session(root)
            if newest is None or newest.number <= slot.session.number:
                return slot
            # Another run began a new session between our look and our claim.
            run_files.write_end(
                slot.names, End(EndState.INTERRUPTED, message="joined the session that followed instead")
            )
    raise SessionError(
        f"no place could be taken in {root} in {_ATTEMPTS} attempts: too many runs start there at once, or its listing "
        "lags by more than a minute. Wait a little, then start again"
    )


class _MovedError(Exception):
    """Another run has joined since the directory was read."""


def _joins(session: Session, card: Card, silence_s: float, clock: Clock, announce: Callable[[str], object]) -> bool:
    goes_on = card.start.session == session.id
    modes = [card.mode] if goes_on else [card.mode, OTHER[card.mode]]
    numbers = {mode: newest_run(session.folder, mode) for mode in MODES}
    runs = {mode: session.run(mode, number) for mode in modes if (number := numbers[mode]) is not None}
    with _candidate(session, card) as beat:
        living = _living(runs, silence_s, clock, announce, beat)
    if numbers != {mode: newest_run(session.folder, mode) for mode in MODES}:
        raise _MovedError
    if card.mode in living:
        living_run = run_files.read_card(runs[card.mode]).identity
        raise SessionError(
            f"two runs in mode {card.mode} cannot use one directory: {living_run} lives in {session.folder}, "
            f"and this is run {card.run_id[:8]} (mode {card.mode}, {card.host}, pid {card.process.get('pid')}). End "
            f"one of them, or set trainer.share_data={OTHER[card.mode]} on one, or "
            "name another directory with trainer.share_data_dir=... on both sides of one pair"
        )
    if goes_on or OTHER[card.mode] not in living:
        return goes_on
    if card.start.global_step != session.base_step:
        raise ResumeError(
            f"{run_files.read_card(runs[OTHER[card.mode]]).identity} waits in {session.folder}, a session that begins "
            f"after step {session.base_step}, and this run begins after step {card.start.global_step}, from a "
            "checkpoint of no session or of another one. Start both runs from the same step: see trainer.resume_mode "
            "and trainer.resume_from_path. A run that goes on with an earlier session must be started before one that "
            "begins anew"
        )
    return True


def _living(
    runs: Mapping[ShareMode, RunNames],
    silence_s: float,
    clock: Clock,
    announce: Callable[[str], object],
    beat: Callable[[], object],
) -> set[ShareMode]:
    """Return the modes whose run may still write: it has not ended, and its files change or its process runs here.

    Runs of other hosts are watched together, for up to `silence_s` seconds without a change.
    """
    known = {mode: _known_to_live(run) for mode, run in runs.items()}
    living = {mode for mode, lives in known.items() if lives}
    open_question = {mode: run_files.read_signs(runs[mode]) for mode, lives in known.items() if lives is None}
    start_s, announced = clock.monotonic_s(), False
    while open_question and clock.monotonic_s() - start_s < silence_s:
        beat()
        clock.sleep(_WATCH_EVERY_S)
        for mode in [mode for mode, signs in open_question.items() if run_files.read_signs(runs[mode]) != signs]:
            del open_question[mode]
            if run_files.read_end(runs[mode]) is None:
                living.add(mode)
        if open_question and not announced and clock.monotonic_s() - start_s > 2 * HEARTBEAT_INTERVAL_S:
            announced = True
            names = " and ".join(run_files.read_card(runs[mode]).identity for mode in open_question)
            announce(f"{names} did not say that it ended; looking for up to {silence_s:.0f} s whether it lives")
    return living


def _known_to_live(run: RunNames) -> bool | None:
    """Return whether a run lives, as far as one look shows; None if it has to be watched."""
    if run_files.read_end(run) is not None:
        return False
    return is_running(run_files.read_card(run).process)


def is_live(
    run: RunNames, *, silence_s: float, clock: Clock, announce: Callable[[str], object] = lambda line: None
) -> bool:
    """Return whether a run may still write; watches a run of another host for up to `silence_s` seconds."""
    return bool(_living({MODES[0]: run}, silence_s, clock, announce, lambda: None))


@contextmanager
def _candidate(session: Session, card: Card) -> Iterator[Callable[[], object]]:
    """Yield a function that shows, at each call, that a run waits to replace one that may be dead.

    The partner of that run then does not give up meanwhile. The file is removed afterwards.
    """
    disk = filesystem.active()
    path, count = layout.candidate(session.folder, card.mode), 0

    def beat() -> None:
        nonlocal count
        count += 1
        with suppress(OSError):
            if count == 1:
                with suppress(FileExistsError):
                    disk.create(path).close()
            disk.overwrite(path, f"{card.run_id} {count:020d}\n".encode())

    try:
        yield beat
    finally:
        if count:
            with suppress(OSError):
                disk.unlink(path)


def _join(root: Path, session: Session, card: Card) -> RunSlot:
    number = (newest_run(session.folder, card.mode) or 0) + 1
    slot = RunSlot(root, session, card.mode, number, card.run_id)
    with _prepared(slot.names.folder) as stage:
        start = card.start if card.start.session == session.id else Start(card.start.global_step)
        before = _others_before(session, card.mode)
        _fill_run(stage, replace(card, session_id=session.id, start=start, others_before=before))
        rename_new_folder(stage, slot.names.folder)
    return slot


def _others_before(session: Session, mode: ShareMode) -> int:
    """Return the number of the last run of the other mode that is over; 0 if there is none."""
    number = newest_run(session.folder, OTHER[mode])
    if number is None:
        return 0
    run = session.run(OTHER[mode], number)
    over = run_files.read_end(run) is not None or is_running(run_files.read_card(run).process) is False
    return number if over else number - 1


def _begin(root: Path, before: Session | None, card: Card) -> RunSlot:
    number = 1 if before is None else before.number + 1
    base_step = card.start.global_step
    session = Session(number, secrets.token_hex(8), base_step, Layout(root).session(number))
    slot = RunSlot(root, session, card.mode, 1, card.run_id)
    disk = filesystem.active()
    with _prepared(session.folder) as stage:
        publish_document(stage / layout.SESSION, SessionFile(session.id, number, base_step), replace=False)
        disk.mkdir(layout.runs_folder(stage))
        run = layout.run_folder(stage, card.mode, 1)
        disk.mkdir(run)
        _fill_run(run, replace(card, session_id=session.id, start=Start(base_step), others_before=0))
        rename_new_folder(stage, session.folder)
    disk.flush_path(session.folder.parent)
    return slot


def _fill_run(folder: Path, card: Card) -> None:
    names = RunNames(folder)
    with filesystem.active().create(names.heartbeat) as file:
        file.write(b"%020d\n" % 0)
    with filesystem.active().create(names.reserve) as file:
        file.write(os.urandom(run_files.END_RESERVE_BYTES))  # random, so that no file system compresses it
    run_files.write_card(names, card)


@contextmanager
def _prepared(final: Path) -> Iterator[Path]:
    """Yield a new staging folder for `final`; it is removed afterwards unless it was renamed."""
    disk = filesystem.active()
    stage = layout.staging(final, f"{os.getpid()}-{secrets.token_hex(4)}")
    disk.mkdir(stage)
    try:
        yield stage
    finally:
        with suppress(OSError):
            disk.remove(stage)


def locate(root: Path) -> tuple[Layout, Session]:
    """Return the session to read in `root`: the current one, or `root` itself if it is the folder of a session.

    Raises:
        DirectoryError: there is none.
        DamagedError: it is not what it should be.
    """
    try:
        return Layout(root), read_session(root)
    except FileNotFoundError:
        pass
    session = current_session(root)
    if session is None:
        raise DirectoryError(f"{root} holds no session of two runs. Name an exchange directory that one has used")
    return Layout(root), session
