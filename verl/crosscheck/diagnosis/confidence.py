# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How sure a verdict is, by the rule that stands beside `limits.STRONG`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from verl.crosscheck.diagnosis.assess import BY_ROWS, LOG_PROBS, by_rows_alone, state_of, strength
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Finding, Phase, State, StepComparison
from verl.crosscheck.diagnosis.reading import StepReading
from verl.crosscheck.diagnosis.reasons import Because
from verl.crosscheck.diagnosis.reference import Reference
from verl.crosscheck.diagnosis.thresholds import MISSING_SHARE, STEPS_FOR_HIGH, STRONG

ESSENTIAL = (Aspect.ROLLOUT_TAKER, Aspect.FORWARD, Aspect.UPDATE)
"""What must have been compared for "no fault seen"."""

BESIDES = (Aspect.SAMPLING, Aspect.SYNC)
"""What must have been compared too for being very sure of it, with the change of the weights."""


def strongest(findings: Iterable[Finding]) -> float:
    """How many times beyond its limit the strongest finding is; 0 without one."""
    return max((strength(each) for each in findings), default=0.0)


def of_accusation(phase: Phase, readings: Sequence[StepReading], reference: Reference) -> Confidence:
    """How sure it is that the phase is at fault.

    Args:
        phase: that is accused.
        readings: of the steps that accuse it.
        reference: what is known of run B.
    """
    findings = [finding for each in readings for finding in each.evidence]
    quantities = {each.quantity for each in findings if each.aspect in LOG_PROBS}
    if quantities == {BY_ROWS} and len(quantities) == len({each.quantity for each in findings}):
        return Confidence.LOW
    strong = len(readings) > 1 or strongest(findings) >= STRONG
    shown = reference.well_shown or not _rests_on_reference(phase, readings[0])
    return (Confidence.LOW, Confidence.FAIR, Confidence.HIGH)[strong + shown]


def _rests_on_reference(phase: Phase, reading: StepReading) -> bool:
    if phase is Phase.TRAINING_FORWARD:
        return Because.ROLLOUT_AGREES_WITH_B not in reading.training_because
    return phase is Phase.ROLLOUT and reading.needs_reference


def missing_essentials(steps: Sequence[StepComparison], rollout: bool = True) -> tuple[Aspect, ...]:
    """Essential aspects that are missing in too many steps.

    Args:
        steps: assessed.
        rollout: whether the rollout phase counts among the essential.
    """
    aspects = [aspect for aspect in ESSENTIAL if rollout or aspect is not Aspect.ROLLOUT_TAKER]
    return tuple(
        aspect
        for aspect in aspects
        if sum(state_of(each.findings, aspect) is State.MISSING for each in steps) > MISSING_SHARE * len(steps)
        or not steps
    )


def of_no_fault(steps: Sequence[StepComparison]) -> Confidence:
    """How sure it is that nothing is wrong, nothing being seen in steps that were compared in all that is essential."""
    if any(by_rows_alone(each.findings, aspect) for each in steps for aspect in ESSENTIAL):
        return Confidence.LOW
    complete = all(_complete(each) for each in steps)
    return Confidence.HIGH if complete and len(steps) >= STEPS_FOR_HIGH else Confidence.FAIR


def _complete(step: StepComparison) -> bool:
    changes = any(each.quantity == "change_rel_diff" and each.value is not None for each in step.findings)
    return changes and all(state_of(step.findings, aspect) is State.AGREE for aspect in (*ESSENTIAL, *BESIDES))
