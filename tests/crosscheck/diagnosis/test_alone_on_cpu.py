# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which engine stands alone: every combination of readings, and every cause that can bring one about."""

from itertools import product

import numpy as np
import pytest
from crosscheck.diagnosis.test_verdict_on_cpu import step

from verl.crosscheck.diagnosis.alone import Alone, conclude, summary
from verl.crosscheck.diagnosis.distances import Position
from verl.crosscheck.diagnosis.findings import Confidence, Phase, State
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import profile
from verl.crosscheck.diagnosis.verdict import judge

LIMITS = profile("dense_bf16")
A, B, R, UNSURE = Alone.TRAINING_A, Alone.TRAINING_B, Alone.ROLLOUT, Alone.UNDECIDED
NOBODY, NOT = Alone.NOBODY, Alone.NOT_RUN
QUIET = (NOBODY, NOT)

TABLE = {
    # scenario 1, scenario 2, whether B was shown to agree with itself: the verdict
    (R, NOBODY, True): Phase.ROLLOUT,
    (R, R, False): Phase.INCONCLUSIVE,
    (R, R, True): Phase.INCONCLUSIVE,
    (R, NOT, False): Phase.INCONCLUSIVE,
    (R, NOT, True): Phase.ROLLOUT,
    (A, A, False): Phase.TRAINING_FORWARD,
    (A, NOT, False): Phase.TRAINING_FORWARD,
    (NOT, A, False): Phase.TRAINING_FORWARD,
    (B, NOT, False): Phase.INCONCLUSIVE,
    (B, NOT, True): Phase.INCONCLUSIVE,
    (B, B, False): Phase.REFERENCE,
    (NOT, B, False): Phase.REFERENCE,
    (B, A, False): Phase.INCONCLUSIVE,
    (A, B, False): Phase.INCONCLUSIVE,
    (NOBODY, R, False): Phase.REFERENCE,
    (NOT, R, False): Phase.INCONCLUSIVE,
    (R, A, True): Phase.BOTH,
    (R, B, True): Phase.INCONCLUSIVE,
    (UNSURE, NOT, False): Phase.INCONCLUSIVE,
    (UNSURE, NOT, True): Phase.TRAINING_FORWARD,
    (NOBODY, NOBODY, False): Phase.NO_FAULT,
}


@pytest.mark.parametrize("readings", TABLE, ids=lambda key: "-".join(str(getattr(each, "value", each)) for each in key))
def test_the_table(readings):
    one, two, shown = readings
    found = conclude(one, two, shown=shown)
    assert found.phase is TABLE[readings]
    assert found.because or found.phase is Phase.NO_FAULT


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize(("one", "two"), list(product(Alone, Alone)))
def test_no_combination_names_an_engine_that_nothing_speaks_against(one, two, shown):
    phase = conclude(one, two, shown=shown).phase
    if phase in (Phase.TRAINING_FORWARD, Phase.BOTH):
        assert A in (one, two) or (UNSURE in (one, two) and shown)
    if phase in (Phase.ROLLOUT, Phase.BOTH):
        assert one is R and shown
    if phase is Phase.REFERENCE:
        assert two in (B, R) and A not in (one, two)
    if phase is Phase.NO_FAULT:
        assert one in QUIET and two in QUIET
    if B in (one, two) and A in (one, two):
        assert phase is Phase.INCONCLUSIVE


def test_a_scenario_in_which_both_trainings_stand_alone_is_undecided():
    assert summary([NOBODY, A, B]) is UNSURE
    assert summary([NOT, NOBODY, R]) is R
    assert summary([R, A]) is A
    assert summary([]) is NOT


CAUSES = {
    # engines that a cause makes wrong, each group in a way of its own; what the verdict may be
    "nothing": ((), {Phase.NO_FAULT, Phase.INCONCLUSIVE}),
    "rollout of A": (("rollout_a",), {Phase.ROLLOUT, Phase.INCONCLUSIVE}),
    "training of A": (("train_a",), {Phase.TRAINING_FORWARD, Phase.INCONCLUSIVE}),
    "rollout of B": (("rollout_b",), {Phase.REFERENCE, Phase.INCONCLUSIVE}),
    "training of B": (("train_b",), {Phase.REFERENCE, Phase.INCONCLUSIVE}),
    "both trainings alike": (("train_a train_b",), {Phase.INCONCLUSIVE}),
    "all of A alike": (("rollout_a train_a",), {Phase.TRAINING_FORWARD, Phase.INCONCLUSIVE}),
    "all of B alike": (("rollout_b train_b",), {Phase.INCONCLUSIVE}),
    "both phases of A": (("rollout_a", "train_a"), {Phase.BOTH, Phase.TRAINING_FORWARD, Phase.INCONCLUSIVE}),
    "both phases of B": (("rollout_b", "train_b"), {Phase.REFERENCE, Phase.INCONCLUSIVE}),
    "both rollouts": (("rollout_a", "rollout_b"), {Phase.INCONCLUSIVE}),
}
"""What is invisible in a scenario leaves "no fault" there; see `seen`."""


def states(cause, sampler, taker):
    """What the engines of a scenario show: a pair differs unless the same thing is wrong with both."""
    wrong = {name: number for number, group in enumerate(CAUSES[cause][0], 1) for name in group.split()}

    def pair(one, other):
        return State.AGREE if wrong.get(one, 0) == wrong.get(other, 0) else State.DIFFER

    rollout, own, other = f"rollout_{sampler}", f"train_{sampler}", f"train_{taker}"
    return {
        "rollout_taker": pair(rollout, other),
        "rollout_sampler": pair(rollout, own),
        "forward": pair(own, other),
    }


@pytest.mark.parametrize("given", ["1", "2", "12", "1c", "12c"])
@pytest.mark.parametrize("cause", CAUSES)
def test_whatever_the_cause_the_verdict_is_right_or_inconclusive(cause, given):
    """With scenario 1, 2 or both, and with a control of B against B that has B's faults as well."""

    def steps(sampler, taker):
        return [step(number, **states(cause, sampler, taker)) for number in (1, 2, 3)]

    every = {"1": ("scenario_1", "a", "b"), "2": ("scenario_2", "b", "a"), "c": ("control", "b", "b")}
    readings = {every[key][0]: steps(*every[key][1:]) for key in given}
    verdict = judge(**readings, limits=LIMITS)
    seen = any(
        state is State.DIFFER for key in given if key != "c" for state in states(cause, *every[key][1:]).values()
    )
    allowed = set(CAUSES[cause][1])
    if not seen:
        allowed |= {Phase.NO_FAULT}
    if (cause, given) == ("all of B alike", "2"):
        # B is taken for healthy unless something shows otherwise, and here its two engines agree
        allowed |= {Phase.TRAINING_FORWARD}
        assert verdict.confidence is not Confidence.HIGH
    assert verdict.phase in allowed, (verdict.phase, verdict.because)


def test_with_both_scenarios_every_single_engine_is_named():
    expected = {
        "rollout of A": Phase.ROLLOUT,
        "training of A": Phase.TRAINING_FORWARD,
        "rollout of B": Phase.REFERENCE,
        "training of B": Phase.REFERENCE,
    }
    for cause, phase in expected.items():
        one, two = ([step(n, **states(cause, *sides)) for n in (1, 2, 3)] for sides in ("ab", "ba"))
        verdict = judge(scenario_1=one, scenario_2=two, limits=LIMITS)
        assert (verdict.phase, verdict.first_step, verdict.confidence) == (phase, 1, Confidence.HIGH), cause


def test_the_rules_of_a_verdict_never_speak_of_another_engine():
    """Over all states of all pairs of engines, in both scenarios."""
    against = {
        Phase.ROLLOUT: {Because.ROLLOUT_DIFFERS},
        Phase.TRAINING_FORWARD: {
            Because.FORWARD_DIFFERS,
            Because.ROLLOUT_AGREES_WITH_B,
            Because.ENGINES_OF_B_AGREE_AGAINST_A,
        },
        Phase.REFERENCE: {Because.TRAINING_OF_B_ALONE, Because.ROLLOUT_OF_B_ALONE},
    }
    about_b = {Because.REFERENCE_SHOWN_BY_SCENARIO_2, Because.REFERENCE_SHOWN_BY_OTHER_STEPS}
    names = ("rollout_taker", "rollout_sampler", "forward")
    known = (State.AGREE, State.DIFFER)
    for first in product(known, known, known):
        for second in product(known, known, known):
            one, two = step(1, **dict(zip(names, first, strict=True))), step(1, **dict(zip(names, second, strict=True)))
            verdict = judge(scenario_1=[one], scenario_2=[two], limits=LIMITS)
            because = {Because(value) for value in verdict.because} - about_b
            if verdict.phase in against:
                assert because <= against[verdict.phase], (first, second, verdict.phase, because)
            if verdict.phase is Phase.NO_FAULT:
                assert because == {Because.ALL_AGREE}
                assert State.DIFFER not in (first[0], first[2], *second[:0])


def rows_of_tokens(rng, noise, of_first, of_second, rows=64, longest=12):
    """Log-probs of three engines: the third is apart from the truth by noise alone."""
    counts = rng.integers(1, longest, rows)
    truth = np.log(rng.uniform(0.05, 0.95, counts.sum()))
    off = rng.standard_t(3, truth.size)
    first, second = truth + of_first * off, truth + of_second * off
    return (*(each.astype(np.float32) for each in (first, second, truth + rng.normal(0, noise, truth.size))), counts)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ratio", [0.5, 2.0, 10.0])
def test_the_position_tells_which_training_the_rollout_lies_with(seed, ratio):
    """However noisy the rollout engine is beside what is wrong with one of the trainings."""
    rng = np.random.default_rng([seed, int(10 * ratio)])
    for off, expected in (((0.0, 0.02), 0.0), ((0.02, 0.0), 1.0)):
        position = Position()
        *engines, counts = rows_of_tokens(rng, 0.02 / ratio, *off)
        position.add(*engines, counts)
        at, error = position.result()
        assert abs(at - expected) < 5 * error + 1e-3
        assert error < 0.35


def test_equal_trainings_have_no_position():
    position = Position()
    same = np.log(np.linspace(0.1, 0.9, 8)).astype(np.float32)
    position.add(same, same, same - 0.1, np.asarray([3, 5]))
    assert position.result() is None
