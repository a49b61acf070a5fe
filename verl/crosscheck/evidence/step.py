# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What one run remembers of one step: numbers of its rows and tokens, of its update, and what is missing and why.

Plain data, numpy only. `gather` makes it from a batch, `files` keeps it, `diagnosis` compares that of two runs.

Shapes: R rows kept, in ascending order of `row_ids`; L their response tokens, row after row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.reasons import Reason
from verl.crosscheck.settings import Detail

__all__ = ["MASK", "REF", "ROLLOUT", "TRAIN", "Detail", "StepEvidence", "TensorChange"]


ROLLOUT, TRAIN, REF, MASK = "rollout", "train", "ref", "mask"
"""Columns of `StepEvidence.tokens`: log-prob by the engine that sampled, by the training engine, by the reference
policy (float32 [L]), and whether the token is trained on (bool [L])."""


@dataclass(frozen=True)
class TensorChange:
    """How far an update moved one tensor of the actor, summed over ranks. L2 norms, of float64 sums."""

    own: float
    """Norm of this run's own change, own weights after the update less those before it."""
    other: float | None = None
    """Norm of the other run's change; known where its weights are loaded over the own ones (mode `ckpt`)."""
    apart: float | None = None
    """Norm of the difference of the two changes; None if it was not measured."""


@dataclass(frozen=True, eq=False)
class StepEvidence:
    """One run's evidence of one step. Absence is told: what is not here has its reason in `missing`."""

    mode: str
    """`ckpt` or `rollout`."""
    run_id: str
    global_step: int
    update_index: int
    """Which actor update of the session it was, from 0; the number of `ckpt_{index}`."""
    detail: Detail
    batch_rows: int
    """Rows of the whole batch, of which R are kept."""
    row_ids: npt.NDArray[np.uint64]
    """[R] identity of each row: prompt and response by token, equal rows told apart by a count. Does not depend on the
    order of the batch, so rows of two runs are matched by it."""
    lengths: npt.NDArray[np.int32]
    """[R] response tokens of each row, masked ones included; sums to L in detail `tokens`."""
    rows: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """[R] each, by name: `mask_tokens` (trained-on tokens), `rollout_sum`, `train_sum`, `ref_sum` (sums of log-probs
    over the mask), `entropy_sum` (of the training engine's distribution, over the mask, at the temperature that the
    log-probs have), `reward`, `advantage_sum`, `advantage_abs_sum` (over the mask), `own_reward`
    (by the own reward function of a run that takes rollouts; NaN in rows not scored), `last_token` and `first_token`
    (ids of response tokens, -1 without one), `first_rollout` (log-prob of the first token by the engine that sampled),
    `stops_inside` (stop tokens before the last token), `prompt_id`, `response_id` (equal for equal tokens)."""
    tokens: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """[L] each: `ROLLOUT`, `TRAIN`, `REF`, `MASK`; empty in detail `summary`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The update's own, under upstream's names: `actor/grad_norm`, `actor/pg_loss`, `actor/kl_loss`, `actor/lr` ...,
    and those of the batch: `reward_mean`, `response_length_mean`, `entropy_mean`."""
    sampling: Mapping[str, Any] = field(default_factory=dict)
    """How responses were sampled and losses taken: `temperature`, `top_p`, `top_k`, `max_tokens`, `stop_token_ids`,
    `rollout_dtype`, `train_dtype`, `loss_agg_mode` ..., as plain JSON."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """Digests of what was held when the responses were sampled: `sent/{tensor}` by the training engine, `held/{tensor}`
    by the rollout engine. Empty for engines that do not tell."""
    changes: Mapping[str, TensorChange] = field(default_factory=dict)
    """How far the update moved each tensor, by its name in the training engine."""
    noise: Mapping[str, float] = field(default_factory=dict)
    """How far rounding can move what this run computes, predicted on its weights and rows of the step before the
    update. By `train/{quantity}` in the format that it trains in, by `engine/{quantity}` in the rollout engine's:
    quantities of `diagnosis.distances`, `logprob_abs_diff_q999`, `entropy_abs_diff_mean`, `tokens`. Of the gradient and
    of the change of the weights, relative: `train/grad_rel_diff`, `train/grad_norm_rel_diff`, `train/change_rel_diff`,
    `train/change_norm_rel_diff`, and by tensor `train/grad_rel_diff/{tensor}`, `train/change_rel_diff/{tensor}`.
    `rows_share` is the share of the batch's rows that were measured: the whole batch's gradient is less noisy, by a
    factor between that share's square root and 1. `seconds` is what that took."""
    timing_s: Mapping[str, float] = field(default_factory=dict)
    missing: Mapping[str, Reason] = field(default_factory=dict)
    """What could not be recorded (`tokens/rollout`, `weights`, `changes` ...): why, and what to set."""
