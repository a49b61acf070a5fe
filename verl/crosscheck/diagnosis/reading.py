# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What one step of one scenario says: the decision table of the diagnosis, for a step.

Both runs hold equal weights at the start of each step, so a step is an experiment of its own. Run B is taken for
healthy, as far as it agrees with itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from verl.crosscheck.diagnosis.assess import state_of
from verl.crosscheck.diagnosis.findings import Aspect, Finding, Phase, State, StepComparison
from verl.crosscheck.diagnosis.rules import Because

AGREE, DIFFER, MISSING = State.AGREE, State.DIFFER, State.MISSING

SELF_EVIDENT = {
    Aspect.SAMPLING: Because.SAMPLING_NOT_AS_CLAIMED,
    Aspect.SYNC: Because.WEIGHTS_NOT_IN_ENGINE,
    Aspect.ENDING: Because.RESPONSES_CUT,
}
"""Aspects that show a fault of the sampler's rollout phase without a reference."""

FOLLOWING_INPUTS = ("advantage_rel_diff", "reward_rel_diff_max")
"""Inputs that are computed from log-probs, if KL is taken into the reward."""

NONFINITE_INPUTS = (Aspect.OUTCOME, Aspect.UPDATE)


@dataclass(frozen=True)
class StepReading:
    """Which phases of run A one step shows at fault, and why."""

    scenario: int
    global_step: int
    rollout: tuple[Because, ...] = ()
    """Why the rollout phase is at fault; empty if it is not."""
    training: Phase | None = None
    """`TRAINING_FORWARD` or `TRAINING_UPDATE` if training is at fault."""
    training_because: tuple[Because, ...] = ()
    doubts: tuple[Because, ...] = ()
    """What differs and shows no phase at fault."""
    evidence: tuple[Finding, ...] = ()
    """What differs in the phases at fault, or what the doubts are about if none is."""
    needs_reference: bool = False
    """Whether a fault rests on B agreeing with itself."""


@dataclass(frozen=True)
class _Part:
    """Part of a reading: what is at_fault, or in doubt, by which aspects."""

    because: tuple[Because, ...] = ()
    aspects: tuple[Aspect, ...] = ()
    doubts: tuple[Because, ...] = ()
    training: Phase | None = None
    needs_reference: bool = False


class _Step:
    """States of a step's aspects."""

    def __init__(self, comparison: StepComparison) -> None:
        self.comparison = comparison
        self.states = {each: state_of(comparison.findings, each) for each in Aspect}

    def count(self, *quantities: str) -> float:
        """Sum of the values of findings about outcomes."""
        found = self.comparison.findings
        return sum(each.value or 0.0 for each in found if each.aspect is Aspect.OUTCOME and each.quantity in quantities)

    def differing(self, aspects: Iterable[Aspect]) -> tuple[Finding, ...]:
        chosen = set(aspects)
        return tuple(each for each in self.comparison.findings if each.aspect in chosen and each.state is DIFFER)

    def inputs_follow(self) -> bool:
        """Whether all inputs that differ are such that a fault of the forward pass changes them."""
        return all(each.quantity in FOLLOWING_INPUTS for each in self.differing((Aspect.INPUTS,)))


def read_step(comparison: StepComparison, scenario: int, healthy: bool | None) -> StepReading:
    """What a step says.

    Args:
        comparison: of the step, assessed.
        scenario: 1 if run A is the sampler, 2 if it is the taker.
        healthy: whether rollout and training of B agree with each other; None if it is not known.
    """
    step = _Step(comparison)
    if not comparison.rows:
        return _read(step, scenario, _Part(doubts=(Because.NO_COMMON_ROWS,), aspects=(Aspect.INPUTS,)))
    if _reference_not_finite(step, scenario):
        return _read(step, scenario, _Part(doubts=(Because.REFERENCE_NOT_FINITE,), aspects=NONFINITE_INPUTS))
    training = _training(step, "sampler" if scenario == 1 else "taker")
    if scenario == 2:
        return _read(step, 2, *_scenario_2(step, training))
    rollout = _self_evident(step)
    return _read(step, 1, rollout, *_log_probs(step, training, bool(rollout.because), healthy))


def _read(step: _Step, scenario: int, *parts: _Part) -> StepReading:
    """The parts put together; without a fault, the evidence is that of the doubts."""
    at_fault = [part for part in parts if part.because]
    aspects = [aspect for part in at_fault or parts for aspect in part.aspects]
    training = next((part.training for part in at_fault if part.training), None)
    return StepReading(
        scenario=scenario,
        global_step=step.comparison.global_step,
        rollout=tuple(rule for part in at_fault if not part.training for rule in part.because),
        training=training,
        training_because=tuple(rule for part in at_fault if part.training for rule in part.because),
        doubts=tuple(dict.fromkeys(doubt for part in parts for doubt in part.doubts)),
        evidence=step.differing(aspects),
        needs_reference=any(part.needs_reference for part in at_fault),
    )


def _reference_not_finite(step: _Step, scenario: int) -> bool:
    """Whether B has numbers that are not finite, and not because A's rollout engine has."""
    if scenario == 2:
        return step.count("sampler_nonfinite_rollout", "sampler_nonfinite_train", "sampler_nonfinite_update") > 0
    by_b = step.count("taker_nonfinite_train", "taker_nonfinite_update")
    return by_b > 0 and not step.count("sampler_nonfinite_rollout")


def _self_evident(step: _Step) -> _Part:
    """What shows a fault of the rollout phase of the sampler whatever its reference does."""
    aspects = [aspect for aspect in SELF_EVIDENT if step.states[aspect] is DIFFER]
    because = [SELF_EVIDENT[aspect] for aspect in aspects]
    if step.count("sampler_nonfinite_rollout") > 0:
        because.append(Because.ROLLOUT_NOT_FINITE)
    if because and step.states[Aspect.ROLLOUT_TAKER] is DIFFER:
        aspects.append(Aspect.ROLLOUT_TAKER)
    return _Part(tuple(because), tuple(aspects))


def _log_probs(step: _Step, training: _Part, rollout: bool, healthy: bool | None) -> tuple[_Part, ...]:
    """What rollout(A) against both training engines adds to what training alone says.

    Args:
        step: of scenario 1.
        training: what both trainings say.
        rollout: whether the rollout phase is at fault already.
        healthy: see `read_step`.
    """
    by_b, by_a = step.states[Aspect.ROLLOUT_TAKER], step.states[Aspect.ROLLOUT_SAMPLER]
    if training.training is Phase.TRAINING_FORWARD:
        if by_b is AGREE:
            return (_with(training, Because.ROLLOUT_AGREES_WITH_B),)
        if by_b is DIFFER and by_a is AGREE:
            return (_with(training, Because.FORWARD_INFERRED),)
        if by_b is DIFFER and by_a is DIFFER and healthy and not rollout:
            return training, _rollout_at_fault(Because.ROLLOUT_DIFFERS_FROM_ALL)
        return (training,)
    if by_b is not DIFFER or rollout:
        return (training,)
    if step.states[Aspect.FORWARD] is MISSING and by_a is AGREE and healthy:
        inferred = _Part((Because.FORWARD_INFERRED,), (Aspect.ROLLOUT_TAKER,), (), Phase.TRAINING_FORWARD, True)
        return (inferred,)
    if healthy:
        return training, _rollout_at_fault(Because.ROLLOUT_DIFFERS)
    aspects = (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER)
    doubt = Because.REFERENCE_DISAGREES_WITH_ITSELF if healthy is False else Because.CANNOT_TELL_WHICH
    return training, _Part(doubts=(doubt,), aspects=aspects)


def _rollout_at_fault(because: Because) -> _Part:
    return _Part((because,), (Aspect.ROLLOUT_TAKER,), needs_reference=True)


def _with(part: _Part, because: Because) -> _Part:
    return _Part((*part.because, because), part.aspects, part.doubts, part.training, part.needs_reference)


def _scenario_2(step: _Step, training: _Part) -> tuple[_Part, ...]:
    """Run B samples, so what is wrong with its rollout phase is wrong with the reference."""
    by_a, by_b = step.states[Aspect.ROLLOUT_TAKER], step.states[Aspect.ROLLOUT_SAMPLER]
    itself = _Part(doubts=(Because.REFERENCE_DISAGREES_WITH_ITSELF,), aspects=(Aspect.ROLLOUT_SAMPLER,))
    if training.training is Phase.TRAINING_FORWARD:
        if by_b is AGREE and by_a is DIFFER:
            return (_with(training, Because.ROLLOUT_AGREES_WITH_B),)
        if by_b is DIFFER:
            return (itself,) if by_a is AGREE else (training, itself)
        return (training,)
    if by_b is DIFFER:
        return training, itself
    aspects = tuple(aspect for aspect in SELF_EVIDENT if step.states[aspect] is DIFFER)
    if aspects:
        return training, _Part(doubts=(Because.REFERENCE_ROLLOUT_AT_FAULT,), aspects=aspects)
    return (training,)


def _training(step: _Step, suspect: str) -> _Part:
    """Which part of A's training the comparison of both trainings shows at fault.

    Args:
        suspect: `sampler` or `taker`, which A is.
    """
    inputs, update = (step.states[aspect] is DIFFER for aspect in (Aspect.INPUTS, Aspect.UPDATE))
    not_finite = step.count(f"{suspect}_nonfinite_update") > 0
    update = update or not_finite
    forward = step.states[Aspect.FORWARD]
    if forward is DIFFER or step.states[Aspect.REFERENCE] is DIFFER:
        rule = Because.FORWARD_DIFFERS if forward is DIFFER else Because.REFERENCE_POLICY_DIFFERS
        follows = inputs and step.inputs_follow()
        because = [rule, *[Because.INPUTS_FOLLOW] * follows, *[Because.UPDATE_FOLLOWS] * update]
        doubts = (Because.INPUTS_DIFFER,) if inputs and not follows else ()
        return _Part(tuple(because), (Aspect.FORWARD, Aspect.REFERENCE), doubts, Phase.TRAINING_FORWARD)
    if inputs:
        return _Part(doubts=(Because.INPUTS_DIFFER,), aspects=(Aspect.INPUTS, Aspect.UPDATE))
    if update and forward is MISSING:
        return _Part(doubts=(Because.FORWARD_UNKNOWN,), aspects=(Aspect.UPDATE,))
    if update:
        aspects = (Aspect.UPDATE, Aspect.OUTCOME) if not_finite else (Aspect.UPDATE,)
        return _Part((Because.UPDATE_DIFFERS,), aspects, (), Phase.TRAINING_UPDATE)
    return _Part()
