# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence of two runs that never were, to try comparison and report on: any number of steps, rows and tokens; and an
exchange directory that holds it as real runs would have left it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.clock import SystemClock
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings_json import to_json
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.files import round_to_24_bits
from verl.crosscheck.evidence.row_identity import identities, row_ids
from verl.crosscheck.evidence.step import MASK, ROLLOUT, TRAIN, StepEvidence, TensorChange
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.exchange.publish import publish_file, publish_json
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.exchange.session.liveness import this_process
from verl.crosscheck.exchange.session.own_run import OwnRun, open_run
from verl.crosscheck.exchange.session.run_files import Card, Start
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.settings import Detail, ShareMode

LAYERS = ("input_layernorm", "self_attn.q_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.down_proj")
STALE, FORWARD, GRADIENT = "stale_weights", "wrong_mask", "layer_gradient_zeroed"
"""Faults of run A: in its rollout engine, in its forward pass, in its update."""


@dataclass(frozen=True)
class SyntheticPlan:
    """What to make up.

    Args:
        rows: responses of a step.
        tokens: of a response, at most; lengths vary.
        fault: one of this module's, or empty.
        faulty_from: global step in which it begins to act; stale weights then act in every second step, as where a
            sync is missed now and then, and in each step if they do from the first on.
        noise: standard deviation by which log-probs of two healthy engines differ.
        suspect: mode of run A, which has the fault: `ckpt` or `rollout`.
    """

    rows: int = 64
    tokens: int = 24
    fault: str = STALE
    faulty_from: int = 3
    noise: float = 0.012
    layers: int = 4
    suspect: str = "ckpt"
    seed: int = 0


def evidence_of_step(plan: SyntheticPlan, step: int) -> tuple[StepEvidence, StepEvidence]:
    """Of the run in mode `ckpt`, which samples, and of the one in mode `rollout`, which takes."""
    random = np.random.default_rng((plan.seed, step))
    since = step - plan.faulty_from
    missed = plan.fault != STALE or plan.faulty_from == 1 or since % 2 == 0
    acts = plan.fault if since >= 0 and missed else ""
    responses, ids = responses_of_step(plan, step)
    lengths = np.asarray([len(each) for each in responses], np.int32)
    total = int(lengths.sum())
    train = -random.gamma(0.6, 1.1, total).astype(np.float32)
    apart = 0.09 if acts == STALE else plan.noise
    rollout = np.minimum(train + apart * random.standard_normal(total), 0).astype(np.float32)
    wrong = (train + 0.25 * random.standard_normal(total)).astype(np.float32)
    trains = {mode: wrong if acts == FORWARD and mode == plan.suspect else train for mode in ("ckpt", "rollout")}
    mask = np.ones(total, np.bool_)
    rows = {**_rows(random, lengths, rollout, train), **_identities(responses, rollout)}

    def of(mode: str) -> StepEvidence:
        own = {**rows, "train_sum": _sums(trains[mode], lengths)}
        if mode == ShareMode.ROLLOUT.value:
            own["own_reward"] = rows["reward"]
        return StepEvidence(
            mode=mode,
            run_id=f"{mode}-run",
            global_step=step,
            update_index=step - 1,
            detail=Detail.TOKENS,
            batch_rows=plan.rows,
            row_ids=ids,
            lengths=lengths,
            rows=own,
            tokens={ROLLOUT: round_to_24_bits(rollout), TRAIN: round_to_24_bits(trains[mode]), MASK: mask},
            metrics=_metrics(step, own, off=acts == GRADIENT and mode == plan.suspect),
            sampling=_SAMPLING | {"max_tokens": plan.tokens},
            changes=_changes(plan, step, mode, acts),
            missing={"weights": because(ReasonCode.NO_DIGESTS)},
        )

    return of("ckpt"), of("rollout")


PROMPT = np.asarray([5, 7, 9], np.int32)
"""Token ids of the prompt of every row."""


def responses_of_step(plan: SyntheticPlan, step: int) -> tuple[list[npt.NDArray[np.int32]], npt.NDArray[np.uint64]]:
    """Token ids of the responses, and the identity of each row; in the order of identities."""
    random = np.random.default_rng((plan.seed, step, 3))
    lengths = random.integers(max(1, plan.tokens // 2), plan.tokens + 1, plan.rows)
    responses = [random.integers(3, 32, length, dtype=np.int32) for length in lengths]
    ids = row_ids([PROMPT] * plan.rows, responses)
    order = np.argsort(ids)
    return [responses[at] for at in order], ids[order]


_SAMPLING: dict[str, Any] = {
    "engine": "vllm",
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": -1,
    "stop_token_ids": [2],
    "rollout_dtype": "bfloat16",
    "train_dtype": "bfloat16",
    "moe": False,
}


def _rows(
    random: np.random.Generator, lengths: npt.NDArray[np.int32], rollout: Any, train: Any
) -> dict[str, npt.NDArray[Any]]:
    entropy = -_sums(train, lengths) + 0.4 * random.standard_normal(len(lengths)) * np.sqrt(lengths)
    advantage = random.standard_normal(len(lengths)) * lengths
    return {
        "mask_tokens": lengths.copy(),
        "rollout_sum": _sums(rollout, lengths),
        "entropy_sum": entropy,
        "reward": random.integers(0, 2, len(lengths)).astype(np.float64),
        "advantage_sum": advantage,
        "advantage_abs_sum": np.abs(advantage),
        "last_token": np.full(len(lengths), 2, np.int64),
    }


def _identities(responses: list[npt.NDArray[np.int32]], rollout: Any) -> dict[str, npt.NDArray[Any]]:
    starts = np.cumsum([0, *map(len, responses)])[:-1]
    return {
        "prompt_id": identities([PROMPT] * len(responses)),
        "response_id": identities(responses),
        "first_token": np.asarray([each[0] for each in responses], np.int64),
        "first_rollout": rollout[starts].astype(np.float64),
        "stops_inside": np.zeros(len(responses), np.int32),
    }


def _sums(values: npt.NDArray[np.float32], lengths: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    starts = np.cumsum(lengths) - lengths
    return np.add.reduceat(values.astype(np.float64), starts)


def _metrics(step: int, rows: dict[str, npt.NDArray[Any]], *, off: bool) -> dict[str, float]:
    return {
        "actor/grad_norm": (0.6 + 0.02 * step) * (1.4 if off else 1.0),
        "actor/pg_loss": 0.02 - 0.001 * step,
        "actor/lr": 1e-6,
        "reward_mean": float(rows["reward"].mean()) + 0.01 * step,
        "response_length_mean": float(rows["mask_tokens"].mean()),
        "entropy_mean": float(rows["entropy_sum"].sum() / rows["mask_tokens"].sum()),
    }


def _changes(plan: SyntheticPlan, step: int, mode: str, acts: str) -> dict[str, TensorChange]:
    random = np.random.default_rng((plan.seed, step, 7))
    names = [f"model.layers.{layer}.{part}.weight" for layer in range(plan.layers) for part in LAYERS]
    found = {}
    for name in ("model.embed_tokens.weight", *names, "model.norm.weight", "lm_head.weight"):
        size = float(1e-3 * random.uniform(0.5, 2))
        off = 1.0 if acts == GRADIENT and ".layers.2.mlp" in name else float(random.uniform(0.01, 0.08))
        measured = {"other": size, "apart": off * size} if mode == "ckpt" else {}
        found[name] = TensorChange(own=size, **measured)
    return found


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
        mode=ShareMode(mode),
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
    names = {mode: run.slot.names for mode, run in runs.items()}
    for folder in (*(each.all_evidence for each in names.values()), names["ckpt"].comparisons):
        folder.mkdir(exist_ok=True)
    for step in steps:
        sampler, taker = (replace(each, run_id=runs[each.mode].slot.run_id) for each in evidence_of_step(plan, step))
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
    about = {"kind": "rollout", "index": step - 1, "call": "training", "global_step": step, **run.slot.stamp}
    path = Layout(run.slot.root).rollout(step - 1)
    publish_file(path, lambda file: write_record(file, Record(tensors=tensors, about=about)))
