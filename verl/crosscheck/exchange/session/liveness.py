# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Signs of life: the heartbeat that a run writes, and whether a process of this host still runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from verl.crosscheck.exchange import filesystem
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S

logger = logging.getLogger(__name__)

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def beat(path: Path, count: int) -> None:
    """Overwrite the count in the file.

    The file is not replaced by a rename: NFS clients cache which file has a name for longer than its content. It is not
    flushed either, since it has no meaning after a crash.

    Raises:
        OSError: the file system's own.
    """
    filesystem.active().overwrite(path, b"%020d\n" % count)


class Heartbeat:
    """Beats from `start` until `stop`, in a thread, since the main program only waits meanwhile.

    A directory that fails or vanishes does not end the run.

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


def this_process() -> dict[str, Any]:
    """Return the identity of this process: its pid, when it started, and the boot and namespace that the pid is of."""
    return {"pid": os.getpid(), "start": _start(os.getpid()), **_place()}


def is_running(process: Mapping[str, Any]) -> bool | None:
    """Return whether the process that `this_process` described still runs; None where this host cannot know.

    A pid is valid only on the same host, since the same boot, in the same namespace of pids (containers have one each).
    It may be given to another process later, which then has another start time.
    """
    if None in (*_place().values(), process.get("start")):
        return None
    if any(process.get(name) != value for name, value in _place().items()):
        return None
    return bool(_start(process.get("pid")) == process["start"])


def _place() -> dict[str, str | None]:
    try:
        return {
            "boot": _BOOT_ID.read_text(encoding="ascii").strip(),
            "namespace": str(Path("/proc/self/ns/pid").readlink()),
        }
    except OSError:
        return {"boot": None, "namespace": None}


def _start(pid: Any) -> int | None:
    """Return the clock ticks after boot at which the process started; None if there is none, or only a zombie."""
    try:
        # The name stands in parentheses and may hold any character; state and start time are fields 3 and 22.
        values = Path(f"/proc/{int(pid)}/stat").read_bytes().rpartition(b")")[2].split()
        return None if values[0] in (b"Z", b"X") else int(values[19])
    except (OSError, ValueError, TypeError, IndexError):
        return None
