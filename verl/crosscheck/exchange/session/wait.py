# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Waits for an artefact of the other run; every wait has a deadline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.errors import DirectoryError, WaitTimeoutError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import WRITES, ArtefactKind
from verl.crosscheck.exchange.session.peer import LONGEST_GAP_S, LOOK_EVERY_S, Peer, Sighting

SHORTEST_POLL_S = 0.002
LONGEST_POLL_S = 1.0
POLL_SHARE_OF_WAIT = 0.01
"""The pause between two looks is this share of the time already waited, so polling delays a wait by about 1 %."""
REPORT_EVERY_S = 30.0


@dataclass(frozen=True)
class Waiting:
    """The report of a wait that lasts. Times in seconds."""

    path: Path
    waited_s: float
    since_progress_s: float
    timeout_s: float
    peer: str
    """What the other run reported to be doing; empty if it has reported nothing."""


@dataclass(frozen=True)
class Wait:
    """Waits below one exchange directory.

    Args:
        timeout_s: longest time without progress. Progress is a report of the other run, a new artefact of the awaited
            kind, or growth of one that is being written: only the other run writes that kind.
        report: called every `REPORT_EVERY_S` seconds.
        clock: the time; tests bring their own.
        peer: the other run, whose end also ends the wait; None if it is not known.
    """

    timeout_s: float
    report: Callable[[Waiting], None]
    clock: Clock = field(default_factory=SystemClock)
    peer: Peer | None = None

    def until_listed(
        self,
        path: Path,
        marker: str | None = None,
        accept: Callable[[Path], bool] = lambda path: True,
        each_look: Callable[[Sighting | None], object] = lambda seen: None,
    ) -> float:
        """Wait until `path` is listed in its folder and accepted, and return the seconds that took.

        With `marker`, `path` is a folder that is complete once it lists a file of that name.

        The folder is listed, not the path looked up: a network file system may answer a look-up from a cache that
        holds "not there" for a minute.

        Args:
            accept: called with a listed path; one that it refuses, as of an earlier session, counts as missing.
            each_look: called about once a second with the other run as it is then; may raise to end the wait.

        Raises:
            ValueError: `path` is not named as an artefact.
            PeerFailedError, PeerSilentError: see `Peer.require_hope`.
            WaitTimeoutError: no progress for `timeout_s`.
            DirectoryError: the folder is gone.
        """
        return _Watch(self, path, marker, accept, each_look).run()

    @staticmethod
    def is_listed(path: Path) -> bool:
        """Return whether `path` is listed in its folder now.

        Raises:
            DirectoryError: the folder is gone.
        """
        return path.name in _names(path.parent)


class _Watch:
    """One wait."""

    def __init__(
        self,
        wait: Wait,
        path: Path,
        marker: str | None,
        accept: Callable[[Path], bool],
        each_look: Callable[[Sighting | None], object],
    ) -> None:
        self._wait, self._path, self._marker, self._accept, self._each_look = wait, path, marker, accept, each_look
        artefact = layout.kind_and_index(path.name)
        if artefact is None:
            raise ValueError(f"{path} is no name of a rollout or a checkpoint, so no run will make it")
        self._kind, self._index = artefact
        self._start_s = self._judged_s = self._reported_s = wait.clock.monotonic_s()
        self._idle_s = 0.0
        """Time without progress, without gaps in which this run did not look."""
        self._looked_s = float("-inf")
        self._seen: tuple[object, ...] | None = None
        self._sighting: Sighting | None = None

    def run(self) -> float:
        while True:
            names = _names(self._path.parent)
            now_s = self._wait.clock.monotonic_s()
            if self._is_there(names):
                return now_s - self._start_s
            self._look_at_peer(now_s)
            self._judge_progress(names, now_s)
            self._report(now_s)
            self._wait.clock.sleep(self._pause_s(now_s))

    def _is_there(self, names: list[str]) -> bool:
        if self._path.name not in names or (self._marker is not None and not _lists(self._path, self._marker)):
            return False
        return self._accept(self._path)

    def _look_at_peer(self, now_s: float) -> None:
        peer = self._wait.peer
        if peer is None or now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        self._sighting = peer.require_hope(self._kind, self._index)
        self._each_look(self._sighting)

    def _judge_progress(self, names: list[str], now_s: float) -> None:
        state = _state(self._path.parent, names, self._kind)
        reported = self._sighting and (self._sighting.number, self._sighting.progress)
        self._idle_s += min(now_s - self._judged_s, LONGEST_GAP_S)
        self._judged_s = now_s
        if (state, reported) != self._seen:
            self._seen, self._idle_s = (state, reported), 0.0
        if self._idle_s >= self._wait.timeout_s:
            raise self._timeout(names, now_s)

    def _report(self, now_s: float) -> None:
        if now_s - self._reported_s >= REPORT_EVERY_S:
            self._reported_s = now_s
            peer = self._wait.peer
            doing = self._sighting.doing if self._sighting else peer.before() if peer is not None else ""
            self._wait.report(Waiting(self._path, now_s - self._start_s, self._idle_s, self._wait.timeout_s, doing))

    def _pause_s(self, now_s: float) -> float:
        pause_s = min(max(SHORTEST_POLL_S, POLL_SHARE_OF_WAIT * (now_s - self._start_s)), LONGEST_POLL_S)
        return min(pause_s, max(self._wait.timeout_s - self._idle_s, SHORTEST_POLL_S))

    def _timeout(self, names: list[str], now_s: float) -> WaitTimeoutError:
        path, kind = self._path, self._kind
        since_s, timeout_s = self._idle_s, self._wait.timeout_s
        waited = f"waited {now_s - self._start_s:.0f} s for {path.name} in {path.parent}"
        longer = f"If its steps take longer than {timeout_s:.0f} s, raise trainer.share_data_timeout_s."
        if self._sighting is not None:
            return WaitTimeoutError(
                f"{waited}. The other run, {self._sighting.card.identity}, lives and is stuck: {self._sighting.doing}, "
                f"without a change for {since_s:.0f} s. Look at its log and its stacks (py-spy dump). {longer}"
            )
        present = layout.artefacts(names, kind)
        newest = f"the newest there is {kind}_{present[-1]}" if present else f"there is no {kind}_* at all"
        if path.name in names:
            newest = f"{path.name} is there and not complete, since it has no {self._marker}"
            if self._marker is None or _lists(path, self._marker):
                newest = f"the {path.name} there is an earlier session's"
        peer_mode = next(mode for mode, written in WRITES.items() if written is kind)
        return WaitTimeoutError(
            f"{waited}, and nothing changed there for the last {since_s:.0f} s; {newest}. Check that the other run "
            f"(trainer.share_data={peer_mode}) is alive, that its trainer.share_data_dir names this same directory, "
            f"and that both hosts see it. {longer}"
        )


def _names(directory: Path) -> list[str]:
    try:
        return filesystem.active().names(directory)
    except FileNotFoundError:
        raise DirectoryError(
            f"the exchange directory {directory} is gone; start both runs again with a new one"
        ) from None
    except OSError as e:
        raise DirectoryError(f"the exchange directory {directory} cannot be listed any more ({e.strerror})") from None


def _lists(folder: Path, name: str) -> bool:
    """Return whether `folder` has an entry `name`; False for anything that is not a folder, or is being removed."""
    try:
        return name in filesystem.active().names(folder)
    except OSError:
        return False


def _state(folder: Path, names: list[str], kind: ArtefactKind) -> tuple[object, ...]:
    """Return what progress is judged by: the number of artefacts of the kind, and the sizes of the staged ones.

    Called in each round on all names of the directory, so it counts them and does not sort.
    """
    prefix = f"{kind}_"
    staged = layout.staged_of_kind(names, kind)
    count = sum(name.startswith(prefix) for name in names)
    return (count, *((name, _size_bytes(folder / name)) for name in staged))


def _size_bytes(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder; 0 for one that vanished meanwhile."""
    try:
        if not path.is_dir():
            return path.lstat().st_size
        return sum(_size_bytes(child) for child in path.iterdir())
    except OSError:
        return 0
