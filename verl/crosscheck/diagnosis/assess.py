# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From measured values to states: the one place where a value meets its limit.

Values outlive limits: a comparison that was made with one set of limits can be assessed with another, such as those of
a control that was run later.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from verl.crosscheck.diagnosis import thresholds as numbers
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.diagnosis.thresholds import BELOW_IS_BAD, Thresholds, threshold
from verl.crosscheck.reasons import Reason, ReasonCode, because

LOG_PROBS = (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER, Aspect.FORWARD, Aspect.REFERENCE)
"""Aspects that compare log-probs of the same tokens."""

BY_ROWS = "logprob_row_diff_mean"
"""What stands for distances of tokens where only sums over rows were recorded."""

TELL_OF_UPDATE = ("grad_norm_rel_diff", "change_rel_diff", "change_rel_diff_kind_max", "change_rel_diff_layer_max")
"""Without one of these an update was not compared: learning rate and losses are equal whatever the gradient is."""

PAIRS = {
    "nll_minus_entropy_mean": "nll_minus_entropy_z",
    "nll_minus_entropy_train_mean": "nll_minus_entropy_train_z",
    "logprob_gain_train_mean": "logprob_gain_train_nats",
}
"""Size of an effect, and how sure it is that there is one: only both together differ."""

NOT_READABLE = because(ReasonCode.ENTROPY_NOT_COMPARABLE)
TOO_FEW = because(ReasonCode.TOO_FEW_TOKENS, tokens=numbers.MIN_TOKENS)

Values = Mapping[tuple[Aspect, str], float]


def measured(
    aspect: Aspect, quantity: str, value: float, reason: Reason | None = None, *, error: float | None = None
) -> Finding:
    """A finding with a value and its standard error, still to be assessed."""
    above_is_bad = quantity not in BELOW_IS_BAD
    return Finding(aspect, quantity, State.AGREE, float(value), above_is_bad=above_is_bad, reason=reason, error=error)


def missing(aspect: Aspect, quantity: str, reason: Reason) -> Finding:
    """A finding that could not be measured."""
    return Finding(aspect, quantity, State.MISSING, above_is_bad=quantity not in BELOW_IS_BAD, reason=reason)


def broken(aspect: Aspect, quantity: str, reason: Reason) -> Finding:
    """A finding that differs without a number, since one side is not finite."""
    return Finding(aspect, quantity, State.DIFFER, above_is_bad=quantity not in BELOW_IS_BAD, reason=reason)


def reassess(comparison: StepComparison, limits: Thresholds) -> StepComparison:
    """The comparison under other limits."""
    return replace(comparison, findings=assess(comparison.findings, limits, comparison.rows))


def assess(findings: Iterable[Finding], limits: Thresholds, rows: int) -> tuple[Finding, ...]:
    """Limit and state of each finding that has a value; the others stay what they are.

    Args:
        findings: of one step.
        limits: what to hold the values against.
        rows: that were matched.
    """
    findings = tuple(findings)
    values = {(each.aspect, each.quantity): each.value for each in findings if each.value is not None}
    first = tuple(_assessed(each, values, limits, rows) for each in findings)
    if state_of(first, Aspect.ROLLOUT_TAKER) is State.AGREE:
        return first
    return tuple(_unreadable(each) if _needs_agreement(each) else each for each in first)


def state_of(findings: Iterable[Finding], aspect: Aspect) -> State:
    """The state of an aspect: it differs if anything in it does, and agrees if something was judged and nothing
    differs. Values without a limit are shown, not judged."""
    own = [each for each in findings if each.aspect is aspect]
    if any(each.state is State.DIFFER for each in own):
        return State.DIFFER
    telling = [each for each in own if aspect is not Aspect.UPDATE or each.quantity in TELL_OF_UPDATE]
    judged = any(each.state is State.AGREE and each.limit is not None for each in telling)
    return State.AGREE if judged else State.MISSING


def by_rows_alone(findings: Iterable[Finding], aspect: Aspect) -> bool:
    """Whether an aspect of log-probs rests on sums over rows, which hide differences of either sign in a row."""
    judged = {each.quantity for each in findings if each.aspect is aspect and each.state is not State.MISSING}
    return BY_ROWS in judged


def beyond_by_chance(finding: Finding) -> bool:
    """Whether a value is beyond its limit and within its standard errors of it: neither a fault nor agreement."""
    if finding.state is not State.AGREE or finding.value is None or finding.limit is None or not finding.error:
        return False
    return not (finding.value <= finding.limit if finding.above_is_bad else finding.value >= finding.limit)


def strength(finding: Finding) -> float:
    """How many times beyond its limit a finding is; large for what must be exact or finite."""
    if finding.value is None or finding.limit is None:
        return 1e3
    if not finding.above_is_bad:
        return (1.0 - finding.value) / max(1e-9, 1.0 - finding.limit)
    return finding.value / finding.limit if finding.limit > 0 else 1e3


def _assessed(finding: Finding, values: Values, limits: Thresholds, rows: int) -> Finding:
    if finding.value is None:
        return finding
    limit = threshold(limits, finding)
    if limit is None or _tells_nothing(finding, values):
        return replace(finding, limit=None, state=State.AGREE)
    if finding.aspect in LOG_PROBS and values.get((finding.aspect, "tokens"), numbers.MIN_TOKENS) < numbers.MIN_TOKENS:
        return replace(finding, limit=limit, state=State.MISSING, reason=TOO_FEW)
    beyond = _beyond(finding, limit) and _enough(finding, values, limits, rows)
    reason = None if finding.reason in (TOO_FEW, NOT_READABLE) else finding.reason
    return replace(finding, limit=limit, state=State.DIFFER if beyond else State.AGREE, reason=reason)


def _beyond(finding: Finding, limit: float) -> bool:
    """Whether a value is beyond its limit by more than chance: by so many standard errors, where it has one."""
    assert finding.value is not None
    margin = numbers.ERRORS * (finding.error or 0.0)
    return not (finding.value - margin <= limit if finding.above_is_bad else finding.value + margin >= limit)


def _tells_nothing(finding: Finding, values: Values) -> bool:
    """A correlation of probabilities that hardly vary is one of rounding."""
    spread = values.get((finding.aspect, "prob_spread"), 0.0)
    return finding.quantity == "pearson" and spread < numbers.MIN_PROB_SPREAD


def _enough(finding: Finding, values: Values, limits: Thresholds, rows: int) -> bool:
    """Whether there is enough of it to be more than chance."""
    aspect, quantity, value = finding.aspect, finding.quantity, finding.value or 0.0
    if quantity == "ratio_beyond_2_share":
        return value * values.get((aspect, "tokens"), 0.0) >= numbers.MIN_RATIO_TOKENS - 0.5
    if quantity == "unfinished_share":
        return value * rows >= numbers.MIN_UNFINISHED_ROWS - 0.5
    partner = PAIRS.get(quantity) or {sure: size for size, sure in PAIRS.items()}.get(quantity)
    if partner is None:
        return True
    bound, other = limits.of(aspect, partner), values.get((aspect, partner))
    return bound is not None and other is not None and other > bound


def _needs_agreement(finding: Finding) -> bool:
    return (
        finding.aspect is Aspect.SAMPLING
        and finding.quantity.startswith("nll_minus_entropy")
        and finding.limit is not None
    )


def _unreadable(finding: Finding) -> Finding:
    return replace(finding, state=State.MISSING, reason=NOT_READABLE) if finding.value is not None else finding
