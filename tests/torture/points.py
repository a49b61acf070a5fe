# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every step that a run takes on a disk, by name, and what can be made to happen there.

    python -m torture.points --mode ckpt --dir /tmp/exchange --own /tmp/a --steps 4

starts one fake run. Started twice, once in each mode with a folder of its own for `--own`, it is a cross-check of two
runs. `--kill-at NAME` makes it kill itself at a point that `--record` has listed.

A point's name is `step/phase/number:operation`: the third thing that a run does while it publishes its checkpoint in
step 2 is the same one in each run, while the number of looks that a wait takes is not, so only the first ones count.
The exchange's own changes and listings are seen through its seam (`verl.crosscheck.exchange.filesystem`), what it reads
through Python's audit events, what the fake trainer does in its own folders because it says so. The kernel's view would
be finer only where one method of the seam makes two system calls (opening a file or folder before it is flushed).
"""

from __future__ import annotations

import argparse
import io
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, TypeVar

import torch

from torture.fake_run import Disturbance, RunPlan, run
from torture.toy import Course
from verl.crosscheck.exchange import artefacts, filesystem, publish
from verl.crosscheck.exchange.filesystem import Filesystem
from verl.crosscheck.exchange.session import claim, liveness, own_run, wait
from verl.crosscheck.run import acceptance, live, partner_checks, resuming, rollouts

Found = TypeVar("Found")

PHASES: dict[CodeType, str] = {
    function.__code__: phase
    for function, phase in [
        (claim.claim, "claim"),
        (artefacts.put_aside, "put aside"),
        (resuming.start_of, "find mark"),
        (resuming.mark_checkpoint, "mark"),
        (rollouts.save_rollout, "publish rollout"),
        (publish.publish_folder, "publish ckpt"),
        (live.LiveExchange._load, "load ckpt"),
        (acceptance.load_answer, "load rollout"),
        (live.LiveExchange._delete_old, "delete"),
        (partner_checks.PartnerChecks.look_around, "agree"),
        (partner_checks.PartnerChecks.require_agreement, "agree"),
        (own_run.OwnRun.report_facts, "facts"),
        (own_run.OwnRun.report, "report"),
        (own_run.OwnRun.report_published, "announce"),
        (own_run.OwnRun.report_taken, "acknowledge"),
        (own_run.OwnRun.end, "end"),
        (wait._Watch.run, "wait"),
        (liveness.Heartbeat._run, "beat"),
    ]
}
"""Functions of the exchange and what they are to a person. Of several that call each other the outermost counts."""

READING = ("load ckpt", "load rollout", "claim", "put aside", "find mark")
REPEATED = {"wait": 2, "beat": 2}
"""Phases that do the same thing again and again, and how many of those have names."""


@dataclass(frozen=True)
class Point:
    """One thing that is about to be done, or has been."""

    name: str
    phase: str
    operation: str
    path: Path | None


class Watch(Disturbance):
    """Gives each point its name. Subclasses say what happens there."""

    def __init__(self) -> None:
        self.step = 0
        self._counts: Counter[tuple[int, str]] = Counter()

    def at(self, step: int) -> None:
        self.step = step

    def point(self, phase: str, operation: str, path: Path) -> None:
        self.before(self._named(phase, operation, path))

    def disk(self, plan: RunPlan) -> Filesystem:
        """The filesystem to put in force; also watches what is read from now on, until the process ends."""
        roots = tuple(str(path) + os.sep for path in (plan.root, plan.own))

        def audit(event: str, arguments: tuple[Any, ...]) -> None:
            if event != "open" or not isinstance(path := arguments[0], str | Path):
                return
            text = str(path)
            if text.startswith(roots) and not (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR):
                phase = current_phase()
                if phase in READING:
                    self.before(self._named(phase, "read", Path(text)))

        sys.addaudithook(audit)
        return WatchedFilesystem(self)

    def found(self, operation: str, path: Path | None) -> Point | None:
        """The point that the code which called is at; None if it has no name."""
        phase = current_phase()
        if phase is None:
            return None
        if phase in REPEATED and self._counts[self.step if phase != "beat" else 0, phase] >= REPEATED[phase]:
            return None
        return self._named(phase, operation, path)

    def _named(self, phase: str, operation: str, path: Path | None) -> Point:
        step = self.step if phase != "beat" else 0
        self._counts[step, phase] += 1
        return Point(f"{step}/{phase}/{self._counts[step, phase]}:{operation}", phase, operation, path)

    # ---------------------------------------------------------------- what happens there

    def before(self, point: Point) -> None:
        """It is about to be done. May raise what the system would."""

    def after(self, point: Point) -> None:
        """It has been done."""

    def half(self, point: Point) -> bool:
        """Whether only half of a write is to be done, and `halved` called then."""
        return False

    def halved(self, point: Point) -> None:
        """Half of it has been done."""

    def accepted(self, point: Point | None, size_bytes: int) -> int:
        """How much of a write the disk takes at once. May raise what the system would."""
        return size_bytes

    def listing(self, folder: Path, names: list[str]) -> list[str]:
        """What a listing shows, given what is there."""
        return names

    def changed(self, path: Path) -> None:
        """This run has made or removed a name."""


class PointRecorder(Watch):
    """Writes down all points, each with the moments at which something can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.points: list[Point] = []

    def before(self, point: Point) -> None:
        self.points.append(point)
        self.names.append(f"{point.name}@before")

    def half(self, point: Point) -> bool:
        self.names.append(f"{point.name}@half")
        return False

    def after(self, point: Point) -> None:
        self.names.append(f"{point.name}@after")


class Killer(Watch):
    """Kills the process at one moment of one point."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name, _, self._moment = name.rpartition("@")

    def _reached(self, point: Point, moment: str) -> None:
        if point.name == self._name and moment == self._moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def before(self, point: Point) -> None:
        self._reached(point, "before")

    def half(self, point: Point) -> bool:
        return point.name == self._name and self._moment == "half"

    def halved(self, point: Point) -> None:
        self._reached(point, "half")

    def after(self, point: Point) -> None:
        self._reached(point, "after")


class WatchedFilesystem(Filesystem):
    """The real one, with a watch that is asked before and told after each call."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def _call(self, operation: str, path: Path | None, call: Callable[[], Found]) -> Found:
        point = self._watch.found(operation, path)
        if point is None:
            return call()
        self._watch.before(point)
        result = call()
        self._watch.after(point)
        return result

    def raw(self, path: Path) -> io.FileIO:
        file = self._call("create", path, lambda: WatchedFile(path, self._watch))
        self._watch.changed(path)
        return file

    def overwrite(self, path: Path, content: bytes) -> None:
        self._call("overwrite", path, lambda: super(WatchedFilesystem, self).overwrite(path, content))

    def flush(self, descriptor: int) -> None:
        self._call("flush", None, lambda: super(WatchedFilesystem, self).flush(descriptor))

    def link(self, source: Path, target: Path) -> None:
        self._call("link", target, lambda: super(WatchedFilesystem, self).link(source, target))
        self._watch.changed(target)

    def rename(self, source: Path, target: Path) -> None:
        self._call("rename", target, lambda: super(WatchedFilesystem, self).rename(source, target))
        self._watch.changed(source)
        self._watch.changed(target)

    def unlink(self, path: Path) -> None:
        self._call("unlink", path, lambda: super(WatchedFilesystem, self).unlink(path))
        self._watch.changed(path)

    def mkdir(self, path: Path) -> None:
        self._call("mkdir", path, lambda: super(WatchedFilesystem, self).mkdir(path))
        self._watch.changed(path)

    def rmdir(self, path: Path) -> None:
        self._call("rmdir", path, lambda: super(WatchedFilesystem, self).rmdir(path))
        self._watch.changed(path)

    def chmod(self, path: Path, mode: int) -> None:
        self._call("chmod", path, lambda: super(WatchedFilesystem, self).chmod(path, mode))

    def names(self, folder: Path) -> list[str]:
        found = self._call("list", folder, lambda: super(WatchedFilesystem, self).names(folder))
        return self._watch.listing(folder, found)

    def free_bytes(self, folder: Path) -> int:
        return self._call("free", folder, lambda: super(WatchedFilesystem, self).free_bytes(folder))


class WatchedFile(io.FileIO):
    """A raw file; each write is a point."""

    def __init__(self, path: Path, watch: Watch) -> None:
        super().__init__(path, "x+b", opener=lambda name, flags: os.open(name, flags, 0o600))
        self._path, self._watch = path, watch

    def write(self, data: Any) -> int:
        content = memoryview(data).cast("B")
        watch, point = self._watch, self._watch.found("write", self._path)
        if point is not None:
            watch.before(point)
            if watch.half(point):
                super().write(content[: len(content) // 2])
                watch.halved(point)
        written = super().write(content[: watch.accepted(point, len(content))])
        if point is not None:
            watch.after(point)
        return written


def current_phase() -> str | None:
    """What the code that calls is part of."""
    frame: FrameType | None = sys._getframe(1)
    phase: str | None = None
    while frame is not None:
        phase = PHASES.get(frame.f_code, phase)
        frame = frame.f_back
    return phase


def main() -> None:
    """One run by hand."""
    parser = argparse.ArgumentParser(description="One of two fake runs that cross-check each other.")
    parser.add_argument("--mode", choices=["ckpt", "rollout"], required=True)
    parser.add_argument("--dir", type=Path, required=True, help="the exchange directory")
    parser.add_argument("--own", type=Path, required=True, help="folder of this run's own checkpoints")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--test-freq", type=int, default=-1)
    parser.add_argument("--kill-at", metavar="NAME", help="kill this run there")
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the names of all points there")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    plan = RunPlan(arguments.mode, arguments.dir, arguments.own, Course(arguments.steps, test_freq=arguments.test_freq))
    watch: PointRecorder | Killer | None = None
    if arguments.kill_at:
        watch = Killer(arguments.kill_at)
    elif arguments.record:
        watch = PointRecorder()
    in_force: AbstractContextManager[None] = filesystem.replaced(watch.disk(plan)) if watch else nullcontext()
    with in_force:
        state = run(plan, watch)
    if isinstance(watch, PointRecorder):
        arguments.record.write_text("\n".join(watch.names) + "\n")
    sys.stdout.write(json.dumps(asdict(state)) + "\n")


if __name__ == "__main__":
    main()
