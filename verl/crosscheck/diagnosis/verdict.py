# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From comparisons of steps to a verdict: pure, so the same comparisons always give the same verdict.

Run A is the suspect, B the healthy one. In scenario 1 A is the sampler (mode `ckpt`), in scenario 2 the taker.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl.crosscheck.diagnosis.assess import reassess
from verl.crosscheck.diagnosis.collapse import judge_outcomes
from verl.crosscheck.diagnosis.conclusions import (
    missing_essentials,
    next_actions,
    not_compared,
    of_fault,
    of_no_fault,
    strongest,
)
from verl.crosscheck.diagnosis.findings import Confidence, Phase, StepComparison, Verdict, VerdictEvidence
from verl.crosscheck.diagnosis.reading import StepReading, read_step
from verl.crosscheck.diagnosis.reference import (
    ASSUMED,
    Reference,
    from_other_steps,
    limits_beside_other_steps,
    reference_of,
)
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import Thresholds

MAX_EVIDENCE = 12

ROLLOUT, FORWARD, UPDATE = Phase.ROLLOUT, Phase.TRAINING_FORWARD, Phase.TRAINING_UPDATE


def judge(
    *,
    scenario_1: Sequence[StepComparison] = (),
    scenario_2: Sequence[StepComparison] = (),
    control: Sequence[StepComparison] = (),
    limits: Thresholds,
) -> Verdict:
    """Which phase of run A is at fault, since when, and how sure.

    Args:
        scenario_1: steps in which A sampled and B trained on it; in any order.
        scenario_2: steps in which B sampled.
        control: steps of two healthy runs, B against B. Their noise replaces limits, see `reference.with_control`.
        limits: what everything is assessed with anew.
    """
    reference, limits = reference_of(control, scenario_2, limits)
    steps_1, steps_2 = (_assessed(each, limits) for each in (scenario_1, scenario_2))
    if reference.healthy is None:
        reference = from_other_steps(steps_1)
        if reference.healthy:
            steps_1 = _assessed(steps_1, limits_beside_other_steps(steps_1, limits))
    readings = [
        *(read_step(each, 1, reference.healthy) for each in steps_1),
        *(read_step(each, 2, reference.healthy) for each in steps_2),
    ]
    return _verdict(steps_1, steps_2, readings, reference, limits)


def judge_step(comparison: StepComparison, healthy_reference: bool, limits: Thresholds, scenario: int = 1) -> Verdict:
    """The verdict of one step alone; it is an experiment of its own, since weights are equal again after each.

    Args:
        comparison: of the step.
        healthy_reference: whether rollout and training of B are known to agree with each other, by a control or by
            other steps.
        limits: what the comparison is assessed with anew.
        scenario: 1 if A is the sampler, 2 if it is the taker.
    """
    steps = _assessed((comparison,), limits)
    reference = ASSUMED if healthy_reference else Reference(None)
    readings = [read_step(each, scenario, reference.healthy) for each in steps]
    pair = (steps, []) if scenario == 1 else ([], steps)
    return _verdict(*pair, readings, reference, limits)


def _assessed(comparisons: Sequence[StepComparison], limits: Thresholds) -> list[StepComparison]:
    return sorted((reassess(each, limits) for each in comparisons), key=lambda each: each.global_step)


def _verdict(
    steps_1: list[StepComparison],
    steps_2: list[StepComparison],
    readings: list[StepReading],
    reference: Reference,
    limits: Thresholds,
) -> Verdict:
    at_fault = _found_at_fault(readings, reference)
    phase, because, confidence, details = (
        _by_fault(at_fault, reference) if at_fault else _without(steps_1, steps_2, readings, reference)
    )
    doubts = list(dict.fromkeys(doubt for each in readings for doubt in each.doubts))
    details |= {
        "limits": limits.name,
        "control_steps": limits.control_steps,
        "doubts": [doubt.value for doubt in doubts],
        **({"reference_disagrees_in": list(reference.where)} if reference.where else {}),
    }
    first_steps = [found[0].global_step for found in at_fault.values()]
    return Verdict(
        phase=phase,
        confidence=confidence,
        first_step=min(first_steps, default=None),
        steps=len(steps_1) + len(steps_2),
        because=tuple(each.value for each in because),
        evidence=_evidence(at_fault, readings),
        not_compared=not_compared(steps_1, steps_2),
        next_actions=tuple(
            each.value for each in next_actions(phase, because, confidence, reference, steps_1, steps_2)
        ),
        details=details,
    )


def _found_at_fault(readings: list[StepReading], reference: Reference) -> dict[Phase, list[StepReading]]:
    """The readings that show each phase at fault, in the order of steps; phases in the order of their first one."""
    found: dict[Phase, list[StepReading]] = {}
    for each in sorted(readings, key=lambda reading: reading.global_step):
        if each.rollout:
            found.setdefault(ROLLOUT, []).append(each)
        if each.training and reference.reproducible:
            found.setdefault(each.training, []).append(each)
    return found


def _by_fault(
    at_fault: dict[Phase, list[StepReading]], reference: Reference
) -> tuple[Phase, list[Because], Confidence, dict[str, object]]:
    training = next((phase for phase in at_fault if phase is not ROLLOUT), None)
    phase = Phase.BOTH if training and ROLLOUT in at_fault else training or ROLLOUT
    because = list(dict.fromkeys(rule for name, found in at_fault.items() for rule in _rules(name, found[0])))
    if any(found[0].needs_reference for found in at_fault.values()) and reference.because:
        because.append(reference.because)
    every = {name: of_fault(name, found, reference) for name, found in at_fault.items()}
    named = [level for name, level in every.items() if phase is Phase.BOTH or name is phase]
    details: dict[str, object] = {
        "phases": {
            name.value: {
                "first_step": found[0].global_step,
                "steps": [each.global_step for each in found],
                "scenarios": sorted({each.scenario for each in found}),
                "because": [rule.value for rule in _rules(name, found[0])],
                "confidence": every[name].value,
            }
            for name, found in at_fault.items()
        }
    }
    return phase, because, min(named, key=_LEVELS.index), details


_LEVELS = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def _rules(phase: Phase, reading: StepReading) -> tuple[Because, ...]:
    return reading.rollout if phase is ROLLOUT else reading.training_because


def _without(
    steps_1: list[StepComparison], steps_2: list[StepComparison], readings: list[StepReading], reference: Reference
) -> tuple[Phase, list[Because], Confidence, dict[str, object]]:
    """The verdict where no step shows a fault."""
    if not readings:
        return Phase.INCONCLUSIVE, [Because.NO_STEPS], Confidence.LOW, {}
    doubts = list(dict.fromkeys(doubt for each in readings for doubt in each.doubts))
    if not reference.reproducible and Because.REFERENCE_DISAGREES_WITH_ITSELF not in doubts:
        doubts.append(Because.REFERENCE_DISAGREES_WITH_ITSELF)
    if doubts:
        share = sum(bool(each.doubts) for each in readings) / len(readings)
        return Phase.INCONCLUSIVE, doubts, Confidence.MEDIUM, {"share_of_steps_in_doubt": share}
    lacking = missing_essentials(steps_1)
    if not lacking and steps_1:
        return Phase.NO_FAULT, [Because.ALL_AGREE], of_no_fault(steps_1), {}
    details: dict[str, object] = {"essential_missing": [each.value for each in lacking]}
    outcomes = judge_outcomes(steps_1, steps_2)
    details["collapsed"] = {str(scenario): list(names) for scenario, names in outcomes.collapsed.items() if names}
    if outcomes.because is Because.OUTCOME_ROLLOUT:
        return ROLLOUT, [Because.ESSENTIAL_MISSING, outcomes.because], Confidence.LOW, details
    if outcomes.because is Because.OUTCOME_TRAINING:
        phase = UPDATE if not missing_essentials(steps_2, rollout=False) else FORWARD
        return phase, [Because.ESSENTIAL_MISSING, outcomes.because], Confidence.LOW, details
    rule = Because.ESSENTIAL_MISSING if steps_1 else Because.ROLLOUT_OF_A_NOT_TESTED
    because = [rule] if outcomes.because is None else [rule, outcomes.because]
    return Phase.INCONCLUSIVE, because, Confidence.MEDIUM, details


def _evidence(at_fault: dict[Phase, list[StepReading]], readings: list[StepReading]) -> tuple[VerdictEvidence, ...]:
    """Of the first step in which each phase is at fault, strongest first; of doubts if none is."""
    first = [found[0] for found in at_fault.values()] or [each for each in readings if each.doubts][:2]
    unique = {id(each): each for each in first}.values()
    found = [VerdictEvidence(each.scenario, each.global_step, finding) for each in unique for finding in each.evidence]
    return tuple(sorted(found, key=lambda each: -strongest([each.finding]))[:MAX_EVIDENCE])
