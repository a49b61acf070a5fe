# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence of two runs that never were, to try comparison and report on: any number of steps, rows and tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.evidence.packing import round_to_24_bits
from verl.crosscheck.evidence.row_identity import row_ids
from verl.crosscheck.evidence.step import MASK, ROLLOUT, TRAIN, StepEvidence, TensorChange
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.settings import Detail

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
        faulty_from: global step in which it begins to act.
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
    acts = plan.fault if step >= plan.faulty_from else ""
    responses, ids = responses_of_step(plan, step)
    lengths = np.asarray([len(each) for each in responses], np.int32)
    total = int(lengths.sum())
    train = -random.gamma(0.6, 1.1, total).astype(np.float32)
    apart = 0.09 if acts == STALE else plan.noise
    rollout = np.minimum(train + apart * random.standard_normal(total), 0).astype(np.float32)
    wrong = (train + 0.25 * random.standard_normal(total)).astype(np.float32)
    trains = {mode: wrong if acts == FORWARD and mode == plan.suspect else train for mode in ("ckpt", "rollout")}
    mask = np.ones(total, np.bool_)
    rows = _rows(random, lengths, rollout, train)

    def of(mode: str) -> StepEvidence:
        own = {**rows, "train_sum": _sums(trains[mode], lengths)}
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
