# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""An exchange directory with the evidence of two runs that never were, as real runs would have left it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recipe.crosscheck.synthetic_evidence import PROMPT, SyntheticPlan, evidence_of_step, responses_of_step
from verl.crosscheck.clock import SystemClock
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings_json import to_json
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence import files
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.exchange.publish import publish_file, publish_json
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.exchange.session.cards import Card, Start
from verl.crosscheck.exchange.session.own_run import OwnRun, open_run
from verl.crosscheck.exchange.session.processes import this_process

Runs = dict[str, OwnRun]


def start_runs(root: Path, **changes: Any) -> Runs:
    """Two runs of a new session, by mode.

    Args:
        changes: of the configuration of the run in mode `ckpt`.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return {mode: start_run(root, mode, **(changes if mode == "ckpt" else {})) for mode in ("ckpt", "rollout")}


def start_run(root: Path, mode: str, start: Start | None = None, **changes: Any) -> OwnRun:
    """One run; takes the place of the last one of its mode, if that has ended."""
    config = {
        "trainer": {"share_data": mode, "share_data_dir": str(root), "total_training_steps": 8},
        "actor_rollout_ref": {"rollout": {"name": "vllm", "n": 4, **changes}},
        "data": {"train_batch_size": 64},
    }
    card = Card(
        run_id=f"{mode}-synthetic-{len(list(root.rglob('card.json')))}",
        session_id="",
        mode=mode,
        host="npu-7" if mode == "ckpt" else "gpu-1",
        process=this_process(),
        started="2026-11-29 12:00:00 +0000",
        versions={"verl-crosscheck": "0.1.0", "torch": "2.8.0" if mode == "ckpt" else "2.9.0"},
        device="npu" if mode == "ckpt" else "cuda",
        world_size=8,
        strategy="fsdp2",
        start=start or Start(),
        others_before=0,
        config=config,
    )
    return open_run(root, card, silence_s=20.0, clock=SystemClock())


def record_steps(
    runs: Runs, plan: SyntheticPlan, steps: Iterable[int], *, logged: bool = True, rollouts: bool = False
) -> None:
    """Leave what the runs would have left of these steps.

    Args:
        logged: also the comparison that the run in mode `ckpt` makes.
        rollouts: also the rollout that was trained on.
    """
    names = {mode: run.place.names for mode, run in runs.items()}
    for folder in (*(each.all_evidence for each in names.values()), names["ckpt"].comparisons):
        folder.mkdir(exist_ok=True)
    for step in steps:
        sampler, taker = (replace(each, run_id=runs[each.mode].place.run_id) for each in evidence_of_step(plan, step))
        for each in (sampler, taker):
            files.save(names[each.mode].evidence(step), each)
        if logged:
            found = compare_step(sampler, taker, limits_for(sampler.sampling, taker.sampling))
            publish_json(names["ckpt"].comparison(step), to_json(found), replace=True)
        if rollouts:
            _publish_rollout(runs["ckpt"], plan, step)


def _publish_rollout(run: OwnRun, plan: SyntheticPlan, step: int) -> None:
    responses, _ = responses_of_step(plan, step)
    width = max(map(len, responses))
    columns = {name: np.zeros((len(responses), width), np.int64) for name in ("responses", "mask")}
    for at, each in enumerate(reversed(responses)):  # in another order than evidence has
        columns["responses"][at, : len(each)], columns["mask"][at, : len(each)] = each, 1
    prompts = np.tile(PROMPT.astype(np.int64), (len(responses), 1))
    tensors = {
        "prompts": torch.from_numpy(prompts),
        "responses": torch.from_numpy(columns["responses"]),
        "attention_mask": torch.from_numpy(np.concatenate([np.ones_like(prompts), columns["mask"]], axis=1)),
    }
    about = {"kind": "rollout", "index": step - 1, "call": "training", "global_step": step, **run.place.stamp}
    path = Layout(run.place.root).rollout(step - 1)
    publish_file(path, lambda file: write_record(file, Record(tensors=tensors, about=about)))
