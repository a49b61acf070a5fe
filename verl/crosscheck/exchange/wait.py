# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Waits for an artefact of the other run, with an end."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.errors import DirectoryError, WaitTimeoutError
from verl.crosscheck.exchange import layout

SHORTEST_POLL_S = 0.002
LONGEST_POLL_S = 1.0
POLL_SHARE_OF_WAIT = 0.01
"""Looks are spaced by this share of the time already waited, so noticing costs at most about 1 % of any wait."""
REPORT_EVERY_S = 30.0


@dataclass(frozen=True)
class Waiting:
    """What a wait reports while it lasts. Times in seconds."""

    path: Path
    waited_s: float
    since_progress_s: float
    timeout_s: float


@dataclass(frozen=True)
class Wait:
    """Waits below one exchange directory.

    Args:
        timeout_s: longest time without progress. New artefacts of the awaited kind count, and growth of what is being
            prepared: only the other run writes that kind.
        report: called every `REPORT_EVERY_S` seconds.
        clock: the time; tests bring their own.
    """

    timeout_s: float
    report: Callable[[Waiting], None]
    clock: Clock = field(default_factory=SystemClock)

    def until_listed(self, path: Path, marker: str | None = None) -> float:
        """Return once `path` is listed in its folder; the seconds that took.

        With `marker`, `path` is a folder that is complete once it lists a file of that name.

        The folder is listed, not the path looked up: a network file system may answer a look-up from a cache that
        holds "not there" for a minute.

        Raises:
            WaitTimeoutError: no progress for `timeout_s`.
            DirectoryError: the folder is gone.
        """
        start_s = progress_s = reported_s = self.clock.monotonic_s()
        seen: tuple[object, ...] | None = None
        while True:
            names = _names(path.parent)
            now_s = self.clock.monotonic_s()
            if path.name in names and (marker is None or _lists(path, marker)):
                return now_s - start_s
            state = _state(path, names)
            if state != seen:
                seen, progress_s = state, now_s
            if now_s - progress_s >= self.timeout_s:
                raise self._timeout(path, marker, names, now_s - start_s, now_s - progress_s)
            if now_s - reported_s >= REPORT_EVERY_S:
                reported_s = now_s
                self.report(Waiting(path, now_s - start_s, now_s - progress_s, self.timeout_s))
            self.clock.sleep(self._pause_s(now_s - start_s, now_s - progress_s))

    @staticmethod
    def is_listed(path: Path) -> bool:
        """Whether `path` is listed in its folder now.

        Raises:
            DirectoryError: the folder is gone.
        """
        return path.name in _names(path.parent)

    def _pause_s(self, waited_s: float, since_progress_s: float) -> float:
        pause_s = min(max(SHORTEST_POLL_S, POLL_SHARE_OF_WAIT * waited_s), LONGEST_POLL_S)
        return min(pause_s, max(self.timeout_s - since_progress_s, SHORTEST_POLL_S))

    def _timeout(
        self, path: Path, marker: str | None, names: list[str], waited_s: float, since_progress_s: float
    ) -> WaitTimeoutError:
        kind = _kind(path)
        present = layout.artefacts(names, kind)
        newest = f"the newest there is {kind}_{present[-1]}" if present else f"there is no {kind}_* at all"
        if path.name in names:
            newest = f"{path.name} is there and not complete, since it has no {marker}"
        peer_mode = "ckpt" if kind == "rollout" else "rollout"
        return WaitTimeoutError(
            f"waited {waited_s:.0f} s for {path.name} in {path.parent}, and nothing changed there for the last "
            f"{since_progress_s:.0f} s; {newest}. Check that the other run (trainer.share_data={peer_mode}) is alive, "
            f"that its trainer.share_data_dir names this same directory, and that both hosts see it. If its steps take "
            f"longer than {self.timeout_s:.0f} s, raise trainer.share_data_timeout_s."
        )


def _names(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)  # noqa: PTH208
    except FileNotFoundError:
        raise DirectoryError(
            f"the exchange directory {directory} is gone; start both runs again with a new one"
        ) from None
    except OSError as e:
        raise DirectoryError(f"the exchange directory {directory} cannot be listed any more ({e.strerror})") from None


def _lists(folder: Path, name: str) -> bool:
    """Whether `folder` is one and has an entry `name`; a file, a dangling link or one that is going away has none."""
    try:
        return name in os.listdir(folder)  # noqa: PTH208
    except OSError:
        return False


def _kind(path: Path) -> str:
    return "rollout" if layout.is_of_kind(path.name, "rollout") else "ckpt"


def _state(path: Path, names: list[str]) -> tuple[object, ...]:
    """What progress is judged by: the names of the kind of `path`, and how large the staged ones have grown."""
    relevant = sorted(name for name in names if layout.is_of_kind(name, _kind(path)))
    staged = [name for name in relevant if layout.is_staged(Path(name))]
    return (*relevant, *(_size_bytes(path.parent / name) for name in staged))


def _size_bytes(path: Path) -> int:
    """Bytes of a file or of all files of a folder; 0 for what vanished meanwhile."""
    try:
        if not path.is_dir():
            return path.lstat().st_size
        return sum(_size_bytes(child) for child in path.iterdir())
    except OSError:
        return 0
