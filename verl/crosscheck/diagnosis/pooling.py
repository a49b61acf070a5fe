# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Tests of chance carried on over the steps of a pair, so that a fault that is too small for one step is found.

What is summed is a martingale within a step (see `rollout_checks`), and steps follow each other, so it is one over all
steps. It may be looked at after each: the chance of ever leaving the bound is what it is made for.

- Sum of -log p - H: the bound of a mixture of normal laws (Robbins 1970), |S| < sqrt((V + r) * (2 * log(1 / a) +
  log((V + r) / r))), with V the sum of squares so far and a the chance. It holds for an r that is fixed in advance;
  here r is the V of the first step, so the chance is about a.
- Log likelihood ratios: exceed x nats with a chance of exp(-x) (Ville).

How large the effect is, per token, must exceed the limit of a single step as well: rounding has a small effect that any
test finds with enough tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from verl.crosscheck.diagnosis.assess import beyond_by_chance
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.diagnosis.thresholds import ERRORS, POOLED_CHANCE, RARE_TOKENS, Thresholds, excess
from verl.crosscheck.reasons import ReasonCode, because

SCORES = ("nll_minus_entropy", "nll_minus_entropy_train")
"""Sums of -log p - H, with the log-probs of rollout and training; `_nats` is the sum, `_variance` that of squares."""


def pooled(steps: Sequence[StepComparison], limits: Thresholds) -> list[StepComparison]:
    """The steps, each with what tests show of all steps up to it.

    Args:
        steps: of one scenario, assessed, in order.
        limits: that they were assessed with.
    """
    tests: list[_Score | _Ratio] = [
        *(_Score(name) for name in SCORES),
        _Ratio(Aspect.SAMPLING, "logprob_gain_train_signed_nats", "logprob_gain_train", "logprob_gain_train_mean"),
        _Ratio(Aspect.INDEPENDENCE, "equal_responses_nats", "equal_responses"),
        _Ratio(Aspect.INDEPENDENCE, "equal_first_tokens_nats", "equal_first_tokens"),
    ]
    found = []
    means = _Means()
    for step in map(means.after, steps):
        values = {(f.aspect, f.quantity): f.value for f in step.findings if _readable(f)}
        added = [finding for test in tests for finding in test.after(values, limits)]
        found.append(replace(step, findings=(*step.findings, *added)))
    return found


def _readable(finding: Finding) -> bool:
    return finding.value is not None and finding.state is not State.MISSING


Values = dict[tuple[Aspect, str], float | None]


def _findings(
    aspect: Aspect, name: str, values: Iterable[tuple[str, float, float | None]], differs: bool, steps: int
) -> list[Finding]:
    reason = because(ReasonCode.OVER_STEPS, steps=steps)
    state = State.DIFFER if differs else State.AGREE
    return [Finding(aspect, f"{name}_{what}", state, value, limit, reason=reason) for what, value, limit in values]


class _Means:
    """Means over tokens so far. One that is beyond its limit by less than its standard errors in each step is beyond it
    surely if it is over all steps together."""

    def __init__(self) -> None:
        self._sums: dict[tuple[Aspect, str], tuple[float, float, float]] = {}

    def after(self, step: StepComparison) -> StepComparison:
        """The step, with what differs by all steps up to it."""
        tokens = {f.aspect: f.value for f in step.findings if f.quantity == "tokens" and f.value}
        return replace(step, findings=tuple(self._after(each, tokens.get(each.aspect)) for each in step.findings))

    def _after(self, finding: Finding, tokens: float | None) -> Finding:
        if finding.value is None or finding.error is None or finding.limit is None or not tokens:
            return finding
        key = finding.aspect, finding.quantity
        weights, values, squares = self._sums.get(key, (0.0, 0.0, 0.0))
        weights, values = weights + tokens, values + tokens * excess(finding.quantity, finding.value)
        squares += (tokens * finding.error) ** 2
        self._sums[key] = weights, values, squares
        surely = values / weights - ERRORS * math.sqrt(squares) / weights > excess(finding.quantity, finding.limit)
        return replace(finding, state=State.DIFFER) if surely and beyond_by_chance(finding) else finding


@dataclass
class _Score:
    """The sum of -log p - H so far."""

    name: str
    total: float = 0.0
    variance: float = 0.0
    first: float = 0.0
    tokens: float = 0.0
    steps: int = 0

    def after(self, values: Values, limits: Thresholds) -> list[Finding]:
        """What the steps show with one more."""
        names = ("nats", "variance", "tokens")
        nats, variance, tokens = (values.get((Aspect.SAMPLING, f"{self.name}_{name}")) for name in names)
        if nats is None or variance is None or tokens is None or (Aspect.SAMPLING, f"{self.name}_mean") not in values:
            return []
        self.total, self.variance, self.tokens = self.total + nats, self.variance + variance, self.tokens + tokens
        self.first, self.steps = self.first or variance, self.steps + 1
        if self.steps < 2 or not self.first or not self.tokens:
            return []
        rare = RARE_TOKENS * (1.0 + math.log(self.tokens)) ** 2 if self.total < 0 else 0.0
        spread = self.variance + rare + self.first
        bound = math.sqrt(2.0 * math.log(1.0 / POOLED_CHANCE) + math.log(spread / self.first))
        z, mean = abs(self.total) / math.sqrt(spread), abs(self.total) / self.tokens
        least = limits.of(Aspect.SAMPLING, f"{self.name}_mean")
        differs = least is not None and z > bound and mean > least
        shown = (("pooled_mean", mean, least), ("pooled_z", z, bound))
        return _findings(Aspect.SAMPLING, self.name, shown, differs, self.steps)


@dataclass
class _Ratio:
    """A log likelihood ratio so far."""

    aspect: Aspect
    quantity: str
    name: str
    effect: str = ""
    """Quantity whose limit the ratio for each token must exceed; empty if any effect counts."""
    total: float = 0.0
    tokens: float = 0.0
    steps: int = 0

    def after(self, values: Values, limits: Thresholds) -> list[Finding]:
        """What the steps show with one more."""
        nats = values.get((self.aspect, self.quantity))
        if nats is None:
            return []
        self.total, self.steps = self.total + nats, self.steps + 1
        self.tokens += values.get((Aspect.SAMPLING, "nll_minus_entropy_tokens")) or 0.0
        if self.steps < 2:
            return []
        bound = math.log(1.0 / POOLED_CHANCE)
        least = limits.of(self.aspect, self.effect) if self.effect else None
        enough = not self.effect or (least is not None and self.total > least * self.tokens)
        shown = (("pooled_nats", max(0.0, self.total), bound),)
        return _findings(self.aspect, self.name, shown, self.total > bound and enough, self.steps)
