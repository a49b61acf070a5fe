# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of runs for the benchmark of faults: what each plants in which step, and what became of it.

A pair's steps are experiments of their own, since weights are equal again after each; so one pair tries a fault in each
step, after a healthy one.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from recipe.crosscheck import launch
from recipe.crosscheck.bench.harness import BenchFailed, BenchResult, console
from recipe.crosscheck.bench.synthetic import FORWARD, GRADIENT, STALE, SyntheticPlan, record_steps, start_runs
from recipe.crosscheck.data import DataFiles, task_overrides, write_data
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.faults.catalogue import CATALOGUE, Fault
from verl.crosscheck.diagnosis.findings import Phase, StepComparison
from verl.crosscheck.diagnosis.findings_json import comparison_from_json
from verl.crosscheck.diagnosis.thresholds import Thresholds, limits_for
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.evidence import files
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.layout import Layout, RunNames
from verl.crosscheck.exchange.session.run_files import read_card
from verl.crosscheck.settings import ShareMode

PROMPTS, SAMPLES = 64, 4
"""A step's prompts, and responses to each."""
MANY_PROMPTS = 192
"""Where a fault is told from chance alone: with fewer than about 500 responses chance hides a wrong temperature."""
TOLD_FROM_CHANCE = frozenset({"temperature", "top_k"})
"""Faults that leave every log-prob right."""

LONGEST = 8
"""Steps of a pair."""

NEW_WORKERS = "trainer.use_legacy_worker_impl=disable"
CRITIC = ("algorithm.adv_estimator=gae", "critic.optim.lr=1e-4")

MODES = {"a": ShareMode.CKPT, "b": ShareMode.ROLLOUT}
"""Scenario 1."""


@dataclass(frozen=True)
class Play:
    """A pair of runs.

    Args:
        name: of its folder.
        plan: what is planted in run A.
        both, a_only: overrides.
        steps: how many steps it takes.
        prompts: in a step.
        engine: of run A, its `actor_rollout_ref.rollout.name`; run B's is `hf` unless `both` says otherwise.
    """

    name: str
    plan: plans.FaultPlan = field(default_factory=plans.FaultPlan)
    both: tuple[str, ...] = ()
    a_only: tuple[str, ...] = ()
    steps: int = LONGEST
    prompts: int = PROMPTS
    engine: str = "hf"

    def healthy_steps(self) -> list[int]:
        return [step for step in range(1, self.steps + 1) if not self.plan.acting(step)]


@dataclass(frozen=True)
class Played:
    """What a pair has done.

    Args:
        names: files of each run, by its mode.
        comparisons: what run A found, by step.
        log: of run A.
    """

    play: Play
    names: Mapping[str, RunNames]
    comparisons: dict[int, StepComparison]
    log: str
    share: Path
    took_s: float

    @property
    def sampling(self) -> list[Mapping[str, Any]]:
        """How both runs sampled and trained."""
        return [files.load(self.names[mode].evidence(1)).sampling for mode in MODES.values()]

    @property
    def limits(self) -> Thresholds:
        """Those that the runs themselves went by."""
        return limits_for(*self.sampling)

    @property
    def reference(self) -> list[StepComparison]:
        """The steps without a fault."""
        return [self.comparisons[step] for step in self.play.healthy_steps()]


def options(parser: ArgumentParser) -> None:
    """Of a benchmark that plays pairs."""
    parser.add_argument("--made-up", action="store_true", help="start no runs: judge made-up evidence in their place")


def player(args: Namespace, result: BenchResult) -> Callable[[Play], Played]:
    """How a benchmark plays a pair, in the folder of its result; says which, and how long it took."""
    take = make_up if args.made_up else perform

    def play_one(play: Play) -> Played:
        console().print(f"{play.name}: {play.steps} steps, planted: {play.plan or 'nothing'}", markup=False)
        played = take(play, result.folder)
        console().print(f"  {played.took_s:.0f} s")
        return played

    return play_one


def perform(play: Play, out: Path, limit_s: float = 900.0) -> Played:
    """Run both runs of a pair to their end.

    Raises:
        RunFailed: one of them failed, or had not ended in time.
        BenchFailed: they have ended, and no session has them.
    """
    start_s = time.monotonic()
    data = write_data(out / f"data_{play.prompts}", train_rows=play.prompts * LONGEST, val_rows=8)
    folder = out / play.name
    share = folder / "share"
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(
                launch.running(
                    folder / name, _overrides(play, name, folder, data), env=plans.environment(_of(play, name))
                )
            )
            for name in MODES
        }
        for run in runs.values():
            run.wait(limit_s)
        log = runs["a"].log()
        names: dict[str, RunNames] = {mode: joined(share, mode, runs[name].pid) for name, mode in MODES.items()}
    return Played(play, names, read_comparisons(names[MODES["a"]]), log, share, time.monotonic() - start_s)


def joined(share: Path, mode: ShareMode, pid: int) -> RunNames:
    """Files of the run whose main program had this pid, in the session that it joined.

    Raises:
        BenchFailed: there is none.
    """
    sessions = Layout(share).sessions
    with suppress(FileNotFoundError):
        for number in reversed(layout.session_numbers(path.name for path in sessions.iterdir())):
            session = Layout(share).session(number)
            for run in layout.run_numbers((path.name for path in layout.runs_folder(session).iterdir()), mode):
                names = RunNames(layout.run_folder(session, mode, run))
                with suppress(CrossCheckError, OSError):
                    if read_card(names).process["pid"] == pid:
                        return names
    raise BenchFailed(f"{share}: no session has a run of mode {mode} with pid {pid}; the run's log says why")


STAND_INS = {Phase.ROLLOUT: STALE, Phase.TRAINING_FORWARD: FORWARD, Phase.TRAINING_UPDATE: GRADIENT}
"""What made-up evidence can show for a fault, by its phase."""


def make_up(play: Play, out: Path) -> Played:
    """As `perform`, of runs that never were: each fault shows as its phase's stand-in."""
    start_s = time.monotonic()
    share = out / play.name / "share"
    runs = start_runs(share)
    healthy = SyntheticPlan(rows=play.prompts * SAMPLES, fault="", faulty_from=1)
    log = ""
    for step in range(1, play.steps + 1):
        acting = [each.fault for each in play.plan.faults if each.acts_in(step)]
        log += "".join(f"planted fault {fault.name} acts in step {step}\n" for fault in acting)
        plan = replace(healthy, fault=STAND_INS[acting[0].phase]) if acting else healthy
        record_steps(runs, plan, [step])
    for run in runs.values():
        run.end(None)
    names = {mode: run.slot.names for mode, run in runs.items()}
    return Played(play, names, read_comparisons(names[MODES["a"]]), log, share, time.monotonic() - start_s)


def _of(play: Play, name: str) -> plans.FaultPlan:
    return play.plan if name == "a" else plans.FaultPlan()


def _overrides(play: Play, name: str, folder: Path, data: DataFiles) -> list[str]:
    return [
        *task_overrides(data, samples=SAMPLES),
        f"data.train_batch_size={play.prompts}",
        "actor_rollout_ref.rollout.max_num_seqs=256",
        *plans.settings(play.plan),
        *plans.overrides(_of(play, name), play.engine),
        f"trainer.experiment_name={name}",
        f"trainer.total_training_steps={play.steps}",
        f"trainer.share_data={MODES[name]}",
        launch.override("trainer.share_data_dir", folder / "share"),
        "trainer.share_data_timeout_s=600",
        *play.both,
        *((f"actor_rollout_ref.rollout.name={play.engine}", *play.a_only) if name == "a" else ()),
    ]


def read_comparisons(names: RunNames) -> dict[int, StepComparison]:
    """What a run found, by step."""
    steps = layout.steps(path.name for path in names.comparisons.iterdir())
    return {step: comparison_from_json(json.loads(names.comparison(step).read_text())) for step in steps}


def one_a_step(prefix: str, faults: Sequence[Fault], both: tuple[str, ...] = ()) -> Iterator[Play]:
    """Pairs that plant these faults, each in a step of its own; those that need other settings, or more responses, are
    apart."""
    kinds = [(fault.settings, fault.name in TOLD_FROM_CHANCE) for fault in faults]
    for settings, chance in dict.fromkeys(kinds):
        alike = [fault for fault, kind in zip(faults, kinds, strict=True) if kind == (settings, chance)]
        label = "chance" if chance else "varied" if settings else "usual"
        for number, start in enumerate(range(0, len(alike), LONGEST - 1), start=1):
            chosen = alike[start : start + LONGEST - 1]
            text = ",".join(f"{fault.name}@{step}" for step, fault in enumerate(chosen, start=2))
            prompts = MANY_PROMPTS if chance else PROMPTS
            steps = max(len(chosen) + 1, 3)
            yield Play(f"{prefix}_{label}_{number}", plans.parse(text), both, steps=steps, prompts=prompts)


def all_faults() -> list[Fault]:
    return list(CATALOGUE.values())
