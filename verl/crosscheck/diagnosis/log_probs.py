# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Findings of the log-probs of two engines for the same tokens; of sums over rows where tokens were not recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from verl.crosscheck.diagnosis.align import Alignment, RowSource
from verl.crosscheck.diagnosis.assess import BY_ROWS, broken, measured, missing
from verl.crosscheck.diagnosis.distances import Accumulator, Distances, Position
from verl.crosscheck.diagnosis.findings import Aspect, Finding, WorstRow
from verl.crosscheck.evidence.step import REF, ROLLOUT, TRAIN
from verl.crosscheck.reasons import Reason, ReasonCode, because

SOURCES = {
    Aspect.ROLLOUT_TAKER: (RowSource(False, ROLLOUT), RowSource(True, TRAIN)),
    Aspect.ROLLOUT_SAMPLER: (RowSource(False, ROLLOUT), RowSource(False, TRAIN)),
    Aspect.FORWARD: (RowSource(False, TRAIN), RowSource(True, TRAIN)),
    Aspect.REFERENCE: (RowSource(False, REF), RowSource(True, REF)),
}
"""Whose log-probs each aspect compares; the sampler's own come first."""

TOKEN_QUANTITIES = (
    "logprob_abs_diff_mean",
    "logprob_abs_diff_max",
    "prob_abs_diff_mean",
    "k1",
    "k3",
    "k3_over_k1",
    "pearson",
    "prob_spread",
    "exp_abs_diff_mean",
    "ratio_beyond_2_share",
    "exact_zeros",
)
"""What `distances` measures, in the order in which it is shown."""

WORST = 8
"""Rows that are named."""


@dataclass(frozen=True)
class Compared:
    """One aspect of log-probs."""

    findings: tuple[Finding, ...]
    tokens: int = 0
    worst: tuple[WorstRow, ...] = ()
    nonfinite: tuple[int, int] | None = None
    """Tokens that are not finite in either source; None if there are no tokens to look at."""


def compare_log_probs(rows: Alignment) -> dict[Aspect, Compared]:
    """All aspects of log-probs, over the rows in common; tokens are gone through once."""
    why = {source: rows.why_no_tokens(source) for pair in SOURCES.values() for source in pair}
    found = {aspect: Accumulator() for aspect, (p, q) in SOURCES.items() if not why[p] and not why[q]}
    needed = {source for aspect in found for source in SOURCES[aspect]}
    position = Position() if {Aspect.FORWARD, Aspect.ROLLOUT_TAKER} <= set(found) else None
    for columns, counts in rows.blocks(needed) if found else ():
        for aspect, accumulator in found.items():
            p, q = SOURCES[aspect]
            accumulator.add(columns[p], columns[q], counts)
        if position is not None:
            own, other, rollout = (columns[source].log_prob for source in (*SOURCES[Aspect.FORWARD], _ROLLOUT))
            position.add(other, own, rollout, counts)
    compared = {
        aspect: _by_tokens(aspect, rows, found[aspect].result())
        if aspect in found
        else _by_rows(aspect, rows, why[p] or why[q] or because(ReasonCode.MASKS_EMPTY))
        for aspect, (p, q) in SOURCES.items()
    }
    if position is not None and (at := position.result()) is not None:
        forward = compared[Aspect.FORWARD]
        lies = [measured(Aspect.FORWARD, name, value) for name, value in zip(POSITION, at, strict=True)]
        compared[Aspect.FORWARD] = replace(forward, findings=(*forward.findings, *lies))
    return compared


_ROLLOUT = SOURCES[Aspect.ROLLOUT_TAKER][0]
POSITION = ("rollout_position", "rollout_position_error")
"""Where the sampler's rollout engine lies between the training engines: 0 with the taker's, 1 with the sampler's."""


def _by_tokens(aspect: Aspect, rows: Alignment, found: Distances) -> Compared:
    if reason := _unusable(found, SOURCES[aspect], rows):
        return Compared((missing(aspect, "logprob_abs_diff_mean", reason),))
    findings = [measured(aspect, "tokens", found.tokens)]
    findings += [
        measured(aspect, name, found.values[name], error=found.errors.get(name))
        for name in TOKEN_QUANTITIES
        if name in found.values
    ]
    if any(found.nonfinite):
        findings.append(_nonfinite(aspect, found))
    return Compared(tuple(findings), found.tokens, _worst(aspect, found, rows.row_ids), found.nonfinite)


def _unusable(found: Distances, pair: tuple[RowSource, RowSource], rows: Alignment) -> Reason | None:
    """Why what is there is no measurement."""
    if not found.tokens:
        return because(ReasonCode.MASKS_EMPTY)
    for zero, source in zip(found.all_zero, pair, strict=True):
        if zero and found.values:
            run = rows.sides[source.of_taker]
            code = ReasonCode.COLUMN_ZERO_SET_FLAG if source.column == ROLLOUT else ReasonCode.COLUMN_ZERO
            return because(code, column=source.column, run=run.run_id, mode=run.mode)
    return None


def _nonfinite(aspect: Aspect, found: Distances) -> Finding:
    total, (first, second) = sum(found.nonfinite), found.nonfinite
    reason = because(ReasonCode.TOKENS_NOT_FINITE, first=first, second=second, tokens=found.tokens)
    if not found.values:
        return broken(aspect, "logprob_nonfinite_tokens", reason)
    return measured(aspect, "logprob_nonfinite_tokens", total, reason)


def _worst(aspect: Aspect, found: Distances, row_ids: npt.NDArray[np.uint64]) -> tuple[WorstRow, ...]:
    """The rows with the largest mean difference of log-probs; none where nothing is apart."""
    means = np.where(np.isfinite(found.row_sums), found.row_sums, 0.0) / np.maximum(1, found.row_tokens)
    count = min(WORST, int(np.count_nonzero(means)))
    chosen = np.argpartition(-means, count - 1)[:count] if count else np.zeros(0, np.int64)
    ordered = sorted(map(int, chosen), key=lambda row: (-means[row], row))
    return tuple(
        WorstRow(int(row_ids[row]), aspect, float(means[row]), float(found.row_maxima[row])) for row in ordered
    )


def _by_rows(aspect: Aspect, rows: Alignment, why: Reason) -> Compared:
    """The mean over tokens of |sum of a row's differences|, which the mean absolute difference cannot be below."""
    lacking = missing(aspect, "logprob_abs_diff_mean", why)
    sums = [rows.column(source.of_taker, f"{source.column}_sum") for source in SOURCES[aspect]]
    counts = [rows.column(taker, "mask_tokens") for taker in (False, True)]
    p, q, own, other = *sums, *counts
    if p is None or q is None or own is None or other is None or (own != other).any():
        return Compared((lacking,))
    tokens = float(own.sum())
    if not tokens or not p.any() or not q.any():
        return Compared((lacking,))
    fine = np.isfinite(p) & np.isfinite(q)
    if not fine.all():
        reason = because(ReasonCode.SUMS_NOT_FINITE, rows=len(fine) - int(fine.sum()))
        return Compared((lacking, broken(aspect, "logprob_nonfinite_tokens", reason)), nonfinite=_nonfinite_rows(p, q))
    findings = (lacking, measured(aspect, "tokens", tokens), measured(aspect, BY_ROWS, np.abs(p - q).sum() / tokens))
    return Compared(findings, nonfinite=(0, 0))


def _nonfinite_rows(p: npt.NDArray[np.float64], q: npt.NDArray[np.float64]) -> tuple[int, int]:
    return int(np.count_nonzero(~np.isfinite(p))), int(np.count_nonzero(~np.isfinite(q)))
