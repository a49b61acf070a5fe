# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Processes in milliseconds: one that has imported everything forks each run, which would take seconds to start.

The parent starts no thread, so that a fork copies all of it.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Child:
    """A forked process.

    Args:
        status: how it ended, as `os.waitstatus_to_exitcode` says it; None while it runs.
    """

    pid: int
    descriptor: int
    status: int | None = field(default=None)

    def poll(self, timeout_s: float = 0.0) -> int | None:
        """Its status once it has ended, at the latest after `timeout_s`; None if it runs on."""
        if self.status is None:
            poller = select.poll()
            poller.register(self.descriptor, select.POLLIN)
            if poller.poll(timeout_s * 1000):
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                os.close(self.descriptor)
        return self.status

    def signal(self, number: int) -> None:
        """Send it a signal, if it still runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once, and reap it."""
        self.signal(signal.SIGKILL)
        self.poll(60)


def fork(work: Callable[[], object], log: Path) -> Child:
    """Do `work` in a child, what it prints going to the end of `log`. Its status is 0, or 1 after an error."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        _be_child(work, log)
    return Child(pid, os.pidfd_open(pid))


def _be_child(work: Callable[[], object], log: Path) -> None:
    status = 1
    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        work()
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
        os._exit(status)  # no exit handlers of the parent, no flush of what it had in its buffers


@dataclass(frozen=True)
class Task:
    """Work for one of several children at a time.

    Args:
        work: returns what can be written as JSON.
        name: for people.
        timeout_s: after which it is killed, and counts as having hung.
    """

    work: Callable[[], Any]
    name: str
    timeout_s: float = 120.0


def in_parallel(
    tasks: Iterable[Task], workers: int, scratch: Path, tell: Callable[[Any], object] = lambda result: None
) -> list[Any]:
    """Results of all tasks, in order; for one that died or hung, `{"name": ..., "broken": why}`.

    Args:
        tell: given each result as it comes.
    """
    waiting = list(enumerate(tasks))[::-1]
    results: list[Any] = [None] * len(waiting)
    running: dict[int, tuple[Child, Task, float, Path]] = {}
    while waiting or running:
        while waiting and len(running) < workers:
            number, task = waiting.pop()
            out = scratch / f"result_{number}.json"
            child = fork(_writing(task.work, out), scratch / f"task_{number}.log")
            running[number] = (child, task, time.monotonic(), out)
        for number in list(running):
            child, task, start_s, out = running[number]
            hung = time.monotonic() - start_s > task.timeout_s
            if child.poll(0.01) is None and not hung:
                continue
            del running[number]
            if hung and child.status is None:
                child.kill()
                results[number] = {"name": task.name, "broken": f"took longer than {task.timeout_s:.0f} s"}
            elif child.status == 0:
                results[number] = json.loads(out.read_text())
            else:
                log = (scratch / f"task_{number}.log").read_text()[-2000:]
                results[number] = {"name": task.name, "broken": f"ended with status {child.status}: {log}"}
            tell(results[number])
    return results


def _writing(work: Callable[[], Any], out: Path) -> Callable[[], object]:
    return lambda: out.write_text(json.dumps(work()))
