# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What both runs trained on, what their updates did, and what people watch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.agreement.batch_split import BatchSplit, why_other_advantages, why_other_updates
from verl.crosscheck.diagnosis.align import Alignment
from verl.crosscheck.diagnosis.assess import broken, measured, missing
from verl.crosscheck.diagnosis.findings import Aspect, Finding
from verl.crosscheck.diagnosis.predictions import Predictions
from verl.crosscheck.diagnosis.weight_changes import change_findings
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.text import listed

TINY = 1e-12
"""Differences of two numbers that are both smaller are none."""

ADVANTAGE_SCALE, LOSS_FLOOR = 1.0, 0.05
"""A policy loss is compared with the mean absolute advantage if it is smaller than that, other losses with the floor:
at the first step the KL loss is rounding alone."""

METRICS = {
    "grad_norm_rel_diff": "actor/grad_norm",
    "lr_rel_diff": "actor/lr",
    "pg_loss_rel_diff": "actor/pg_loss",
    "kl_loss_rel_diff": "actor/kl_loss",
    "entropy_loss_rel_diff": "actor/entropy_loss",
}
"""Upstream's name of the metric of the actor's update that each quantity compares."""

OUTCOMES = {
    "reward": ("reward_mean", "critic/score/mean", "critic/rewards/mean"),
    "response_length": ("response_length_mean", "response_length/mean"),
    "entropy": ("entropy_mean", "actor/entropy", "actor/entropy_loss"),
    "grad_norm": ("actor/grad_norm",),
    "loss": ("actor/pg_loss",),
}
"""Where the numbers come from that people watch; the first that is there."""


def input_findings(rows: Alignment) -> list[Finding]:
    """Whether both runs trained on the same rows, masks, rewards and advantages."""
    found = [_rows_finding(rows), _mask_finding(rows)]
    reward = [rows.column(taker, "reward") for taker in (False, True)]
    found.append(_reward_finding(rows, *reward))
    found.append(_own_reward_finding(rows))
    found.append(_advantage_finding(rows))
    return found


def _rows_finding(rows: Alignment) -> Finding:
    kept = [len(side.row_ids) for side in rows.sides]
    whole = [len(side.row_ids) == side.batch_rows for side in rows.sides]
    alone = max(kept) - rows.rows
    if all(whole) or not min(kept):
        share = alone / max(1, *kept)
        reason = because(ReasonCode.ROWS_ALONE, rows=alone, all_rows=max(kept)) if alone else None
        finding = measured(Aspect.INPUTS, "rows_unmatched_share", share, reason)
        return finding if max(kept) else missing(Aspect.INPUTS, "rows_unmatched_share", because(ReasonCode.NO_ROW_KEPT))
    if rows.sides[0].batch_rows != rows.sides[1].batch_rows:
        own, other = (side.batch_rows for side in rows.sides)
        reason = because(ReasonCode.BATCH_SIZES, own=own, other=other)
        return measured(Aspect.INPUTS, "rows_unmatched_share", 1.0, reason)
    return _kept_by_both(rows)


def _kept_by_both(rows: Alignment) -> Finding:
    """Each run keeps the rows of lowest identity that its budget holds, so both have all up to the lower of the two
    highest."""
    last = min(side.row_ids.max() for side in rows.sides if 0 < len(side.row_ids) < side.batch_rows)
    expected = max(int(np.count_nonzero(side.row_ids <= last)) for side in rows.sides)
    alone = expected - rows.rows
    kept = because(ReasonCode.ROWS_KEPT, rows=rows.rows)
    reason = because(ReasonCode.ROWS_ALONE, rows=alone, all_rows=expected) if alone else kept
    return measured(Aspect.INPUTS, "rows_unmatched_share", alone / expected, reason)


def _mask_finding(rows: Alignment) -> Finding:
    differ = rows.mask_diff_rows() if rows.rows else None
    if differ is None:
        counts = [rows.column(taker, "mask_tokens") for taker in (False, True)]
        if counts[0] is None or counts[1] is None or not rows.rows:
            return missing(Aspect.INPUTS, "mask_diff_rows", because(ReasonCode.NO_MASKS))
        differ = int(np.count_nonzero(counts[0] != counts[1]))
    reason = because(ReasonCode.OF_ROWS, rows=rows.rows) if differ else None
    return measured(Aspect.INPUTS, "mask_diff_rows", differ, reason)


def _reward_finding(rows: Alignment, own: npt.NDArray[Any] | None, other: npt.NDArray[Any] | None) -> Finding:
    if own is None or other is None or not rows.rows:
        recorded = next((side.missing["rows/reward"] for side in rows.sides if "rows/reward" in side.missing), None)
        return missing(Aspect.INPUTS, "reward_rel_diff_max", recorded or because(ReasonCode.NO_REWARDS))
    apart = np.abs(own - other)
    if not np.isfinite(apart).all():
        count = int(np.count_nonzero(~np.isfinite(apart)))
        return broken(Aspect.INPUTS, "reward_rel_diff_max", because(ReasonCode.REWARDS_NOT_FINITE, rows=count))
    relative = _relative_rewards(own, other)
    differ = int(np.count_nonzero(relative > 1e-6))
    reason = because(ReasonCode.SOME_ROWS, rows=differ, all_rows=rows.rows) if differ else None
    return measured(Aspect.INPUTS, "reward_rel_diff_max", float(relative.max()), reason)


def _relative_rewards(own: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """[R] difference of two rewards beside the larger of them, or beside how far rewards usually are from their median
    if that is more: one reward far out hides nothing, and one near 0 shows nothing."""
    from_median = np.abs(other - np.median(other))
    usual = float(np.median(from_median[from_median > 0])) if from_median.any() else TINY
    size = np.maximum(np.maximum(np.abs(own), np.abs(other)), max(usual, TINY))
    relative: npt.NDArray[np.float64] = np.abs(own - other) / size
    return relative


def _own_reward_finding(rows: Alignment) -> Finding:
    """Whether the taker's own reward function gives the rewards that came with the rollout."""
    quantity = "reward_recomputed_rel_diff_max"
    reward, own = rows.column(True, "reward"), rows.column(True, "own_reward")
    scored = None if own is None else ~np.isnan(own)
    if reward is None or own is None or scored is None or not scored.any():
        recorded = rows.sides[1].missing.get("rows/own_reward")
        return missing(Aspect.INPUTS, quantity, recorded or because(ReasonCode.REWARD_NOT_RECOMPUTED))
    apart = np.abs(own - reward)[scored]
    if not np.isfinite(apart).all():
        count = int(np.count_nonzero(~np.isfinite(apart)))
        return broken(Aspect.INPUTS, quantity, because(ReasonCode.REWARDS_NOT_FINITE, rows=count))
    relative = _relative_rewards(own[scored], reward[scored])
    differ = int(np.count_nonzero(relative > 1e-6))
    reason = because(ReasonCode.SOME_ROWS, rows=differ, all_rows=int(scored.sum())) if differ else None
    return measured(Aspect.INPUTS, quantity, float(relative.max()), reason)


def _advantage_finding(rows: Alignment) -> Finding:
    if why := _split(rows, why_other_advantages):
        return missing(Aspect.INPUTS, "advantage_rel_diff", why)
    own, other = (rows.column(taker, "advantage_sum") for taker in (False, True))
    sizes = [rows.column(taker, "advantage_abs_sum") for taker in (False, True)]
    if own is None or other is None or sizes[0] is None or sizes[1] is None or not rows.rows:
        return missing(Aspect.INPUTS, "advantage_rel_diff", because(ReasonCode.ADVANTAGES_NOT_RECORDED))
    apart, scale = float(np.abs(own - other).sum()), float(max(sizes[0].sum(), sizes[1].sum()))
    if not math.isfinite(apart) or not math.isfinite(scale):
        return broken(Aspect.INPUTS, "advantage_rel_diff", because(ReasonCode.ADVANTAGES_NOT_FINITE))
    return measured(Aspect.INPUTS, "advantage_rel_diff", apart / scale if scale > TINY else apart)


def update_findings(rows: Alignment, predictions: Predictions) -> list[Finding]:
    """Gradient norm, losses and change of the weights of both runs."""
    if why := _split(rows, why_other_updates):
        return [missing(Aspect.UPDATE, quantity, why) for quantity in (*METRICS, "change_rel_diff")]
    own, other = (side.metrics for side in rows.sides)
    scale = _advantage_scale(rows)
    found = []
    lacking = _logged_otherwise(rows)
    for quantity, name in METRICS.items():
        if name in own and name in other and quantity in lacking:
            found.append(missing(Aspect.UPDATE, quantity, lacking[quantity]))
        elif quantity == "grad_norm_rel_diff" and own.get(name) == other.get(name) == 0:
            found.append(missing(Aspect.UPDATE, quantity, because(ReasonCode.GRADIENTS_ZERO)))
        elif name in own and name in other:
            floor = (
                scale * ADVANTAGE_SCALE if quantity == "pg_loss_rel_diff" else LOSS_FLOOR if "loss" in name else TINY
            )
            found.append(_relative(quantity, name, own[name], other[name], floor))
        elif name in own or name in other or name == "actor/grad_norm":
            found.append(missing(Aspect.UPDATE, quantity, _without_metric(rows, name)))
    found += change_findings(rows.sides[0], rows.sides[1], predictions)
    return found + _state_findings(rows) + _critic_findings(rows)


def _without_metric(rows: Alignment, name: str) -> Reason:
    modes = [side.mode for side in rows.sides if name not in side.metrics]
    if len(modes) == 1:
        return because(ReasonCode.NO_METRIC, metric=name, mode=modes[0])
    return because(ReasonCode.NO_METRIC_IN_BOTH, metric=name, mode=modes[0], other_mode=modes[1])


def _state_findings(rows: Alignment) -> list[Finding]:
    """What an update rests on besides weights and rows, where the two runs do not share it."""
    if not any(side.sampling.get("ckpt_format") == "portable" for side in rows.sides):
        return []
    return [missing(Aspect.UPDATE, "optimiser_state", because(ReasonCode.OWN_OPTIMISER_STATE))]


def _critic_findings(rows: Alignment) -> list[Finding]:
    """That the critic's own update is not compared, where there is one."""
    if not any(side.sampling.get("critic") for side in rows.sides):
        return []
    return [missing(Aspect.UPDATE, "critic_update", because(ReasonCode.CRITIC_NOT_COMPARED))]


def _split(rows: Alignment, why: Callable[[BatchSplit, BatchSplit], Reason | None]) -> Reason | None:
    """Return why something need not be equal though both runs are healthy; None if it must be."""
    known = [BatchSplit.from_json(side.sampling.get("portions")) for side in rows.sides]
    return None if known[0] is None or known[1] is None else why(known[0], known[1])


def _logged_otherwise(rows: Alignment) -> dict[str, Reason]:
    """Quantities whose metrics mean something else in either run, with the reason.

    Upstream's legacy workers log the learning rate before its schedule moves, the new ones after; legacy FSDP workers
    log losses as sums over mini-batches, others as means.
    """
    one, other = (side.sampling for side in rows.sides)
    workers = [each.get("workers") for each in (one, other)]
    if None in workers or workers[0] == workers[1]:
        return {}
    implementations = {str(each).partition(" ")[0] for each in workers}
    reason = because(ReasonCode.LOGGED_OTHERWISE, own=str(workers[0]), other=str(workers[1]))
    names = [name for name in METRICS if name.endswith("loss_rel_diff")]
    return dict.fromkeys([*names, *(["lr_rel_diff"] if len(implementations) > 1 else [])], reason)


def _advantage_scale(rows: Alignment) -> float:
    """Mean absolute advantage of a token; 1 if it is not known."""
    for side in rows.sides:
        total, tokens = side.rows.get("advantage_abs_sum"), side.rows.get("mask_tokens")
        if total is not None and tokens is not None and np.isfinite(total).all() and tokens.sum() > 0:
            return max(float(total.sum()) / float(tokens.sum()), 1e-6)
    return 1.0


def _relative(quantity: str, name: str, own: float, other: float, floor: float) -> Finding:
    numbers = {"metric": name, "own": f"{own:.6g}", "other": f"{other:.6g}"}
    reason = because(ReasonCode.TWO_NUMBERS, **numbers)
    if not math.isfinite(own) and not math.isfinite(other):
        return missing(Aspect.UPDATE, quantity, because(ReasonCode.NEITHER_FINITE, **numbers))
    if not math.isfinite(own) or not math.isfinite(other):
        return broken(Aspect.UPDATE, quantity, reason)
    apart = abs(own - other)
    return measured(Aspect.UPDATE, quantity, 0.0 if apart <= TINY else apart / max(abs(other), floor), reason)


def outcome_findings(rows: Alignment, nonfinite: Mapping[str, int | None]) -> list[Finding]:
    """How many numbers of either run are not finite.

    Args:
        rows: of both runs.
        nonfinite: tokens by `sampler_rollout`, `sampler_train` and `taker_train`; None if there are none to look at.
    """
    found = [
        measured(Aspect.OUTCOME, f"{_flipped(who)}", count) for who, count in nonfinite.items() if count is not None
    ]
    for (side, other), who in zip((rows.sides, rows.sides[::-1]), ("sampler", "taker"), strict=True):
        bad = sorted(name for name in side.metrics if _tells_of_breakage(name, side.metrics, other.metrics))
        bad += sorted(name for name, change in side.changes.items() if not math.isfinite(change.own))
        if side.metrics or side.changes:
            names = because(ReasonCode.NAME, name=listed(bad)) if bad else None
            found.append(measured(Aspect.OUTCOME, f"{who}_nonfinite_update", len(bad), names))
    return found


def _tells_of_breakage(name: str, own: Mapping[str, float], other: Mapping[str, float]) -> bool:
    """Whether a metric that is not finite shows a broken update. Beside those that are compared there are some that are
    NaN in healthy runs too, such as a ratio of nothing to nothing: they count if the other run's is finite."""
    return not math.isfinite(own[name]) and (name in METRICS.values() or math.isfinite(other.get(name, math.nan)))


def _flipped(who: str) -> str:
    """`sampler_rollout` to `sampler_nonfinite_rollout`."""
    side, _, column = who.partition("_")
    return f"{side}_nonfinite_{column}"


def outcomes(sampler: StepEvidence, taker: StepEvidence) -> dict[str, tuple[float | None, float | None]]:
    """The numbers that people watch, of both; None where a run has none that is finite."""
    return {name: (_first(sampler.metrics, keys), _first(taker.metrics, keys)) for name, keys in OUTCOMES.items()}


def _first(metrics: Mapping[str, float], keys: tuple[str, ...]) -> float | None:
    value = next((metrics[key] for key in keys if key in metrics), None)
    return value if value is not None and math.isfinite(value) else None
