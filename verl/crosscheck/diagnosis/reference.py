# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether run B is a reference at all: its rollout and its training must agree with each other.

Otherwise both training engines may share a fault, and rollout(A) against train(B) accuses nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from verl.crosscheck.diagnosis.assess import LOG_PROBS, reassess, state_of
from verl.crosscheck.diagnosis.control import beyond_noise, raised_to_noise, with_control
from verl.crosscheck.diagnosis.findings import Aspect, State, StepComparison
from verl.crosscheck.diagnosis.reasons import Because
from verl.crosscheck.diagnosis.thresholds import Thresholds

MAX_DIFFERING = 0.1
"""Share of steps in which the reference may be beyond a limit and still count as healthy."""


@dataclass(frozen=True)
class Reference:
    """What is known of run B."""

    healthy: bool | None
    """Whether its rollout agrees with its training; None if that is not known."""
    because: Because | None = None
    """How it is known."""
    reproducible: bool = True
    """False if the trainings of two healthy runs do not agree with each other."""
    where: tuple[str, ...] = ()
    """Quantities in which the control is beyond noise, as `aspect/quantity`."""

    @property
    def well_shown(self) -> bool:
        """Whether something else than the pair itself shows that it is healthy."""
        return bool(self.healthy) and self.because is not Because.REFERENCE_SHOWN_BY_OTHER_STEPS


ASSUMED = Reference(True, Because.REFERENCE_ASSUMED)
ITSELF = Because.REFERENCE_DISAGREES_WITH_ITSELF


def reference_of(
    control: Sequence[StepComparison], scenario_2: Sequence[StepComparison], limits: Thresholds
) -> tuple[Reference, Thresholds]:
    """What control and scenario 2 say of run B, and the limits to use.

    Args:
        control: steps of B against B.
        scenario_2: steps in which B sampled and A trained on it.
        limits: of the profile. A control that is beyond noise does not replace them.
    """
    if control:
        rollout = beyond_noise(limits, control, (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER))
        training = beyond_noise(limits, control, (Aspect.FORWARD, Aspect.UPDATE))
        if rollout or training:
            return Reference(False, ITSELF, not training, (*rollout, *training)), limits
        limits = with_control(limits, control)
        if any(each.value is not None for c in control for each in c.findings if each.aspect in LOG_PROBS[:2]):
            return Reference(True, Because.REFERENCE_SHOWN_BY_CONTROL), limits
    healthy = _mostly([state_of(reassess(each, limits).findings, Aspect.ROLLOUT_SAMPLER) for each in scenario_2])
    if healthy is None:
        return Reference(None), limits
    return Reference(healthy, Because.REFERENCE_SHOWN_BY_SCENARIO_2 if healthy else ITSELF), limits


def limits_beside_other_steps(scenario_1: Sequence[StepComparison], limits: Thresholds) -> Thresholds:
    """`limits`, where a pair's own steps are all that shows its noise.

    A step is not set apart by being just beyond a limit while the others are just below: it must be beyond the noise of
    the steps that agree, `BESIDE_FACTOR` times.

    Args:
        scenario_1: assessed.
        limits: that they were assessed with.
    """
    agreeing = [each for each in scenario_1 if state_of(each.findings, Aspect.ROLLOUT_TAKER) is State.AGREE]
    return raised_to_noise(limits, agreeing, Aspect.ROLLOUT_TAKER)


def _mostly(states: Sequence[State]) -> bool | None:
    """Whether nearly all of the known states agree; None if none is known."""
    known = [state for state in states if state is not State.MISSING]
    differing = sum(state is State.DIFFER for state in known)
    return differing <= MAX_DIFFERING * len(known) if known else None


def from_other_steps(scenario_1: Sequence[StepComparison]) -> Reference:
    """What the pair itself shows: rollout(A) agrees with train(B) in every step before it first does not, or in half of
    all steps, so the two can agree.

    Args:
        scenario_1: assessed, in the order of steps.
    """
    states = [state_of(each.findings, Aspect.ROLLOUT_TAKER) for each in scenario_1]
    known = [state for state in states if state is not State.MISSING]
    agreeing = sum(state is State.AGREE for state in known)
    starts_later = bool(known) and known[0] is State.AGREE
    if starts_later or (agreeing and 2 * agreeing >= len(known)):
        return Reference(True, Because.REFERENCE_SHOWN_BY_OTHER_STEPS)
    return Reference(None)
