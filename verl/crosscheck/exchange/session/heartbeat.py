# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Shows every few seconds that a run lives. Runs in a thread, since the main program only waits meanwhile."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from verl.crosscheck.exchange import filesystem
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S

logger = logging.getLogger(__name__)


def beat(path: Path, count: int) -> None:
    """Overwrite the count in the file.

    The file is not replaced by a rename: NFS clients cache which file has a name for longer than its content. It is not
    flushed either, since it has no meaning after a crash.

    Raises:
        OSError: the file system's own.
    """
    filesystem.active().overwrite(path, b"%020d\n" % count)


class Heartbeat:
    """Beats from `start` until `stop`. A directory that fails or vanishes does not end the run.

    Args:
        path: an existing file.
    """

    def __init__(self, path: Path, interval_s: float = HEARTBEAT_INTERVAL_S) -> None:
        self._path, self._interval_s = path, interval_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="crosscheck-heartbeat", daemon=True)

    def start(self) -> Heartbeat:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stop beating. May be called again, and before `start`."""
        self._stop.set()
        with suppress(RuntimeError):  # never started
            self._thread.join()

    def __enter__(self) -> Heartbeat:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        count, failing = 1, False
        while not self._stop.wait(self._interval_s):
            try:
                beat(self._path, count)
                failing = False
            except OSError as e:
                if not failing:
                    logger.warning("the heartbeat %s could not be written (%s); trying on", self._path, e.strerror)
                failing = True
            count += 1
