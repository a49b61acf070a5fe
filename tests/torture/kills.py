# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Kills one of two runs with SIGKILL at every step that it takes on a disk, and resumes.

Afterwards the survivor either waits while the killed run is started again, or is killed as well and both are started
again. Then every artefact with a name must be whole, both runs must end, and with the numbers of an undisturbed pair.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torture.pair import MODES, ToyPair, make_template, new_pair, wait_for, wait_until
from torture.points import Killer, PointRecorder
from torture.toy import Course
from torture.zygote import Task, in_parallel
from verl.crosscheck.exchange.layout import OTHER

COURSE = Course(steps=4, save_freq=2)
VALIDATED = Course(steps=5, save_freq=2, test_freq=3)
EARLIER = Course(steps=2, rows=3)
"""Of the session whose artefacts lie in the directory when the pair begins."""


@dataclass(frozen=True)
class Kill:
    """One trial.

    Args:
        point: see `points`.
        alone: whether the other run lives on meanwhile.
        again: a point at which the resumed run is killed as well; empty for none.
    """

    mode: str
    point: str
    alone: bool
    course: Course
    again: str = ""

    @property
    def name(self) -> str:
        then = f", then at {self.again}" if self.again else ""
        return f"{self.mode} at {self.point}{then}, the other {'waits' if self.alone else 'is killed too'}"

    @property
    def phase(self) -> str:
        return (self.again or self.point).split("/")[1]


@dataclass(frozen=True)
class KillSetting:
    """What all trials share."""

    scratch: Path
    template: Path
    earlier: dict[str, Course]

    @classmethod
    def make(cls, scratch: Path) -> KillSetting:
        template = scratch / "template"
        return cls(scratch, template, make_template(template, EARLIER, scratch))


def points_of(mode: str, course: Course, setting: KillSetting) -> list[str]:
    """Names of all points of an undisturbed run, in order."""
    recorder = PointRecorder()
    with new_pair(course, setting.scratch, template=setting.template) as pair:
        target = pair.folder / "points.json"
        keep = lambda: target.write_text(json.dumps(recorder.names))  # noqa: E731
        wait_for([pair.start(mode, recorder, at_end=keep), pair.start(OTHER[mode])])
        if problems := pair.problems():
            raise SystemExit(f"torture: an undisturbed pair failed: {problems}\n{pair.tail()}")
        names: list[str] = json.loads(target.read_text())
    return names


def points_of_resumed(mode: str, point: str, course: Course, setting: KillSetting) -> list[str]:
    """Names of the points of a run that goes on where one was killed at `point`, up to its first step."""
    recorder = PointRecorder()
    with new_pair(course, setting.scratch, template=setting.template) as pair:
        survivor, reached = _start_and_kill(pair, Kill(mode, point, True, course))
        target = pair.folder / "points.json"
        child = pair.start(mode, recorder, at_end=lambda: target.write_text(json.dumps(recorder.names)))
        wait_for([child, survivor])
        if not reached or not target.exists():
            raise SystemExit(f"torture: {mode} was not killed at {point}, or not resumed\n{pair.tail()}")
        names: list[str] = json.loads(target.read_text())
    return [name for name in names if name.startswith("0/")]


def thinned(names: list[str], share: float, kind: Callable[[str], object]) -> list[str]:
    """That share of the names, evenly spread, and the first of each kind."""
    kept, seen, due = [], set(), 0.0
    for name in names:
        due += share
        if due >= 1 or kind(name) not in seen:
            kept.append(name)
        due -= due >= 1
        seen.add(kind(name))
    return kept


def operation(name: str) -> tuple[str, str]:
    """Phase, operation and moment of a point."""
    _, phase, rest = name.split("/", 2)
    return phase, rest.partition(":")[2]


def one_of_each_phase(names: list[str]) -> list[str]:
    """A point in the middle of each phase."""
    phases: dict[str, list[str]] = {}
    for name in names:
        phases.setdefault(name.split("/")[1], []).append(name)
    return [of_phase[len(of_phase) // 2] for of_phase in phases.values()]


def plan_kills(setting: KillSetting, share: float, *, quick: bool = False) -> list[Kill]:
    """All trials, both variants taking turns.

    Args:
        share: of the points; of each operation in each phase at least the first with each moment.
        quick: one point of each phase instead.
    """

    def chosen(names: list[str]) -> list[str]:
        return one_of_each_phase(names) if quick else thinned(names, share, operation)

    kills: list[Kill] = []
    for course in (VALIDATED,) if quick else (COURSE, VALIDATED):
        for mode in MODES:
            names = chosen(points_of(mode, course, setting))
            kills += [Kill(mode, name, number % 2 == 0, course) for number, name in enumerate(names)]
    for mode in MODES:
        first = {"ckpt": "3/publish rollout/2:write@half", "rollout": "3/fill ckpt/3:open@before"}[mode]
        names = chosen(points_of_resumed(mode, first, COURSE, setting))
        kills += [Kill(mode, first, number % 2 == 1, COURSE, again) for number, again in enumerate(names)]
    return kills


def try_kill(kill: Kill, setting: KillSetting) -> dict[str, Any]:
    """One trial, judged."""
    with new_pair(kill.course, setting.scratch, template=setting.template) as pair:
        result = {"name": kill.name, "phase": kill.phase, "mode": kill.mode, "reached": True}
        survivor, reached = _start_and_kill(pair, kill)
        if not reached:
            result["reached"] = False
        if not kill.alone:
            survivor.kill()
        problems = pair.audit(running=kill.alone, earlier=setting.earlier)
        finished = kill.alone and survivor.status is not None
        children = pair.resume((kill.mode,) if kill.alone else MODES)
        if not wait_for([*children.values(), *([] if finished else [survivor])]):
            problems.append("hung")
        problems += pair.problems()
        problems += pair.audit(earlier=setting.earlier)
        problems += [f"left over: {name}" for name in pair.left_over()]
        if problems:
            result |= {"problems": problems, "log": pair.tail()}
        return result


def _start_and_kill(pair: ToyPair, kill: Kill) -> tuple[Any, bool]:
    """The other run, and whether all points were reached."""
    before = pair.claims(OTHER[kill.mode])
    victim = pair.start(kill.mode, Killer(kill.point))
    survivor = pair.start(OTHER[kill.mode])
    wait_for([victim])
    if kill.alone:  # else it would be no survivor yet, and the two would start at once, which the claims are killed in
        wait_until(lambda: pair.claims(OTHER[kill.mode]) > before or survivor.poll() is not None)
    reached = victim.status == -signal.SIGKILL
    if reached and kill.again:
        victim = pair.start(kill.mode, Killer(kill.again))
        wait_for([victim])
        reached = victim.status == -signal.SIGKILL
    return survivor, reached


def run_kills(
    setting: KillSetting, kills: Iterable[Kill], workers: int, tell: Any = lambda line: None
) -> list[dict[str, Any]]:
    """All trials, a few at a time."""
    tasks = [Task(partial(try_kill, kill, setting), kill.name) for kill in kills]
    return in_parallel(tasks, workers, setting.scratch, tell)


def summary(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Figures of a campaign."""
    reached = [result for result in results if result.get("reached", True)]
    wrong = [result for result in reached if "problems" in result or "broken" in result]
    phases: dict[str, dict[str, int]] = {}
    for result in reached:
        counts = phases.setdefault(result.get("phase", "?"), {"kill_points": 0, "survived": 0})
        counts["kill_points"] += 1
        counts["survived"] += result not in wrong
    return {
        "kill_points": len(reached),
        "survived": len(reached) - len(wrong),
        "lost": len(wrong),
        "not_reached": len(results) - len(reached),
        "phases": phases,
        "failures": wrong,
    }
