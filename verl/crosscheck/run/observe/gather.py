# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence from a trainer's batch: which columns it is made of, and what it lacks if one is not there.

Shapes: B rows of the batch, P prompt and T response positions, padded; R rows kept, with L response tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.evidence.files import round_to_16_bits, round_to_24_bits
from verl.crosscheck.evidence.row_identity import RowIds, identities, lowest_within, row_ids, unpadded
from verl.crosscheck.evidence.step import MASK, REF, ROLLOUT, TRAIN, StepEvidence
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.run.hooks import ActorUpdate
from verl.crosscheck.run.rewards import ROWS, NotRepeatableError, own_rewards
from verl.crosscheck.settings import Detail, ShareMode

LOG_PROBS = {ROLLOUT: "rollout_log_probs", TRAIN: "old_log_probs", REF: "ref_log_prob"}
"""Columns of a batch of upstream's, by what evidence calls them."""

USED = (
    "prompts",
    "input_ids",
    "responses",
    "attention_mask",
    "response_mask",
    "token_level_scores",
    "token_level_rewards",
    "advantages",
    *LOG_PROBS.values(),
)
"""Columns that evidence is made of; others may be of any kind."""

WITHOUT: Mapping[str, Reason] = {
    ROLLOUT: because(ReasonCode.ROLLOUT_LOG_PROBS_OFF),
    TRAIN: because(ReasonCode.TRAIN_LOG_PROBS_OFF),
    REF: because(ReasonCode.NO_REFERENCE_POLICY),
}
"""Why a kind of log-prob is not there, and what to set."""

Column = npt.NDArray[Any]

_BLOCK_ROWS = 64


def blank_evidence(
    update: ActorUpdate, mode: str, run_id: str, update_index: int, detail: Detail, sampling: Mapping[str, Any]
) -> StepEvidence:
    """Return evidence that says of which run and step it is, and holds no row."""
    return StepEvidence(
        mode,
        run_id,
        update.global_step,
        update_index,
        detail,
        batch_rows=len(update.batch),
        row_ids=np.zeros(0, np.uint64),
        lengths=np.zeros(0, np.int32),
        sampling=sampling,
    )


def evidence_of_batch(update: ActorUpdate, blank: StepEvidence, max_tokens: int | None) -> StepEvidence:
    """Return the evidence of a step: `blank` of `blank_evidence`, filled with what the batch holds.

    Args:
        max_tokens: response tokens to keep, see `lowest_within`; None keeps all.

    Raises:
        KeyError, ValueError: the batch has no responses, or its columns do not fit together.
    """
    batch = update.batch.batch
    columns = {name: _numpy(batch[name]) for name in USED if name in batch}
    responses_BT = columns["responses"]
    rows_total, width = responses_BT.shape
    attended = columns["attention_mask"].astype(bool)
    lengths = attended[:, -width:].sum(axis=1, dtype=np.int32)
    mask_BT = columns.get("response_mask", attended[:, -width:]).astype(bool)
    missing: dict[str, Reason] = {}
    log_probs = _log_probs(columns, update, missing)
    rows = _row_numbers(columns, update, log_probs, mask_BT, lengths, missing)
    if (stops_inside := _stops_inside(responses_BT, mask_BT, blank.sampling.get("certain_stop_token_ids"))) is not None:
        rows["stops_inside"] = stops_inside
    ties = [rows[name] for name in ("reward", "advantage_sum", "rollout_sum") if name in rows]
    prompts_BP = columns["prompts"] if "prompts" in columns else columns["input_ids"][:, :-width]
    prompts, responses = unpadded(prompts_BP, responses_BT, attended)
    ids = row_ids(prompts, responses, ties)
    rows["prompt_id"], rows["response_id"] = identities(prompts), identities(responses)
    _rescored(update, blank, ids, rows, missing)
    kept = lowest_within(ids, lengths, max_tokens if blank.detail is Detail.TOKENS else None)
    tokens: dict[str, Column] = {}
    if blank.detail is Detail.TOKENS:
        chosen = np.arange(width) < lengths[kept][:, None]
        tokens = {name: _rounded(name, values_BT[kept][chosen]) for name, values_BT in log_probs.items()}
        tokens[MASK] = mask_BT[kept][chosen]
    return replace(
        blank,
        batch_rows=rows_total,
        row_ids=ids[kept],
        lengths=lengths[kept],
        rows={name: column[kept] for name, column in rows.items()},
        tokens=tokens,
        metrics={**_scalars(update.metrics), **_batch_metrics(rows, lengths)},
        missing=missing,
    )


def _log_probs(columns: Mapping[str, Column], update: ActorUpdate, missing: dict[str, Reason]) -> dict[str, Column]:
    """Return log-probs by kind, [B, T] each."""
    found: dict[str, Column] = {}
    for name, key in LOG_PROBS.items():
        if key in columns and (name != TRAIN or update.recomputed):
            found[name] = columns[key].astype(np.float32, copy=False)
        else:
            missing[f"tokens/{name}"] = WITHOUT[name]
    return found


def _row_numbers(
    columns: Mapping[str, Column],
    update: ActorUpdate,
    log_probs: Mapping[str, Column],
    mask_BT: Column,
    lengths: Column,
    missing: dict[str, Reason],
) -> dict[str, Column]:
    """Return the `rows` of `StepEvidence`, for all B rows."""
    rows: dict[str, Column] = {"mask_tokens": mask_BT.sum(axis=1, dtype=np.int32)}
    for name, values_BT in log_probs.items():
        rows[f"{name}_sum"] = _masked_sum(values_BT, mask_BT)
    if update.entropies_BT is None or tuple(update.entropies_BT.shape) != mask_BT.shape:
        missing["rows/entropy_sum"] = because(ReasonCode.NO_ENTROPY)
    else:
        rows["entropy_sum"] = _masked_sum(_numpy(update.entropies_BT), mask_BT)
    if (rewards_BT := columns.get("token_level_scores", columns.get("token_level_rewards"))) is not None:
        rows["reward"] = rewards_BT.sum(axis=-1, dtype=np.float64)
    else:
        missing["rows/reward"] = because(ReasonCode.NO_SCORES)
    if "advantages" in columns:
        rows["advantage_sum"] = _masked_sum(columns["advantages"], mask_BT)
        rows["advantage_abs_sum"] = _masked_sum(np.abs(columns["advantages"]), mask_BT)
    else:
        missing["rows/advantage_sum"] = because(ReasonCode.NO_ADVANTAGES)
    if ROLLOUT in log_probs:
        rows["first_rollout"] = np.where(mask_BT[:, 0], log_probs[ROLLOUT][:, 0], 0.0).astype(np.float64)
    rows["first_token"] = np.where(mask_BT[:, 0], columns["responses"][:, 0], -1).astype(np.int64)
    last = np.take_along_axis(columns["responses"], np.maximum(lengths - 1, 0)[:, None].astype(np.int64), axis=1)[:, 0]
    rows["last_token"] = np.where(lengths > 0, last, -1).astype(np.int64)
    return rows


def _rescored(
    update: ActorUpdate, blank: StepEvidence, ids: RowIds, rows: dict[str, Column], missing: dict[str, Reason]
) -> None:
    """Add `own_reward` of the rows of lowest identity, in mode `rollout`, whose rewards come with the rollout."""
    if blank.mode != ShareMode.ROLLOUT.value or "reward" not in rows:
        return
    if update.rescore is None:
        missing["rows/own_reward"] = because(ReasonCode.REWARD_NOT_LOCAL)
        return
    chosen = np.argsort(ids, kind="stable")[:ROWS]
    column = np.full(len(ids), np.nan)
    try:
        column[chosen] = own_rewards(update.rescore, chosen.tolist(), rows["reward"][chosen])
    except NotRepeatableError as e:
        missing["rows/own_reward"] = because(ReasonCode.REWARD_NOT_REPEATABLE, where=str(e))
    except Exception as e:  # whatever a reward function does; what was trained on is recorded all the same
        missing["rows/own_reward"] = because(ReasonCode.REWARD_ERROR, error=f"{type(e).__name__}: {e}"[:200])
    else:
        rows["own_reward"] = column


def _stops_inside(responses_BT: Column, mask_BT: Column, stops: Any) -> Column | None:
    """Return how many stop tokens each response has before its last token, [B]; None if it is not known which end one.

    A token that the mask leaves out, such as a tool's, was not generated.
    """
    if not stops:
        return None
    generated = np.cumsum(mask_BT[:, ::-1], axis=1)[:, ::-1]  # of this token and those that follow it
    inside_BT = mask_BT & (generated > 1) & np.isin(responses_BT, np.asarray(stops, dtype=responses_BT.dtype))
    count: Column = inside_BT.sum(axis=1, dtype=np.int32)
    return count


def _masked_sum(values_BT: Column, mask_BT: Column) -> Column:
    """Return the sum of each row, [B] float64. What the mask leaves out does not count, even if it is NaN.

    Works in blocks that stay in the processor's cache.
    """
    total = np.empty(len(values_BT), np.float64)
    block_bT = np.empty((_BLOCK_ROWS, values_BT.shape[1]), np.float64)
    for start in range(0, len(values_BT), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        product = block_bT[: len(total[rows])]
        with np.errstate(invalid="ignore"):  # an infinity, masked
            np.multiply(values_BT[rows], mask_BT[rows], out=product)
        product.sum(axis=1, out=total[rows])
    for row in np.flatnonzero(~np.isfinite(total)):
        total[row] = values_BT[row][mask_BT[row]].sum(dtype=np.float64)
    return total


def _rounded(name: str, values: Column) -> Column:
    values = np.ascontiguousarray(values, np.float32)
    return round_to_16_bits(values) if name == REF else round_to_24_bits(values)


def _scalars(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics that are numbers, or lists of numbers, as their mean. An empty list is left out."""
    found: dict[str, float] = {}
    for name, value in metrics.items():
        try:
            numbers = np.asarray(value, dtype=np.float64)
        except (TypeError, ValueError):
            continue
        if numbers.size:
            found[name] = float(np.mean(numbers))
    return found


def _batch_metrics(rows: Mapping[str, Column], lengths: Column) -> dict[str, float]:
    """Return the metrics that people watch, over all B rows."""
    found = {"response_length_mean": float(lengths.mean())}
    if "reward" in rows:
        found["reward_mean"] = float(rows["reward"].mean())
    if "entropy_sum" in rows:
        found["entropy_mean"] = float(rows["entropy_sum"].sum() / max(1, int(rows["mask_tokens"].sum())))
    return found


def _numpy(tensor: torch.Tensor) -> Column:
    tensor = tensor.detach().cpu()
    if tensor.is_nested:
        raise ValueError("a nested column: its rows have no common length")
    values: Column = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return values
