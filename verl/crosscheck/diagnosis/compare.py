# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One step of two runs, side by side: all that was recorded of both, against limits. Called live and by the report."""

from __future__ import annotations

import time

from verl.crosscheck.diagnosis.align import Alignment
from verl.crosscheck.diagnosis.assess import LOG_PROBS, assess, missing, state_of
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison, WorstRow
from verl.crosscheck.diagnosis.log_probs import WORST, Compared, compare_log_probs
from verl.crosscheck.diagnosis.predictions import Predictions
from verl.crosscheck.diagnosis.rollout_checks import (
    ending_findings,
    independence_findings,
    sampling_findings,
    sync_findings,
)
from verl.crosscheck.diagnosis.thresholds import Thresholds
from verl.crosscheck.diagnosis.training_checks import (
    input_findings,
    outcome_findings,
    outcomes,
    update_findings,
)
from verl.crosscheck.diagnosis.weight_changes import relative_changes
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.reasons import ReasonCode, because

NO_ROW = because(ReasonCode.NO_COMMON_ROW)


def compare_step(sampler: StepEvidence, taker: StepEvidence, limits: Thresholds) -> StepComparison:
    """What agrees between two runs in a step, what does not, and what could not be compared.

    Args:
        sampler: evidence of the run in mode `ckpt`, whose engine generated.
        taker: evidence of the run in mode `rollout`, of the same step.
        limits: see `thresholds.limits_for`.

    Raises:
        ValueError: the two are of different steps.
    """
    if sampler.global_step != taker.global_step:
        raise ValueError(f"step {sampler.global_step} of the sampler and step {taker.global_step} of the taker")
    start_s = time.perf_counter()
    rows = Alignment(sampler, taker)
    compared = _log_probs(rows)
    independence = independence_findings(sampler)
    predictions = Predictions(sampler, taker)
    findings = [
        *input_findings(rows),
        *(finding for each in compared.values() for finding in each.findings),
        *_of_rows(rows, independence, limits),
        *independence,
        *sync_findings(sampler),
        *ending_findings(sampler),
        *update_findings(rows, predictions),
        *outcome_findings(rows, _nonfinite(compared)),
    ]
    return StepComparison(
        global_step=sampler.global_step,
        update_index=sampler.update_index,
        rows=rows.rows,
        tokens=max(each.tokens for each in compared.values()),
        findings=assess(predictions.attached(findings), limits, rows.rows),
        worst_rows=_worst(compared),
        changes=relative_changes(sampler, taker),
        outcomes=outcomes(sampler, taker),
        compare_s=time.perf_counter() - start_s,
    )


def _log_probs(rows: Alignment) -> dict[Aspect, Compared]:
    if rows.rows:
        return compare_log_probs(rows)
    return {aspect: Compared((missing(aspect, "logprob_abs_diff_mean", NO_ROW),)) for aspect in LOG_PROBS}


def _of_rows(rows: Alignment, independence: list[Finding], limits: Thresholds) -> list[Finding]:
    if not rows.rows:
        return [missing(Aspect.SAMPLING, "nll_minus_entropy_mean", NO_ROW)]
    repeating = state_of(assess(independence, limits, rows.rows), Aspect.INDEPENDENCE) is State.DIFFER
    return sampling_findings(rows, not repeating)


def _nonfinite(compared: dict[Aspect, Compared]) -> dict[str, int | None]:
    """Tokens that are not finite, by engine; None for one whose log-probs were not compared."""
    taker, forward = compared[Aspect.ROLLOUT_TAKER].nonfinite, compared[Aspect.FORWARD].nonfinite
    own = compared[Aspect.ROLLOUT_SAMPLER].nonfinite
    rollout = taker or own
    return {
        "sampler_rollout": None if rollout is None else rollout[0],
        "sampler_train": forward[0] if forward else own[1] if own else None,
        "taker_train": taker[1] if taker else forward[1] if forward else None,
    }


def _worst(compared: dict[Aspect, Compared]) -> tuple[WorstRow, ...]:
    """Of rollout against training and of both forward passes, which a person wants to look at."""
    every = [row for aspect, each in compared.items() if aspect is not Aspect.REFERENCE for row in each.worst]
    return tuple(sorted(every, key=lambda row: -row.logprob_abs_diff_mean)[:WORST])
