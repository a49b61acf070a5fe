# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Time as an argument, so that a test of waiting does not wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """What a wait needs of time. Monotonic: wall clocks jump, and those of two hosts differ."""

    def monotonic_s(self) -> float:
        """Seconds since some fixed moment."""

    def sleep(self, duration_s: float) -> None:
        """Let `duration_s` seconds pass."""


class SystemClock:
    """The real one."""

    def monotonic_s(self) -> float:
        return time.monotonic()

    def sleep(self, duration_s: float) -> None:
        time.sleep(duration_s)


class ManualClock:
    """Time that passes only by sleeping, for tests: no test waits.

    Args:
        events: what happens at which second, each once, when sleeping passes it.
    """

    def __init__(self, events: dict[float, Callable[[], object]] | None = None) -> None:
        self._now_s = 0.0
        self._events = dict(sorted((events or {}).items()))
        self.sleeps_s: list[float] = []

    def monotonic_s(self) -> float:
        return self._now_s

    def sleep(self, duration_s: float) -> None:
        self.sleeps_s.append(duration_s)
        self._now_s += duration_s
        for moment_s in [moment_s for moment_s in self._events if moment_s <= self._now_s]:
            self._events.pop(moment_s)()
