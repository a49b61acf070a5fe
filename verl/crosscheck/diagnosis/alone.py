# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which engine stands alone: the decision table of the diagnosis.

For the same tokens under the same weights there are three engines in a scenario. In scenario 1 they are rollout A,
training A and training B, in scenario 2 rollout B, training A and training B. Where two of them agree and the third
differs from both, the third stands alone. Engines of two runs that agree vouch for each other; engines of one run may
share a fault. So the table treats A and B alike:

- a training engine that stands alone against the *other* run's training and a rollout engine that agrees with it is at
  fault, whichever run it belongs to, unless the rollout engine is of that other run too: then what the two engines of
  that run share may be wrong as well;
- a rollout engine that stands alone against both training engines is at fault if it was shown, for that step, that
  training engines and another rollout engine agree; else both training engines may share a fault.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from verl.crosscheck.diagnosis.assess import state_of
from verl.crosscheck.diagnosis.findings import Aspect, Phase, State, StepComparison
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import POSITION_ERRORS, POSITION_NEAR

AGREE, DIFFER = State.AGREE, State.DIFFER


class Alone(str, Enum):
    """The engine that stands alone in a step, or in the steps of a scenario."""

    NOT_RUN = "not_run"
    """Nothing was compared."""
    NOBODY = "nobody"
    """The engines agree, as far as they were compared."""
    ROLLOUT = "rollout"
    """The rollout engine of the run that samples."""
    TRAINING_A = "training_a"
    TRAINING_B = "training_b"
    UNDECIDED = "undecided"
    """The training engines differ, and it cannot be told which of them the rollout engine agrees with."""


@dataclass(frozen=True)
class Conclusion:
    """What the engines that stand alone in both scenarios amount to."""

    phase: Phase
    because: tuple[Because, ...]


def alone_in(step: StepComparison, scenario: int) -> Alone:
    """The engine that stands alone in a step.

    Args:
        step: assessed.
        scenario: 1 if run A samples, 2 if run B does.
    """
    taker, own, forward = (
        state_of(step.findings, aspect) for aspect in (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER, Aspect.FORWARD)
    )
    of_sampler, of_taker = (
        (Alone.TRAINING_A, Alone.TRAINING_B) if scenario == 1 else (Alone.TRAINING_B, Alone.TRAINING_A)
    )
    if forward is DIFFER:
        by_states = {(AGREE, DIFFER): of_sampler, (DIFFER, AGREE): of_taker}.get((taker, own))
        by_position = {0: of_sampler, 1: of_taker, None: None}[_position(step)]
        if by_states and by_position and by_states is not by_position:
            return Alone.UNDECIDED
        return by_states or by_position or Alone.UNDECIDED
    if forward is State.MISSING and {taker, own} == {AGREE, DIFFER}:
        return of_sampler if own is DIFFER else of_taker
    if taker is DIFFER or (own is DIFFER and taker is State.MISSING and forward is AGREE):
        return Alone.ROLLOUT
    if own is DIFFER and taker is State.MISSING:
        return Alone.UNDECIDED
    return Alone.NOT_RUN if {taker, own, forward} == {State.MISSING} else Alone.NOBODY


def rollout_is_off_too(step: StepComparison) -> bool:
    """Whether the rollout engine of a step differs from both training engines, whatever these do."""
    return all(state_of(step.findings, aspect) is DIFFER for aspect in (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER))


def _position(step: StepComparison) -> int | None:
    """0 if the rollout engine lies with the taker's training, 1 if with the sampler's, None if neither is sure."""
    values = {each.quantity: each.value for each in step.findings if each.aspect is Aspect.FORWARD}
    position, error = values.get("rollout_position"), values.get("rollout_position_error")
    if position is None or error is None:
        return None
    if abs(position) + POSITION_ERRORS * error < POSITION_NEAR:
        return 0
    return 1 if abs(1.0 - position) + POSITION_ERRORS * error < POSITION_NEAR else None


def summary(readings: Sequence[Alone]) -> Alone:
    """The engine that stands alone in the steps of a scenario; a training engine goes before the rollout engine, and
    both training engines in turn are `UNDECIDED`."""
    present = set(readings) - {Alone.NOT_RUN}
    if {Alone.TRAINING_A, Alone.TRAINING_B} <= present:
        return Alone.UNDECIDED
    order = (Alone.TRAINING_A, Alone.TRAINING_B, Alone.UNDECIDED, Alone.ROLLOUT, Alone.NOBODY)
    return next((each for each in order if each in present), Alone.NOT_RUN)


def conclude(one: Alone, two: Alone, *, shown: bool) -> Conclusion:
    """The verdict on the engines of both scenarios.

    Args:
        one: stands alone in scenario 1.
        two: stands alone in scenario 2.
        shown: whether it was shown, for the steps in question, that B's rollout and training agree, by a control, by
            scenario 2 or by other steps.
    """
    if Alone.UNDECIDED in (one, two):
        return _undecided(one, two, shown)
    if (one, two) in _CROSSED:
        return Conclusion(Phase.INCONCLUSIVE, (_CROSSED[one, two],))
    if two is Alone.TRAINING_B:
        return Conclusion(Phase.REFERENCE, (Because.TRAINING_OF_B_ALONE,))
    if Alone.TRAINING_A in (one, two):
        rules = [Because.ROLLOUT_AGREES_WITH_B] * (one is Alone.TRAINING_A)
        rules += [Because.ENGINES_OF_B_AGREE_AGAINST_A] * (two is Alone.TRAINING_A)
        if one is Alone.ROLLOUT and shown:
            return Conclusion(Phase.BOTH, (*rules, Because.ROLLOUT_DIFFERS))
        return Conclusion(Phase.TRAINING_FORWARD, tuple(rules))
    if one is Alone.TRAINING_B:
        return Conclusion(Phase.INCONCLUSIVE, (Because.ENGINES_OF_A_AGREE_AGAINST_B,))
    return _of_rollouts(one, two, shown)


def _of_rollouts(one: Alone, two: Alone, shown: bool) -> Conclusion:
    """The verdict where both training engines agree, in both scenarios."""
    if one is Alone.ROLLOUT and two is Alone.ROLLOUT:
        return Conclusion(Phase.INCONCLUSIVE, (Because.TRAININGS_MAY_SHARE_A_FAULT,))
    if one is Alone.ROLLOUT:
        if shown:
            return Conclusion(Phase.ROLLOUT, (Because.ROLLOUT_DIFFERS,))
        return Conclusion(Phase.INCONCLUSIVE, (Because.CANNOT_TELL_WHICH,))
    if two is Alone.ROLLOUT:
        if one is Alone.NOBODY:
            return Conclusion(Phase.REFERENCE, (Because.ROLLOUT_OF_B_ALONE,))
        return Conclusion(Phase.INCONCLUSIVE, (Because.REFERENCE_DISAGREES_WITH_ITSELF,))
    return Conclusion(Phase.NO_FAULT, ())


def _undecided(one: Alone, two: Alone, shown: bool) -> Conclusion:
    """A reference that was shown decides between the training engines where nothing speaks against it."""
    others = {one, two} - {Alone.UNDECIDED}
    if shown and not others & {Alone.TRAINING_B, Alone.ROLLOUT}:
        return Conclusion(Phase.TRAINING_FORWARD, (Because.FORWARD_DIFFERS,))
    if others == {Alone.TRAINING_A}:
        rule = Because.ROLLOUT_AGREES_WITH_B if one is Alone.TRAINING_A else Because.ENGINES_OF_B_AGREE_AGAINST_A
        return Conclusion(Phase.TRAINING_FORWARD, (rule,))
    return Conclusion(Phase.INCONCLUSIVE, (Because.CANNOT_TELL_WHICH_TRAINING,))


_CROSSED = {
    (Alone.TRAINING_B, Alone.TRAINING_A): Because.EACH_SIDE_AGREES_WITH_ITSELF,
    (Alone.TRAINING_A, Alone.TRAINING_B): Because.EACH_ROLLOUT_AGREES_WITH_THE_OTHER,
    (Alone.ROLLOUT, Alone.TRAINING_B): Because.READINGS_CONTRADICT,
    (Alone.TRAINING_B, Alone.ROLLOUT): Because.READINGS_CONTRADICT,
    (Alone.TRAINING_A, Alone.ROLLOUT): Because.READINGS_CONTRADICT,
}
"""Pairs in which the scenarios do not name the same engine."""
