# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of runs for the benchmark of faults: what each plants in which step, and what became of it.

A pair's steps are experiments of their own, since weights are equal again after each; so one pair tries a fault in each
step, after a healthy one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recipe.crosscheck import demo_task, launch, make_data
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.faults.catalogue import CATALOGUE, Fault
from verl.crosscheck.diagnosis.findings import StepComparison
from verl.crosscheck.diagnosis.findings_json import comparison_from_json
from verl.crosscheck.evidence import files
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.layout import Layout, RunNames

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

MODES = {"a": "ckpt", "b": "rollout"}
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
    """What a pair has done."""

    play: Play
    comparisons: dict[int, StepComparison]
    """By step."""
    log: str
    """Of run A."""
    share: Path
    took_s: float

    @property
    def sampling(self) -> list[Mapping[str, Any]]:
        """How both runs sampled and trained."""
        return [files.load(run_names(self.share, mode).evidence(1)).sampling for mode in MODES.values()]

    @property
    def reference(self) -> list[StepComparison]:
        """The steps without a fault."""
        return [self.comparisons[step] for step in self.play.healthy_steps()]


def perform(play: Play, out: Path, limit_s: float = 900.0) -> Played:
    """Run both runs of a pair to their end.

    Raises:
        RunFailed: one of them failed, or had not ended in time.
    """
    start_s = time.monotonic()
    data = make_data.write(out / f"data_{play.prompts}", train_rows=play.prompts * LONGEST, val_rows=8)
    folder = out / play.name
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
    share = folder / "share"
    return Played(play, read_comparisons(share), log, share, time.monotonic() - start_s)


def _of(play: Play, name: str) -> plans.FaultPlan:
    return play.plan if name == "a" else plans.FaultPlan()


def _overrides(play: Play, name: str, folder: Path, data: make_data.DataFiles) -> list[str]:
    return [
        *demo_task.overrides(data, samples=SAMPLES),
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


def run_names(share: Path, mode: str) -> RunNames:
    """Of the first run of a mode in a directory's first session."""
    return RunNames(layout.run_folder(Layout(share).session(1), mode, 1))


def read_comparisons(share: Path) -> dict[int, StepComparison]:
    """What run A found in each step, by step."""
    names = run_names(share, MODES["a"])
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
