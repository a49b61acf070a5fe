# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Identity of a process, and whether it still runs, as far as this host can know."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


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
