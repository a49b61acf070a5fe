# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Time as an argument, so that a test of waiting does not wait."""

from __future__ import annotations

import time
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
