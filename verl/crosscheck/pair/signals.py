# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Signals that ask this process to end, noted and acted upon where nothing is half done."""

from __future__ import annotations

import signal
import threading
from types import TracebackType
from typing import Any


class Signals:
    """Within the block, Ctrl-C, SIGTERM and SIGHUP are counted. One that this process was started to ignore, as under
    `nohup`, stays ignored."""

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(each) is not signal.SIG_IGN:
                    self._before[each] = signal.signal(each, lambda number, frame: self.received.append(number))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @property
    def insisting(self) -> bool:
        """Whether somebody asked again."""
        return len(self.received) > 1

    @property
    def exit_status(self) -> int:
        """What shells report for a program that such a signal ended."""
        return 128 + self.received[0] if self.received else 0

    def check(self) -> None:
        """Raise KeyboardInterrupt if there was one."""
        if self.received:
            raise KeyboardInterrupt
