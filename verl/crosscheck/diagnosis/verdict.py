# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From comparisons of steps to a verdict: pure, so the same comparisons always give the same verdict.

Run A is the suspect, B is taken for healthy, as far as the engines do not show otherwise (`alone`). In scenario 1 A is
the sampler (mode `ckpt`), in scenario 2 the taker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl.crosscheck.diagnosis.alone import Alone, Conclusion, conclude, summary
from verl.crosscheck.diagnosis.assess import LOG_PROBS, reassess
from verl.crosscheck.diagnosis.collapse import judge_outcomes
from verl.crosscheck.diagnosis.conclusions import (
    AtFault,
    missing_essentials,
    next_actions,
    not_compared,
    of_fault,
    of_no_fault,
    strongest,
)
from verl.crosscheck.diagnosis.findings import (
    Aspect,
    Confidence,
    Finding,
    Phase,
    StepComparison,
    Verdict,
    VerdictEvidence,
)
from verl.crosscheck.diagnosis.pooling import pooled
from verl.crosscheck.diagnosis.predictions import carried_on
from verl.crosscheck.diagnosis.reading import SELF_EVIDENT, StepReading, read_step
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
OF_A = (ROLLOUT, FORWARD, UPDATE)
FORWARD_ASPECTS = (Aspect.FORWARD, Aspect.REFERENCE)


def judge(
    *,
    scenario_1: Sequence[StepComparison] = (),
    scenario_2: Sequence[StepComparison] = (),
    control: Sequence[StepComparison] = (),
    limits: Thresholds,
    control_alike: bool = True,
) -> Verdict:
    """Which phase of run A is at fault, since when, and how sure.

    Args:
        scenario_1: steps in which A sampled and B trained on it; in any order.
        scenario_2: steps in which B sampled.
        control: steps of two healthy runs, B against B. Their noise replaces limits, see `reference.with_control`.
        limits: what everything is assessed with anew.
        control_alike: whether devices, engine and number formats of A are those of the control.
    """
    reference, limits = reference_of(control, scenario_2, limits, control_alike=control_alike)
    steps_1, steps_2 = (_assessed(each, limits) for each in (scenario_1, scenario_2))
    if reference.healthy is None:
        reference = from_other_steps(steps_1)
        if reference.healthy:
            steps_1 = _assessed(steps_1, limits_beside_other_steps(steps_1, limits))
    return _verdict(steps_1, steps_2, reference, limits)


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
    return _verdict(*((steps, []) if scenario == 1 else ([], steps)), reference, limits)


def _assessed(comparisons: Sequence[StepComparison], limits: Thresholds) -> list[StepComparison]:
    steps = carried_on(sorted(comparisons, key=lambda each: each.global_step))
    return [reassess(each, limits) for each in steps]


@dataclass(frozen=True)
class _Judged:
    """What a step's reading amounts to, beside the other scenario."""

    reading: StepReading
    at_fault: Mapping[Phase, AtFault]
    doubts: tuple[Because, ...]
    doubtful: tuple[Finding, ...]
    """What the doubts are about."""


class _BothScenarios:
    """Judges the readings of both scenarios, each beside what the other scenario shows.

    Args:
        readings: of all steps.
        reference: what is known of run B.
    """

    def __init__(self, readings: Sequence[StepReading], reference: Reference) -> None:
        self._reference = reference
        self._readings = {n: [each for each in readings if each.scenario == n] for n in (1, 2)}

    def _in_scenario(self, scenario: int, global_step: int) -> Alone:
        """The engine that stands alone in the other scenario. That none does counts up to its last step."""
        readings = self._readings[scenario]
        found = summary([each.alone for each in readings])
        last = max((each.global_step for each in readings), default=0)
        return Alone.NOT_RUN if found is Alone.NOBODY and last < global_step else found

    def judged(self, reading: StepReading) -> _Judged:
        at_fault: dict[Phase, AtFault] = {}
        doubts = list(reading.doubts)
        if reading.rollout:
            aspects = (*SELF_EVIDENT, Aspect.ROLLOUT_TAKER) if reading.scenario == 1 else tuple(SELF_EVIDENT)
            if reading.scenario == 1:
                at_fault[ROLLOUT] = AtFault(reading, reading.rollout, aspects)
            else:
                rules = (Because.REFERENCE_ROLLOUT_AT_FAULT, *reading.rollout)
                at_fault[Phase.REFERENCE] = AtFault(reading, rules, aspects)
        if reading.alone not in (Alone.NOBODY, Alone.NOT_RUN):
            doubts += self._engines(reading, at_fault)
        if reading.reference_policy and self._reference.reproducible:
            rules = (Because.REFERENCE_POLICY_DIFFERS, *self._following(reading))
            at_fault[FORWARD] = AtFault(reading, rules, FORWARD_ASPECTS, rests_on_b=True)
        self._update(reading, at_fault)
        if reading.findings and not at_fault and not doubts and not reading.driver:
            doubts.append(Because.SOMETHING_DIFFERS)
        if reading.driver:
            at_fault[Phase.REWARD_OR_ADVANTAGE] = AtFault(reading, reading.driver, (Aspect.INPUTS,))
        about = {
            Because.INPUTS_DIFFER: (Aspect.INPUTS, Aspect.UPDATE),
            Because.FORWARD_UNKNOWN: (Aspect.UPDATE,),
            Because.NO_COMMON_ROWS: (Aspect.INPUTS,),
            Because.SOMETHING_DIFFERS: tuple(Aspect),
            Because.REFERENCE_NOT_FINITE: (Aspect.OUTCOME, Aspect.UPDATE),
        }
        aspects = tuple(aspect for doubt in doubts for aspect in about.get(doubt, LOG_PROBS))
        return _Judged(reading, at_fault, tuple(dict.fromkeys(doubts)), reading.evidence(aspects))

    def _engines(self, reading: StepReading, at_fault: dict[Phase, AtFault]) -> list[Because]:
        """Add the engine that stands alone to `at_fault`; return the doubts where it cannot be named."""
        if reading.alone is Alone.ROLLOUT and reading.rollout:
            return []  # explained by what needs no reference
        step = reading.global_step
        one, two = (reading.alone if reading.scenario == n else self._in_scenario(n, step) for n in (1, 2))
        shown = self._reference.shown(step)
        # A reference is shown as far as the noise of a rollout engine: it does not decide within that.
        within_noise = reading.alone is Alone.UNDECIDED and not reading.rollout_off_too
        found = conclude(one, two, shown=shown and not within_noise)
        named = _named(found.phase, reading.alone)
        if named is None:
            return [self._doubt(reading, found)]
        rests = reading.alone is Alone.UNDECIDED or (reading.alone is Alone.ROLLOUT and reading.scenario == 1)
        rules = found.because
        if found.phase is Phase.BOTH:  # each engine has rules of its own
            rules = tuple(r for r in rules if (r is Because.ROLLOUT_DIFFERS) is (reading.alone is Alone.ROLLOUT))
        aspects = _shown_by(reading)
        if named is FORWARD:
            if not self._reference.reproducible:
                return [Because.REFERENCE_DISAGREES_WITH_ITSELF]
            differs = [Because.FORWARD_DIFFERS] if reading.evidence((Aspect.FORWARD,)) else []
            rules = tuple(dict.fromkeys([*differs, *rules, *self._following(reading)]))
        unsure = named is FORWARD and one not in (Alone.TRAINING_A, Alone.UNDECIDED)
        at_fault.setdefault(named, AtFault(reading, rules, aspects, rests_on_reference=rests, unconfirmed=unsure))
        if named is FORWARD and reading.rollout_off_too and reading.scenario == 1 and not reading.rollout:
            if not shown:
                return [Because.CANNOT_TELL_WHICH]
            rules = (Because.ROLLOUT_DIFFERS_FROM_ALL,)
            at_fault[ROLLOUT] = AtFault(reading, rules, (Aspect.ROLLOUT_TAKER,), rests_on_reference=True)
        return []

    def _doubt(self, reading: StepReading, found: Conclusion) -> Because:
        """Why the engine that stands alone cannot be named."""
        if found.phase is Phase.INCONCLUSIVE:
            because = found.because[0]
        elif reading.alone is Alone.ROLLOUT:
            own = reading.scenario == 1
            because = Because.CANNOT_TELL_WHICH if own else Because.REFERENCE_DISAGREES_WITH_ITSELF
        elif reading.alone is Alone.TRAINING_B:
            because = Because.ENGINES_OF_A_AGREE_AGAINST_B
        else:
            because = Because.CANNOT_TELL_WHICH_TRAINING
        healthy = self._reference.healthy
        if because is Because.CANNOT_TELL_WHICH and healthy is not None:
            return Because.REFERENCE_SHOWN_ONLY_BEFORE if healthy else Because.REFERENCE_DISAGREES_WITH_ITSELF
        return because

    @staticmethod
    def _following(reading: StepReading) -> tuple[Because, ...]:
        """What differs as a consequence of the forward pass."""
        inputs, update = reading.inputs_follow, reading.update_follows
        return (*[Because.INPUTS_FOLLOW] * inputs, *[Because.UPDATE_FOLLOWS] * update)

    def _update(self, reading: StepReading, at_fault: dict[Phase, AtFault]) -> None:
        if not reading.update or not self._reference.reproducible:
            return
        of_b = Because.ONLY_B_LEFT_UNMOVED in reading.update and Because.ONLY_A_LEFT_UNMOVED not in reading.update
        unsure = {Because.UPDATE_OF_B_TAKEN_AS_RIGHT, Because.UNMOVED_MAY_BE_MEANT} & set(reading.update)
        shown = AtFault(reading, reading.update, (Aspect.UPDATE, Aspect.OUTCOME), rests_on_b=bool(unsure))
        at_fault.setdefault(Phase.REFERENCE if of_b else UPDATE, shown)


def _shown_by(reading: StepReading) -> tuple[Aspect, ...]:
    """The aspects that show which engine of a step stands alone, the plainest that differ."""
    rollout = ((Aspect.ROLLOUT_TAKER,), (Aspect.ROLLOUT_SAMPLER,))
    order = rollout if reading.alone is Alone.ROLLOUT else (FORWARD_ASPECTS, *rollout)
    return next((aspects for aspects in order if reading.evidence(aspects)), LOG_PROBS)


def _named(phase: Phase, alone: Alone) -> Phase | None:
    """The phase that a conclusion names of the engine that stands alone in a step; None if it names no phase of it."""
    own = {
        Alone.ROLLOUT: (ROLLOUT, Phase.REFERENCE),
        Alone.TRAINING_A: (FORWARD,),
        Alone.TRAINING_B: (Phase.REFERENCE,),
        Alone.UNDECIDED: (FORWARD,),
    }[alone]
    return own[0] if phase is Phase.BOTH else phase if phase in own else None


def _verdict(
    steps_1: list[StepComparison], steps_2: list[StepComparison], reference: Reference, limits: Thresholds
) -> Verdict:
    steps_1, steps_2 = pooled(steps_1, limits), pooled(steps_2, limits)
    readings = [read_step(each, n) for n, steps in ((1, steps_1), (2, steps_2)) for each in steps]
    scenarios = _BothScenarios(readings, reference)
    every = [scenarios.judged(each) for each in readings]
    at_fault = _by_phase(every)
    if set(at_fault) == {UPDATE} and _forward_differs_as_often(at_fault[UPDATE], readings):
        at_fault = {}
    doubts = list(dict.fromkeys(doubt for each in every for doubt in each.doubts))
    phase, because, confidence, details = (
        _by_fault(at_fault, reference) if at_fault else _without(steps_1, steps_2, every, doubts, reference)
    )
    details |= {
        "limits": limits.name,
        "control_steps": limits.control_steps,
        "doubts": [doubt.value for doubt in doubts],
        "alone": _standing_alone(readings),
        **({"reference_disagrees_in": list(reference.where)} if reference.where else {}),
    }
    named = [found[0].reading.global_step for name, found in at_fault.items() if name is phase or phase is Phase.BOTH]
    return Verdict(
        phase=phase,
        confidence=confidence,
        first_step=min(named, default=None),
        steps=len(steps_1) + len(steps_2),
        because=tuple(each.value for each in because),
        evidence=_evidence(at_fault, every),
        not_compared=not_compared(steps_1, steps_2),
        next_actions=tuple(
            each.value for each in next_actions(phase, because, confidence, reference, steps_1, steps_2)
        ),
        details=details,
    )


def _standing_alone(readings: Sequence[StepReading]) -> dict[str, dict[str, str]]:
    """By scenario and step: the engine that stands alone; steps without one are left out."""
    found: dict[str, dict[str, str]] = {}
    for each in readings:
        if each.alone not in (Alone.NOBODY, Alone.NOT_RUN):
            found.setdefault(str(each.scenario), {})[str(each.global_step)] = each.alone.value
    return found


def _forward_differs_as_often(updates: Sequence[AtFault], readings: Sequence[StepReading]) -> bool:
    """Whether the training engines differ in at least as many steps as those in which the updates alone do: then these
    follow from a difference of the forward pass that is just below its threshold."""
    differing = sum(each.alone in (Alone.TRAINING_B, Alone.UNDECIDED) for each in readings)
    return differing >= len(updates) and all(each.rests_on_b for each in updates)


def _by_phase(every: Sequence[_Judged]) -> dict[Phase, list[AtFault]]:
    """The steps that show each phase at fault, in order; phases in the order of their first one."""
    found: dict[Phase, list[AtFault]] = {}
    for each in sorted(every, key=lambda judged: judged.reading.global_step):
        for phase, shown in each.at_fault.items():
            found.setdefault(phase, []).append(shown)
    return found


def _by_fault(
    at_fault: dict[Phase, list[AtFault]], reference: Reference
) -> tuple[Phase, list[Because], Confidence, dict[str, object]]:
    phase = _phase(at_fault)
    named = {name: found for name, found in at_fault.items() if phase is Phase.BOTH or name is phase}
    because = list(dict.fromkeys(rule for found in named.values() for rule in found[0].because))
    if any(found[0].rests_on_reference for found in named.values()) and reference.because:
        because.append(reference.because)
    every = {name: of_fault(found, reference) for name, found in at_fault.items()}
    details: dict[str, object] = {
        "phases": {
            name.value: {
                "first_step": found[0].reading.global_step,
                "steps": [each.reading.global_step for each in found],
                "scenarios": sorted({each.reading.scenario for each in found}),
                "because": [rule.value for rule in found[0].because],
                "confidence": every[name].value,
            }
            for name, found in at_fault.items()
        }
    }
    return phase, because, min((every[name] for name in named), key=_LEVELS.index), details


def _phase(at_fault: Mapping[Phase, list[AtFault]]) -> Phase:
    """The verdict's one word for all that is at fault.

    An update that differs may follow from a forward pass just below its threshold, so of the two the forward pass comes
    first unless it differs in fewer steps. What is wrong with B, or with what lies between the phases, comes first
    where nothing but a comparison with B speaks against A.
    """
    of_a = [phase for phase in OF_A if phase in at_fault]
    by_b_alone = all(each.rests_on_b or each.rests_on_reference for phase in of_a for each in at_fault[phase])
    for other in (Phase.REFERENCE, Phase.REWARD_OR_ADVANTAGE):
        if other in at_fault and by_b_alone:
            return other
    counts = {phase: len(at_fault.get(phase, ())) for phase in (FORWARD, UPDATE)}
    training = FORWARD if counts[FORWARD] and counts[FORWARD] >= counts[UPDATE] else UPDATE if counts[UPDATE] else None
    return Phase.BOTH if training and ROLLOUT in at_fault else training or ROLLOUT


_LEVELS = (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)


def _without(
    steps_1: list[StepComparison],
    steps_2: list[StepComparison],
    every: Sequence[_Judged],
    doubts: list[Because],
    reference: Reference,
) -> tuple[Phase, list[Because], Confidence, dict[str, object]]:
    """The verdict where no step shows a fault."""
    if not every:
        return Phase.INCONCLUSIVE, [Because.NO_STEPS], Confidence.LOW, {}
    doubts = list(doubts)
    if not reference.reproducible and Because.REFERENCE_DISAGREES_WITH_ITSELF not in doubts:
        doubts.append(Because.REFERENCE_DISAGREES_WITH_ITSELF)
    if doubts:
        share = sum(bool(each.doubts) for each in every) / len(every)
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


def _evidence(at_fault: Mapping[Phase, list[AtFault]], every: Sequence[_Judged]) -> tuple[VerdictEvidence, ...]:
    """Of the first step in which each phase is at fault, strongest first; of doubts if none is."""
    found = [
        VerdictEvidence(first.reading.scenario, first.reading.global_step, finding)
        for first in (found[0] for found in at_fault.values())
        for finding in first.evidence
    ]
    if not at_fault:
        found = [
            VerdictEvidence(each.reading.scenario, each.reading.global_step, finding)
            for each in [judged for judged in every if judged.doubts][:2]
            for finding in each.doubtful
        ]
    unique = [each for at, each in enumerate(found) if each not in found[:at]]
    return tuple(sorted(unique, key=lambda each: -strongest([each.finding]))[:MAX_EVIDENCE])
