# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What else can happen to a run: a disk that fails, writes short or shows old listings, and a trainer that stops."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

from torture.points import Point, Watch
from verl.crosscheck.clock import Clock


class ScaledClock:
    """The real clock, a number of times as fast, so that a minute of silence takes a second."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def monotonic_s(self) -> float:
        return time.monotonic() * self._factor

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s / self._factor)


class Failing(Watch):
    """The disk fails once, at one point; or at every point that `also` picks.

    Args:
        name: of the point.
        code: of the error.
    """

    def __init__(self, name: str, code: int, also: Callable[[Point], bool] = lambda point: False) -> None:
        super().__init__()
        self._name, self._code, self._also = name, code, also

    def before(self, point: Point) -> None:
        if point.name == self._name or self._also(point):
            raise OSError(self._code, os.strerror(self._code), str(point.path))


class ShortWrites(Watch):
    """The disk takes a third of each write at once, as it may."""

    def accepted(self, point: Point | None, size_bytes: int) -> int:
        return max(1, size_bytes // 3)


class FullDisk(Watch):
    """The disk takes so many bytes from the beginning of a step on, the last write in part, and then no more."""

    def __init__(self, step: int, free_bytes: int) -> None:
        super().__init__()
        self._step, self._left = step, free_bytes

    def accepted(self, point: Point | None, size_bytes: int) -> int:
        if self.step < self._step:
            return size_bytes
        if self._left <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken = min(size_bytes, self._left)
        self._left -= taken
        return taken


class OldListings(Watch):
    """A folder's listing is fetched once in a while; in between only this run's own changes show.

    Args:
        lag_s: how old a listing may get, by `clock`.
        refetched: whether an own change in a folder makes its listing new, as with NFS; else it is only put into the
            old one, which is harsher.
    """

    def __init__(self, lag_s: float, clock: Clock, *, refetched: bool) -> None:
        super().__init__()
        self._lag_s, self._clock, self._refetched = lag_s, clock, refetched
        self._seen: dict[Path, tuple[float, set[str]]] = {}

    def listing(self, folder: Path, names: list[str]) -> list[str]:
        now_s = self._clock.monotonic_s()
        if folder not in self._seen or now_s - self._seen[folder][0] >= self._lag_s:
            self._seen[folder] = (now_s, set(names))
        return sorted(self._seen[folder][1])

    def changed(self, path: Path) -> None:
        if self._refetched:
            self._seen.pop(path.parent, None)
        elif path.parent in self._seen:
            shown = self._seen[path.parent][1]
            shown.add(path.name) if os.path.lexists(path) else shown.discard(path.name)


class Trouble(Watch):
    """Something happens when the trainer begins a part of a step.

    Args:
        what, step: the part, as `Disturbance.doing` names it.
        happen: what happens; may raise.
    """

    def __init__(self, what: str, step: int, happen: Callable[[], object]) -> None:
        super().__init__()
        self._when, self._happen = (what, step), happen

    def doing(self, what: str, step: int) -> None:
        if (what, step) == self._when:
            self._happen()


class PausedAt(Watch):
    """The process is stopped at a point, until somebody continues it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def before(self, point: Point) -> None:
        if point.name == self._name:
            stop_this_process()


def stop_this_process() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def fail(message: str) -> Callable[[], object]:
    def happen() -> None:
        raise ValueError(message)

    return happen


def remove(folder: Path) -> Callable[[], object]:
    """Removes a folder in which another process is busy."""

    def happen() -> None:
        while folder.exists():
            shutil.rmtree(folder, ignore_errors=True)

    return happen


def sleep(duration_s: float) -> Callable[[], object]:
    return lambda: time.sleep(duration_s)


def jumping_clock() -> None:
    """The wall clock of this process jumps by years at every look; the monotonic one does not."""
    real: Callable[[], float] = time.time
    looks = [0]

    def jumping() -> float:
        looks[0] += 1
        sign = -1 if looks[0] % 2 else 1
        return real() + sign * 1e8 * (looks[0] % 7)

    time.time = jumping


def on_another_host() -> None:
    """Makes the processes of this host unknown ones, as if each run had a host of its own."""
    from verl.crosscheck.exchange.session import liveness

    liveness._BOOT_ID = Path("/nonexistent")


__all__ = [
    "Failing",
    "FullDisk",
    "OldListings",
    "PausedAt",
    "ScaledClock",
    "ShortWrites",
    "Trouble",
    "fail",
    "jumping_clock",
    "on_another_host",
    "remove",
    "sleep",
]
