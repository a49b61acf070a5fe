# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What follows from the readings of all steps: the confidence of a verdict, what was not compared, what to do next.

The rule of confidence stands beside `thresholds.STRONG`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from verl.crosscheck.diagnosis.assess import BY_ROWS, LOG_PROBS, beyond_by_chance, by_rows_alone, state_of, strength
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Finding, Phase, State, StepComparison
from verl.crosscheck.diagnosis.reading import StepReading
from verl.crosscheck.diagnosis.reference import Reference
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.diagnosis.thresholds import FAR, MISSING_SHARE, STEPS_FOR_HIGH, STRONG
from verl.crosscheck.reasons import Reason, ReasonCode, because

ESSENTIAL = (Aspect.ROLLOUT_TAKER, Aspect.FORWARD, Aspect.UPDATE)
"""What must have been compared for "no fault found"."""

BESIDES = (Aspect.SAMPLING, Aspect.SYNC, Aspect.INDEPENDENCE)
"""What must have been compared too for being very sure of it, with the change of the weights."""


def strongest(findings: Iterable[Finding]) -> float:
    """How many times beyond its limit the strongest finding is; 0 without one."""
    return max((strength(each) for each in findings), default=0.0)


@dataclass(frozen=True)
class AtFault:
    """That a step shows a phase at fault."""

    reading: StepReading
    because: tuple[Because, ...]
    aspects: tuple[Aspect, ...]
    """What it rests on."""
    rests_on_reference: bool = False
    """Whether it rests on B's rollout and training agreeing with each other."""
    rests_on_b: bool = False
    """Whether it rests on B being right where the two runs differ and no third engine tells which is."""
    unconfirmed: bool = False
    """Whether scenario 1, which would confirm it, was not run."""

    @property
    def evidence(self) -> tuple[Finding, ...]:
        """What differs in the aspects that it rests on."""
        return self.reading.evidence(self.aspects)


def of_fault(at_fault: Sequence[AtFault], reference: Reference) -> Confidence:
    """How sure it is that a phase is at fault.

    Args:
        at_fault: the steps that show it, in the order of steps.
        reference: what is known of run B.
    """
    findings = [finding for each in at_fault for finding in each.evidence]
    quantities = {each.quantity for each in findings if each.aspect in LOG_PROBS}
    if quantities == {BY_ROWS} and len(quantities) == len({each.quantity for each in findings}):
        return Confidence.LOW
    if any(_is_calibrated(each) for each in findings) or reference.because is Because.REFERENCE_SHOWN_BY_CONTROL:
        strong = len(at_fault) > 1 or strongest(findings) >= STRONG
    else:
        strong = strongest(findings) >= FAR
    first = at_fault[0]
    shown = (reference.well_shown or not first.rests_on_reference) and not (first.rests_on_b or first.unconfirmed)
    return (Confidence.LOW, Confidence.MEDIUM, Confidence.HIGH)[strong + shown]


CALIBRATED = (Aspect.SAMPLING, Aspect.SYNC, Aspect.ENDING, Aspect.INDEPENDENCE, Aspect.OUTCOME, Aspect.INPUTS)
"""Aspects whose thresholds are those of chance, or of what must be exact."""


def _is_calibrated(finding: Finding) -> bool:
    """Whether a finding's threshold fits the pair: exact, of a test of chance, or by a prediction of noise."""
    return finding.aspect in CALIBRATED or finding.predicted is not None or not finding.limit


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
    return Confidence.HIGH if complete and len(steps) >= STEPS_FOR_HIGH else Confidence.MEDIUM


def _complete(step: StepComparison) -> bool:
    known = {each.quantity for each in step.findings if each.value is not None}
    agree = all(state_of(step.findings, aspect) is State.AGREE for aspect in (*ESSENTIAL, *BESIDES))
    critic = any(each.quantity == "critic_update" for each in step.findings)
    beyond = any(beyond_by_chance(each) for each in step.findings)
    return agree and not critic and not beyond and known >= {"change_rel_diff", "reward_recomputed_rel_diff_max"}


BY_PHASE = {
    Phase.ROLLOUT: (Next.COLLECT_ROLLOUT,),
    Phase.TRAINING_FORWARD: (Next.COLLECT_ACTOR_FORWARD, Next.DECODE_WORST_ROWS),
    Phase.TRAINING_UPDATE: (Next.COLLECT_ACTOR_UPDATE, Next.CHECK_OPTIMISER),
    Phase.BOTH: (Next.COLLECT_ROLLOUT,),
    Phase.REFERENCE: (Next.CHECK_REFERENCE,),
    Phase.REWARD_OR_ADVANTAGE: (Next.CHECK_INPUTS,),
    Phase.NO_FAULT: (Next.RUN_LONGER,),
    Phase.INCONCLUSIVE: (),
}

BY_RULE = {
    Because.SAMPLING_NOT_AS_CLAIMED: (Next.CHECK_SAMPLING_SETTINGS,),
    Because.WEIGHTS_NOT_IN_ENGINE: (Next.CHECK_WEIGHT_SYNC,),
    Because.RESPONSES_CUT: (Next.CHECK_STOP_TOKENS,),
    Because.STOP_TOKEN_INSIDE: (Next.CHECK_STOP_TOKENS,),
    Because.SAMPLES_NOT_INDEPENDENT: (Next.CHECK_SEEDS,),
    Because.ROLLOUT_DIFFERS: (Next.DECODE_WORST_ROWS,),
    Because.FORWARD_DIFFERS: (Next.COLLECT_ACTOR_FORWARD,),
    Because.UPDATE_DIFFERS: (Next.COLLECT_ACTOR_UPDATE,),
    Because.INPUTS_DIFFER: (Next.CHECK_INPUTS,),
    Because.NO_COMMON_ROWS: (Next.CHECK_INPUTS,),
    Because.CANNOT_TELL_WHICH: (Next.GET_CONTROL,),
    Because.REFERENCE_SHOWN_ONLY_BEFORE: (Next.RUN_SCENARIO_2, Next.GET_LONGER_CONTROL),
    Because.ENGINES_OF_A_AGREE_AGAINST_B: (Next.RUN_SCENARIO_2, Next.COLLECT_ACTOR_FORWARD),
    Because.EACH_SIDE_AGREES_WITH_ITSELF: (Next.CHECK_WEIGHTS_AND_CODE, Next.COLLECT_ACTOR_FORWARD),
    Because.EACH_ROLLOUT_AGREES_WITH_THE_OTHER: (Next.COLLECT_ACTOR_FORWARD,),
    Because.READINGS_CONTRADICT: (Next.GET_CONTROL, Next.COLLECT_ACTOR_FORWARD),
    Because.TRAININGS_MAY_SHARE_A_FAULT: (Next.CHECK_REFERENCE, Next.DECODE_WORST_ROWS),
    Because.CANNOT_TELL_WHICH_TRAINING: (Next.GET_CONTROL, Next.COLLECT_ACTOR_FORWARD),
    Because.REFERENCE_DISAGREES_WITH_ITSELF: (Next.CHECK_REFERENCE,),
    Because.REFERENCE_NOT_FINITE: (Next.CHECK_REFERENCE,),
    Because.REFERENCE_ROLLOUT_AT_FAULT: (Next.CHECK_REFERENCE,),
    Because.FORWARD_UNKNOWN: (Next.SET_EVIDENCE_TOKENS, Next.SET_RECOMPUTE_LOG_PROBS),
    Because.ROLLOUT_OF_A_NOT_TESTED: (Next.RUN_SCENARIO_1,),
    Because.NO_STEPS: (Next.LOOK_AT_STATUS, Next.RUN_SCENARIO_1),
    Because.OUTCOME_ROLLOUT: (Next.GET_CONTROL,),
    Because.OUTCOME_TRAINING: (Next.COLLECT_ACTOR_FORWARD, Next.COLLECT_ACTOR_UPDATE),
}


def next_actions(
    phase: Phase,
    because: Sequence[Because],
    confidence: Confidence,
    reference: Reference,
    steps_1: Sequence[StepComparison],
    steps_2: Sequence[StepComparison],
) -> tuple[Next, ...]:
    """What to do next, most useful first."""
    found = [*BY_PHASE[phase], *(action for rule in because for action in BY_RULE.get(rule, ()))]
    if Because.ESSENTIAL_MISSING in because:
        found += _to_set(steps_1)
    weak = confidence is not Confidence.HIGH and not reference.well_shown
    if phase is Phase.ROLLOUT and weak and reference.because is not None:
        found.append(Next.GET_CONTROL)
    undecided = phase is Phase.NO_FAULT or Because.CANNOT_TELL_WHICH in because
    if undecided and steps_1 and not steps_2:
        found.append(Next.RUN_SCENARIO_2)
    return tuple(dict.fromkeys(found))


def _to_set(steps: Sequence[StepComparison]) -> Iterator[Next]:
    """Settings that make essential aspects comparable."""
    lacking = missing_essentials(steps)
    if Aspect.FORWARD in lacking:
        yield Next.SET_RECOMPUTE_LOG_PROBS
        yield Next.SET_EVIDENCE_TOKENS
    elif Aspect.ROLLOUT_TAKER in lacking:
        yield Next.SET_CALCULATE_LOG_PROBS
    if Aspect.UPDATE in lacking:
        yield Next.SET_EVIDENCE_TOKENS
    if Aspect.FORWARD in lacking and _lack_rollout(steps):
        yield Next.SET_CALCULATE_LOG_PROBS


def _lack_rollout(steps: Sequence[StepComparison]) -> bool:
    both = (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER)
    return all(state_of(each.findings, aspect) is State.MISSING for each in steps for aspect in both)


def not_compared(steps_1: Sequence[StepComparison], steps_2: Sequence[StepComparison]) -> dict[str, Reason]:
    """By `aspect/quantity`: why it was not compared, and in how many steps if not in all. `scenario_1` if there is
    none."""
    steps = (*steps_1, *steps_2)
    counts: dict[str, int] = {}
    reasons: dict[str, Reason] = {}
    for each in steps:
        for finding in each.findings:
            if finding.state is State.MISSING and finding.reason is not None:
                key = f"{finding.aspect.value}/{finding.quantity}"
                counts[key] = counts.get(key, 0) + 1
                reasons.setdefault(key, finding.reason)
    found = {} if steps_1 else {"scenario_1": because(ReasonCode.SCENARIO_1_NOT_RUN)}
    for key, reason in reasons.items():
        some = because(ReasonCode.IN_SOME_STEPS, why=reason, steps=counts[key], all_steps=len(steps))
        found[key] = reason if counts[key] == len(steps) else some
    return found
