# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether run B is a reference at all, and the thresholds that a control run measures.

**Control.** Two healthy runs, B against B, measure how far apart equal things are on a given setup. The noise floor of
a quantity is its largest value over the control's steps, a single outlier left out; its threshold is then a multiple of
that floor, between a share of the profile's threshold and the ceiling above which a floor is no noise. The numbers
stand in `thresholds`.

**Reference.** Rollout and training of B must agree with each other. Otherwise both training engines may share a fault,
and rollout(A) against train(B) shows nothing about A.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median
from types import MappingProxyType

from verl.crosscheck.diagnosis import thresholds as numbers
from verl.crosscheck.diagnosis.assess import LOG_PROBS, reassess, state_of
from verl.crosscheck.diagnosis.findings import Aspect, State, StepComparison
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import Thresholds, excess, value_at

MEASURED_ASPECTS = (*LOG_PROBS, Aspect.UPDATE, Aspect.ENDING)
"""Aspects whose limits a control measures. Counts, tests of chance and what must be exact keep theirs."""

KEPT = frozenset({"lr_rel_diff", "logprob_nonfinite_tokens"})

Floors = dict[str, float]
"""By `aspect/quantity`."""


def floors(control: Sequence[StepComparison]) -> Floors:
    """How far apart two healthy runs were, by `aspect/quantity`; of correlations, how far below 1."""
    return {
        f"{aspect.value}/{quantity}": _floor([excess(quantity, value) for value in values])
        for (aspect, quantity), values in _series(control).items()
    }


def with_control(limits: Thresholds, control: Sequence[StepComparison], *, alike: bool = True) -> Thresholds:
    """The limits that follow from a control.

    Args:
        limits: of the profile that fits.
        control: comparisons of two healthy runs, B as sampler and B as taker; empty leaves the limits as they are.
        alike: whether devices, engine and number formats of all runs are those of the control. Otherwise its noise is
            not A's, and no limit is lowered.
    """
    if not control:
        return limits
    steps = len(control)
    factor = numbers.CONTROL_FACTOR if steps >= numbers.CONTROL_ENOUGH else numbers.CONTROL_FACTOR_SHORT
    found = {}
    for key, floor in floors(control).items():
        aspect, _, quantity = key.partition("/")
        base = limits.of(Aspect(aspect), quantity)
        if base is not None and (floor > 0 or Aspect(aspect) is not Aspect.UPDATE):
            width = excess(quantity, base)
            least = numbers.CONTROL_SHRINK if alike else 1.0
            bounded = min(max(factor * floor, least * width), factor * numbers.CONTROL_CEILING * width)
            found[key] = value_at(quantity, bounded)
    own = MappingProxyType({**limits.own, **found})
    return replace(limits, name=f"{limits.name}+control", own=own, control_steps=steps, control_alike=alike)


def raised_to_noise(limits: Thresholds, steps: Sequence[StepComparison], aspect: Aspect) -> Thresholds:
    """Limits of one aspect, no lower than the noise of steps that agree allows; none is lowered. Quantities whose noise
    is predicted keep theirs.

    Args:
        limits: to begin with.
        steps: in which the aspect agrees; empty leaves the limits as they are.
        aspect: whose limits.
    """
    found = {}
    predicted = {f.quantity for step in steps for f in step.findings if f.aspect is aspect and f.predicted is not None}
    for key, floor in floors(steps).items():
        named, _, quantity = key.partition("/")
        base = limits.of(aspect, quantity)
        if named == aspect.value and base is not None and quantity not in predicted:
            factor = numbers.BESIDE_FACTOR ** (2 if quantity in numbers.SQUARES else 1)
            found[key] = value_at(
                quantity, max(factor * max(floor, _least(quantity, steps, aspect)), excess(quantity, base))
            )
    return replace(limits, own=MappingProxyType({**limits.own, **found}))


def _least(quantity: str, steps: Sequence[StepComparison], aspect: Aspect) -> float:
    """The smallest noise that so few tokens can show."""
    if quantity != "ratio_beyond_2_share":
        return 0.0
    tokens = [f.value for step in steps for f in step.findings if (f.aspect, f.quantity) == (aspect, "tokens")]
    return max((numbers.MIN_RATIO_TOKENS / each for each in tokens if each), default=0.0)


def beyond_noise(limits: Thresholds, control: Sequence[StepComparison], aspects: Iterable[Aspect]) -> tuple[str, ...]:
    """Floors, as `aspect/quantity`, that are too large to be noise: two healthy runs do not agree in them.

    Args:
        limits: of the profile, without the control.
        control: comparisons of two healthy runs.
        aspects: to look at.
    """
    chosen = {aspect.value for aspect in aspects}
    found = []
    for key, floor in floors(control).items():
        aspect, _, quantity = key.partition("/")
        base = limits.of(Aspect(aspect), quantity)
        if aspect in chosen and base is not None and floor > numbers.CONTROL_CEILING * excess(quantity, base):
            found.append(key)
    return tuple(found)


def _series(control: Sequence[StepComparison]) -> dict[tuple[Aspect, str], list[float]]:
    """Values of each measured quantity over the steps of the control."""
    found: dict[tuple[Aspect, str], list[float]] = {}
    for comparison in control:
        spread = {f.aspect: f.value for f in comparison.findings if f.quantity == "prob_spread"}
        for each in comparison.findings:
            if each.value is None or each.aspect not in MEASURED_ASPECTS or each.quantity in KEPT:
                continue
            if each.quantity == "pearson" and (spread.get(each.aspect) or 0.0) < numbers.MIN_PROB_SPREAD:
                continue
            found.setdefault((each.aspect, each.quantity), []).append(each.value)
    return found


def _floor(values: list[float]) -> float:
    middle = median(values)
    return min(max(values), numbers.CONTROL_OUTLIER * middle) if middle > 0 else max(values)


MAX_DIFFERING = 0.1
"""Share of steps in which the reference may be beyond a limit and still count as healthy."""


@dataclass(frozen=True)
class Reference:
    """What is known of run B, and for which steps."""

    healthy: bool | None
    """Whether its rollout agrees with its training; None if that is not known."""
    because: Because | None = None
    """How it is known."""
    until: float = math.inf
    """The last step for which it is known: what was healthy then may be at fault later."""
    reproducible: bool = True
    """False if the trainings of two healthy runs do not agree with each other."""
    where: tuple[str, ...] = ()
    """Quantities in which the control is beyond noise, as `aspect/quantity`."""

    def shown(self, global_step: int) -> bool:
        """Whether B is known to agree with itself in a step."""
        return bool(self.healthy) and global_step <= self.until

    @property
    def well_shown(self) -> bool:
        """Whether something else than the pair itself shows that it is healthy."""
        return bool(self.healthy) and self.because is not Because.REFERENCE_SHOWN_BY_OTHER_STEPS


ASSUMED = Reference(True, Because.REFERENCE_ASSUMED)
ITSELF = Because.REFERENCE_DISAGREES_WITH_ITSELF


def reference_of(
    control: Sequence[StepComparison],
    scenario_2: Sequence[StepComparison],
    limits: Thresholds,
    *,
    control_alike: bool = True,
) -> tuple[Reference, Thresholds]:
    """What control and scenario 2 say of run B, and the limits to use.

    Args:
        control: steps of B against B.
        scenario_2: steps in which B sampled and A trained on it.
        limits: of the profile. A control that is beyond noise does not replace them.
        control_alike: see `with_control`.
    """
    if control:
        rollout = beyond_noise(limits, control, (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER))
        training = beyond_noise(limits, control, (Aspect.FORWARD, Aspect.UPDATE))
        if rollout or training:
            where = (*rollout, *training)
            return Reference(False, ITSELF, reproducible=not training, where=where), limits
        limits = with_control(limits, control, alike=control_alike)
        if any(each.value is not None for c in control for each in c.findings if each.aspect in LOG_PROBS[:2]):
            until = max(each.global_step for each in control)
            return Reference(True, Because.REFERENCE_SHOWN_BY_CONTROL, until), limits
    assessed = [reassess(each, limits) for each in scenario_2]
    known = [
        (each.global_step, state)
        for each in assessed
        if (state := state_of(each.findings, Aspect.ROLLOUT_SAMPLER)) is not State.MISSING
    ]
    if not known:
        return Reference(None), limits
    if sum(state is State.DIFFER for _, state in known) > MAX_DIFFERING * len(known):
        return Reference(False, ITSELF), limits
    until = max(step for step, state in known if state is State.AGREE)
    return Reference(True, Because.REFERENCE_SHOWN_BY_SCENARIO_2, until), limits


def limits_beside_other_steps(scenario_1: Sequence[StepComparison], limits: Thresholds) -> Thresholds:
    """`limits`, where a pair's own steps are all that shows its noise.

    A step is not set apart by being just beyond a limit while the others are just below: it must be beyond the noise of
    the steps that agree, `BESIDE_FACTOR` times.

    Args:
        scenario_1: assessed.
        limits: that they were assessed with.
    """
    for aspect in (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER):
        agreeing = [each for each in scenario_1 if state_of(each.findings, aspect) is State.AGREE]
        limits = raised_to_noise(limits, agreeing, aspect)
    return limits


def from_other_steps(scenario_1: Sequence[StepComparison]) -> Reference:
    """What the pair itself shows: rollout(A) agrees with train(B) in the first step or in half of all steps, so the
    two can agree. That is known up to the last step in which they do.

    Args:
        scenario_1: assessed, in the order of steps.
    """
    known = [
        (each.global_step, state)
        for each in scenario_1
        if (state := state_of(each.findings, Aspect.ROLLOUT_TAKER)) is not State.MISSING
    ]
    agreeing = [step for step, state in known if state is State.AGREE]
    if agreeing and (known[0][1] is State.AGREE or 2 * len(agreeing) >= len(known)):
        return Reference(True, Because.REFERENCE_SHOWN_BY_OTHER_STEPS, max(agreeing))
    return Reference(None)
