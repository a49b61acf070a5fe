# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's two real runs, one of them killed at a named moment and started again; compared with an undisturbed pair.

    python -m torture.interrupted [--out DIR]

Kills each side while it saves, waits and loads, in turn, and writes what came of it as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from recipe.crosscheck import launch
from recipe.crosscheck.data import DataFiles, task_overrides, write_data
from torture import killing

ROOT = Path(__file__).resolve().parents[2]
MODES = {"a": "ckpt", "b": "rollout"}
STEPS = 4
KILLED_INDEX = 2
"""In the third step, when each run has saved checkpoints of its own."""
LIMIT_S = 420.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Case:
    """Which run is killed when.

    Args:
        alone: whether the killed run is started again beside the other one, which waits; else both are ended first.
    """

    killed: str
    moment: str
    alone: bool

    @property
    def name(self) -> str:
        again = "started again alone" if self.alone else "both started again"
        return f"{self.killed.upper()} ({MODES[self.killed]}) killed while {self.moment}, {again}"


CASES = (
    Case("a", "saving rollout", alone=True),
    Case("a", "waiting for ckpt", alone=False),
    Case("a", "loading ckpt", alone=True),
    Case("b", "saving ckpt", alone=False),
    Case("b", "waiting for rollout", alone=True),
    Case("b", "loading rollout", alone=False),
)


@dataclass(frozen=True)
class CaseOutcome:
    """What came of a case. `different` names metrics that are not those of the undisturbed pair."""

    case: str
    different: list[str]
    resumed_at: dict[str, int]
    """Step after which each run that was started again went on."""
    duration_s: float


Overrides = Mapping[str, Sequence[str]]
"""Hydra overrides of each run, by its name."""


class RunPair:
    """Two runs of the demo's task in a folder, with own checkpoints at each step."""

    def __init__(self, folder: Path, data: DataFiles, stack: ExitStack, own: Overrides | None = None) -> None:
        self.folder, self._data, self._stack = folder, data, stack
        self._own = own or {}
        self._starts = dict.fromkeys(MODES, 0)

    def start(self, name: str, *extra: str) -> launch.LaunchedRun:
        """Start run "a" or "b", again if it was before: then it resumes."""
        self._starts[name] += 1
        overrides = [
            *task_overrides(self._data),
            f"trainer.experiment_name={name}",
            f"trainer.total_training_steps={STEPS}",
            "trainer.save_freq=1",
            launch.override("trainer.default_local_dir", self.folder / f"{name}_checkpoints"),
            f"trainer.share_data={MODES[name]}",
            launch.override("trainer.share_data_dir", self.folder / "share"),
            "trainer.share_data_timeout_s=300",
            *self._own.get(name, ()),
            *extra,
        ]
        env = {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"}  # for `recipe` and `torture`
        return self._stack.enter_context(
            launch.running(self.folder / f"{name}{self._starts[name]}", overrides, env=env)
        )

    def steps(self, name: str) -> dict[int, dict[str, float]]:
        """Repeatable metrics by step, of the last start that did a step."""
        found: dict[int, dict[str, float]] = {}
        for start in range(1, self._starts[name] + 1):
            steps = launch.read_steps(launch.metrics_path(self.folder / f"{name}{start}"))
            found |= {step.number: step.repeatable for step in steps}
        return found

    def first_step(self, name: str) -> int:
        """First step of the last start."""
        steps = launch.read_steps(launch.metrics_path(self.folder / f"{name}{self._starts[name]}"))
        return steps[0].number


Numbers = dict[str, dict[int, dict[str, float]]]
"""Repeatable metrics of each run, by step."""


def undisturbed(folder: Path, data: DataFiles, own: Overrides | None = None) -> Numbers:
    """Metrics of both runs by step, with nobody killed."""
    with ExitStack() as stack:
        pair = RunPair(folder, data, stack, own)
        for run in [pair.start(name) for name in MODES]:
            run.wait(LIMIT_S)
        return {name: pair.steps(name) for name in MODES}


def disturbed(
    folder: Path, data: DataFiles, case: Case, expected: Numbers, own: Overrides | None = None
) -> CaseOutcome:
    """Kill, start again, wait for the end, and compare.

    Raises:
        launch.RunFailed: a run that should have reached its end did not.
    """
    start_s = time.monotonic()
    found, resumed_at = kill_and_resume(folder, data, case, own)
    return CaseOutcome(case.name, sorted(set(_differences(found, expected))), resumed_at, _since(start_s))


def kill_and_resume(
    folder: Path, data: DataFiles, case: Case, own: Overrides | None = None, later: Sequence[str] = ()
) -> tuple[Numbers, dict[str, int]]:
    """What both runs did in the end, and the step after which each run that was started again went on.

    Args:
        own: overrides of each run.
        later: further ones of what is started again.

    Raises:
        launch.RunFailed: a run that should have reached its end did not.
    """
    with ExitStack() as stack:
        pair = RunPair(folder, data, stack, own)
        killed = pair.start(case.killed, *killing.overrides(case.moment, KILLED_INDEX))
        other_name = "b" if case.killed == "a" else "a"
        other = pair.start(other_name)
        _until_dead(killed)
        again = [case.killed]
        if not case.alone:
            os.kill(other.pid, signal.SIGKILL)
            other.close()
            again.append(other_name)
        runs = [pair.start(name, *later) for name in again]
        for run in runs if len(runs) == len(MODES) else [*runs, other]:
            run.wait(LIMIT_S)
        return {name: pair.steps(name) for name in MODES}, {name: pair.first_step(name) - 1 for name in again}


def _until_dead(run: launch.LaunchedRun) -> None:
    deadline_s = time.monotonic() + LIMIT_S
    while (status := run.poll()) is None:
        if time.monotonic() > deadline_s:
            raise launch.RunFailed(f"{run.folder}: not killed within {LIMIT_S:.0f} s")
        time.sleep(_POLL_S)
    if status != -signal.SIGKILL:
        raise launch.RunFailed(f"{run.folder}: ended with {status} before its moment came:\n{run.log()[-3000:]}")
    run.close()


def _differences(found: Numbers, expected: Numbers) -> Iterator[str]:
    for name, steps in expected.items():
        if found[name].keys() != steps.keys():
            yield f"{name}: steps {sorted(found[name])}"
        for step, values in steps.items():
            for key, value in values.items():
                if found[name].get(step, {}).get(key) != value:
                    yield f"{name}: {key} in step {step}"


def _since(start_s: float) -> float:
    return round(time.monotonic() - start_s, 1)


def run_cases(scratch: Path, cases: tuple[Case, ...] = CASES) -> list[CaseOutcome]:
    """All cases, one after the other, each in a folder of its own that goes when it went well."""
    data = write_data(scratch / "data")
    expected = undisturbed(scratch / "undisturbed", data)
    outcomes = []
    for number, case in enumerate(cases):
        folder = scratch / f"case{number}"
        outcomes.append(disturbed(folder, data, case, expected))
        print(f"{'same' if not outcomes[-1].different else 'DIFFERENT'}: {case.name}", flush=True)
        if not outcomes[-1].different:
            shutil.rmtree(folder)
    return outcomes


def main(arguments: list[str] | None = None) -> int:
    """Run all cases; the exit status is 0 if no metric of any differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="file for the outcomes, as JSON")
    args = parser.parse_args(arguments)
    scratch = Path(tempfile.mkdtemp(prefix="vcci"))
    outcomes = run_cases(scratch)
    if args.out:
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=2) + "\n", encoding="utf-8")
    wrong = [outcome for outcome in outcomes if outcome.different]
    if not wrong:
        shutil.rmtree(scratch)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
