# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The decision table: what is concluded from which states, and above all what is not."""

from dataclasses import replace

import pytest

from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Finding, Phase, State, StepComparison
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.diagnosis.thresholds import profile
from verl.crosscheck.diagnosis.verdict import judge, judge_step
from verl.crosscheck.reasons import free_text

LIMITS = profile("dense_bf16")
AGREE, DIFFER, MISSING = State.AGREE, State.DIFFER, State.MISSING
YES, NO, NOT = AGREE, DIFFER, MISSING

WHAT = {
    Aspect.INPUTS: ("reward_rel_diff_max", 0.0, 1.0),
    Aspect.ROLLOUT_TAKER: ("logprob_abs_diff_mean", 0.01, 0.5),
    Aspect.ROLLOUT_SAMPLER: ("logprob_abs_diff_mean", 0.01, 0.5),
    Aspect.FORWARD: ("logprob_abs_diff_mean", 0.0, 0.5),
    Aspect.REFERENCE: ("logprob_abs_diff_mean", 0.0, 0.5),
    Aspect.SYNC: ("tensors_out_of_sync", 0.0, 2.0),
    Aspect.ENDING: ("unfinished_share", 0.0, 0.5),
    Aspect.INDEPENDENCE: ("equal_responses_nats", -40.0, 900.0),
    Aspect.UPDATE: ("grad_norm_rel_diff", 0.0, 9.0),
}
"""A quantity of each aspect, and its value where it agrees and where it differs."""


def step(number=1, *, rows=64, extra=(), outcomes=None, **states):
    """A comparison in which everything agrees but what is given, by the name of its aspect."""
    findings = []
    for aspect, (quantity, good, bad) in WHAT.items():
        wanted = states.pop(aspect.value, AGREE)
        value = {AGREE: good, DIFFER: bad, MISSING: None}[wanted]
        findings.append(
            Finding(aspect, quantity, wanted, value, reason=free_text("not recorded") if value is None else None)
        )
    wanted = states.pop("sampling", AGREE)
    if wanted is MISSING:
        findings.append(Finding(Aspect.SAMPLING, "nll_minus_entropy_mean", MISSING, reason=free_text("not recorded")))
    else:
        mean, z = (0.3, 9.0) if wanted is DIFFER else (0.3, 1.0)
        findings.append(Finding(Aspect.SAMPLING, "nll_minus_entropy_mean", AGREE, mean))
        findings.append(Finding(Aspect.SAMPLING, "nll_minus_entropy_z", AGREE, z))
    findings.append(Finding(Aspect.UPDATE, "change_rel_diff", AGREE, 0.0))
    findings.append(Finding(Aspect.INPUTS, "reward_recomputed_rel_diff_max", AGREE, 0.0))
    assert not states, states
    return StepComparison(number, number - 1, rows, 1000, (*findings, *extra), outcomes=outcomes or {})


def nonfinite(who, count=3):
    return Finding(Aspect.OUTCOME, who, AGREE, float(count))


def POSITION(value, error):
    """Where the rollout engine lies between the trainings."""
    numbers = {"rollout_position": value, "rollout_position_error": error}
    return [Finding(Aspect.FORWARD, name, AGREE, number) for name, number in numbers.items()]


DISAGREES = {"rollout_taker": NO, "rollout_sampler": NO}

ONE_STEP = {
    # what the step says, whether the reference is known, the verdict, a rule that led to it
    "all agree": ({}, False, Phase.NO_FAULT, Because.ALL_AGREE),
    "rollout off, reference healthy": (DISAGREES, True, Phase.ROLLOUT, Because.ROLLOUT_DIFFERS),
    "rollout off, reference unknown": (DISAGREES, False, Phase.INCONCLUSIVE, Because.CANNOT_TELL_WHICH),
    "sampling": ({"sampling": NO}, False, Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "sync": ({"sync": NO}, False, Phase.ROLLOUT, Because.WEIGHTS_NOT_IN_ENGINE),
    "sync and rollout": ({"sync": NO, **DISAGREES}, False, Phase.ROLLOUT, Because.WEIGHTS_NOT_IN_ENGINE),
    "ending": ({"ending": NO}, False, Phase.ROLLOUT, Because.RESPONSES_CUT),
    "rollout nan": (
        {"extra": [nonfinite("sampler_nonfinite_rollout")]},
        False,
        Phase.ROLLOUT,
        Because.ROLLOUT_NOT_FINITE,
    ),
    "forward": (
        {"forward": NO, "rollout_sampler": NO, "update": NO},
        False,
        Phase.TRAINING_FORWARD,
        Because.UPDATE_FOLLOWS,
    ),
    "forward, rollout with B": (
        {"forward": NO, "rollout_sampler": NO},
        False,
        Phase.TRAINING_FORWARD,
        Because.ROLLOUT_AGREES_WITH_B,
    ),
    "forward, rollout with either": ({"forward": NO}, False, Phase.INCONCLUSIVE, Because.CANNOT_TELL_WHICH_TRAINING),
    "forward, rollout with either, B known": (
        {"forward": NO},
        True,
        Phase.INCONCLUSIVE,
        Because.CANNOT_TELL_WHICH_TRAINING,
    ),
    "forward, rollout nearer to B": (
        {"forward": NO, "extra": POSITION(0.1, 0.03)},
        False,
        Phase.TRAINING_FORWARD,
        Because.ROLLOUT_AGREES_WITH_B,
    ),
    "forward, rollout nearer to A": (
        {"forward": NO, "extra": POSITION(0.95, 0.03)},
        True,
        Phase.INCONCLUSIVE,
        Because.ENGINES_OF_A_AGREE_AGAINST_B,
    ),
    "forward, rollout near neither": (
        {"forward": NO, "extra": POSITION(0.5, 0.01)},
        False,
        Phase.INCONCLUSIVE,
        Because.CANNOT_TELL_WHICH_TRAINING,
    ),
    "forward, position unsure": (
        {"forward": NO, "extra": POSITION(0.05, 0.4)},
        False,
        Phase.INCONCLUSIVE,
        Because.CANNOT_TELL_WHICH_TRAINING,
    ),
    "forward, position and states contradict": (
        {"forward": NO, "rollout_sampler": NO, "extra": POSITION(1.0, 0.01)},
        False,
        Phase.INCONCLUSIVE,
        Because.CANNOT_TELL_WHICH_TRAINING,
    ),
    "forward, A with itself": (
        {"forward": NO, "rollout_taker": NO},
        True,
        Phase.INCONCLUSIVE,
        Because.ENGINES_OF_A_AGREE_AGAINST_B,
    ),
    "forward, A with itself, B unknown": (
        {"forward": NO, "rollout_taker": NO},
        False,
        Phase.INCONCLUSIVE,
        Because.ENGINES_OF_A_AGREE_AGAINST_B,
    ),
    "a stop token inside": (
        {"extra": [Finding(Aspect.ENDING, "stop_inside_share", AGREE, 0.01)]},
        False,
        Phase.ROLLOUT,
        Because.STOP_TOKEN_INSIDE,
    ),
    "clones": ({"independence": NO}, False, Phase.ROLLOUT, Because.SAMPLES_NOT_INDEPENDENT),
    "only A leaves tensors unmoved": (
        {"update": NO, "extra": [Finding(Aspect.UPDATE, "sampler_unmoved_tensors", AGREE, 4.0)]},
        False,
        Phase.TRAINING_UPDATE,
        Because.ONLY_A_LEFT_UNMOVED,
    ),
    "only B leaves tensors unmoved": (
        {"update": NO, "extra": [Finding(Aspect.UPDATE, "taker_unmoved_tensors", AGREE, 4.0)]},
        False,
        Phase.REFERENCE,
        Because.ONLY_B_LEFT_UNMOVED,
    ),
    "all three apart": ({"forward": NO, **DISAGREES}, True, Phase.BOTH, Because.ROLLOUT_DIFFERS_FROM_ALL),
    "all three apart, B unknown": (
        {"forward": NO, **DISAGREES},
        False,
        Phase.INCONCLUSIVE,
        Because.CANNOT_TELL_WHICH_TRAINING,
    ),
    "forward and its inputs": (
        {"forward": NO, "rollout_sampler": NO, "inputs": NO},
        False,
        Phase.TRAINING_FORWARD,
        Because.INPUTS_FOLLOW,
    ),
    "forward and sync": (
        {"forward": NO, "rollout_sampler": NO, "sync": NO},
        False,
        Phase.BOTH,
        Because.WEIGHTS_NOT_IN_ENGINE,
    ),
    "reference policy": ({"reference": NO}, False, Phase.TRAINING_FORWARD, Because.REFERENCE_POLICY_DIFFERS),
    "update": ({"update": NO}, False, Phase.TRAINING_UPDATE, Because.UPDATE_DIFFERS),
    "update and rollout": ({"update": NO, **DISAGREES}, True, Phase.BOTH, Because.UPDATE_DIFFERS),
    "update, rollout unclear": ({"update": NO, **DISAGREES}, False, Phase.TRAINING_UPDATE, Because.UPDATE_DIFFERS),
    "rewards": ({"inputs": NO, "update": NO}, True, Phase.REWARD_OR_ADVANTAGE, Because.REWARDS_DIFFER),
    "rows": (
        {"update": NO, "extra": [Finding(Aspect.INPUTS, "rows_unmatched_share", AGREE, 0.5)]},
        True,
        Phase.INCONCLUSIVE,
        Because.INPUTS_DIFFER,
    ),
    "advantages": (
        {"update": NO, "extra": [Finding(Aspect.INPUTS, "advantage_rel_diff", AGREE, 0.5)]},
        True,
        Phase.REWARD_OR_ADVANTAGE,
        Because.ADVANTAGES_DIFFER,
    ),
    "advantages with a critic": (
        {
            "update": NO,
            "extra": [
                Finding(Aspect.INPUTS, "advantage_rel_diff", AGREE, 0.5),
                Finding(Aspect.UPDATE, "critic_update", MISSING, reason=free_text("not compared")),
            ],
        },
        True,
        Phase.INCONCLUSIVE,
        Because.INPUTS_DIFFER,
    ),
    "inputs and self-evident rollout": (
        {"inputs": NO, "ending": NO},
        True,
        Phase.ROLLOUT,
        Because.RESPONSES_CUT,
    ),
    "nothing in common": ({"rows": 0, "forward": NO}, True, Phase.INCONCLUSIVE, Because.NO_COMMON_ROWS),
    "B is nan": (
        {"forward": NO, "extra": [nonfinite("taker_nonfinite_train")]},
        True,
        Phase.INCONCLUSIVE,
        Because.REFERENCE_NOT_FINITE,
    ),
    "A's update is nan": (
        {"update": NO, "extra": [nonfinite("sampler_nonfinite_update")]},
        False,
        Phase.TRAINING_UPDATE,
        Because.UPDATE_DIFFERS,
    ),
    "a metric of A's update is nan": (
        {"extra": [nonfinite("sampler_nonfinite_update")]},
        False,
        Phase.TRAINING_UPDATE,
        Because.UPDATE_DIFFERS,
    ),
    "no rollout log-probs": (
        {"rollout_taker": NOT, "rollout_sampler": NOT},
        True,
        Phase.INCONCLUSIVE,
        Because.ESSENTIAL_MISSING,
    ),
    "no forward": ({"forward": NOT}, True, Phase.INCONCLUSIVE, Because.ESSENTIAL_MISSING),
    "no update": ({"update": NOT, "extra": []}, True, Phase.NO_FAULT, Because.ALL_AGREE),  # changes are there
    "update without forward": ({"forward": NOT, "update": NO}, True, Phase.INCONCLUSIVE, Because.FORWARD_UNKNOWN),
    "rollout without forward": (
        {"forward": NOT, **DISAGREES},
        True,
        Phase.ROLLOUT,
        Because.ROLLOUT_DIFFERS,
    ),
    "A with itself, by inference": (
        {"forward": NOT, "rollout_taker": NO},
        True,
        Phase.INCONCLUSIVE,
        Because.ENGINES_OF_A_AGREE_AGAINST_B,
    ),
    "rollout with B, by inference": (
        {"forward": NOT, "rollout_sampler": NO},
        False,
        Phase.TRAINING_FORWARD,
        Because.ROLLOUT_AGREES_WITH_B,
    ),
    "sampling not compared": ({"sampling": NOT, "sync": NOT, "ending": NOT}, True, Phase.NO_FAULT, Because.ALL_AGREE),
}


@pytest.mark.parametrize("case", ONE_STEP)
def test_one_step_of_scenario_1(case):
    states, healthy, phase, because = ONE_STEP[case]
    verdict = judge_step(step(3, **states), healthy, LIMITS)
    assert (verdict.phase, verdict.steps) == (phase, 1)
    assert because.value in verdict.because
    at_fault = phase not in (Phase.NO_FAULT, Phase.INCONCLUSIVE)
    assert verdict.first_step == (3 if at_fault else None)
    assert not at_fault or verdict.evidence or "nan" in case


SCENARIO_2 = {
    "agree": ({}, Phase.INCONCLUSIVE, Because.ROLLOUT_OF_A_NOT_TESTED),
    "forward": ({"forward": NO, "rollout_taker": NO}, Phase.TRAINING_FORWARD, Because.ENGINES_OF_B_AGREE_AGAINST_A),
    "forward of B": ({"forward": NO, "rollout_sampler": NO}, Phase.REFERENCE, Because.TRAINING_OF_B_ALONE),
    "update": ({"update": NO}, Phase.TRAINING_UPDATE, Because.UPDATE_DIFFERS),
    "B's rollout": (DISAGREES, Phase.INCONCLUSIVE, Because.REFERENCE_DISAGREES_WITH_ITSELF),
    "B's sampling": ({"sampling": NO}, Phase.REFERENCE, Because.REFERENCE_ROLLOUT_AT_FAULT),
    "B is nan": ({"extra": [nonfinite("sampler_nonfinite_train")]}, Phase.INCONCLUSIVE, Because.REFERENCE_NOT_FINITE),
    "A is nan": (
        {"forward": NO, "rollout_taker": NO, "extra": [nonfinite("taker_nonfinite_train")]},
        Phase.TRAINING_FORWARD,
        Because.FORWARD_DIFFERS,
    ),
}


@pytest.mark.parametrize("case", SCENARIO_2)
def test_scenario_2_alone(case):
    states, phase, because = SCENARIO_2[case]
    for verdict in (
        judge(scenario_2=[step(1, **states)], limits=LIMITS),
        judge_step(step(1, **states), False, LIMITS, 2),
    ):
        assert verdict.phase is phase
        assert because.value in verdict.because
        assert verdict.phase is not Phase.ROLLOUT


def steps(count, first=1, **states):
    return [step(number, **states) for number in range(first, first + count)]


def test_nothing_given():
    verdict = judge(limits=LIMITS)
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.NO_STEPS.value,))
    assert verdict.next_actions == (Next.LOOK_AT_STATUS.value, Next.RUN_SCENARIO_1.value)


def test_a_fault_in_some_steps_needs_no_control():
    verdict = judge(scenario_1=[*steps(3), step(4, **DISAGREES), step(5)], limits=LIMITS)
    assert (verdict.phase, verdict.first_step) == (Phase.ROLLOUT, 4)
    assert Because.REFERENCE_SHOWN_BY_OTHER_STEPS.value in verdict.because
    assert verdict.confidence is Confidence.MEDIUM
    assert verdict.next_actions[0] == Next.COLLECT_ROLLOUT.value
    assert Next.GET_CONTROL.value in verdict.next_actions


@pytest.mark.parametrize("shown_by", ["nothing else", "a control of 3 steps", "scenario 2 of 3 steps"])
def test_a_reference_counts_for_the_steps_in_which_it_was_shown(shown_by):
    """A fault that begins in both training engines in step 4 looks like one of A's rollout."""
    pair = [*steps(3), *steps(2, first=4, **DISAGREES)]
    more = {
        "nothing else": {},
        "a control of 3 steps": {"control": steps(3)},
        "scenario 2 of 3 steps": {"scenario_2": steps(3)},
    }[shown_by]
    verdict = judge(scenario_1=pair, limits=LIMITS, **more)
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.REFERENCE_SHOWN_ONLY_BEFORE.value,))
    assert Next.GET_LONGER_CONTROL.value in verdict.next_actions
    assert judge(scenario_1=pair, control=steps(5), limits=LIMITS).phase is Phase.ROLLOUT
    assert judge(scenario_1=pair, scenario_2=steps(5), limits=LIMITS).phase is Phase.ROLLOUT


def test_a_fault_from_the_first_step_on_needs_a_control():
    pair = steps(4, **DISAGREES)
    verdict = judge(scenario_1=pair, limits=LIMITS)
    assert (verdict.phase, verdict.first_step) == (Phase.INCONCLUSIVE, None)
    assert verdict.because == (Because.CANNOT_TELL_WHICH.value,)
    assert {Next.GET_CONTROL.value, Next.RUN_SCENARIO_2.value} <= set(verdict.next_actions)
    with_control = judge(scenario_1=pair, control=steps(8), limits=LIMITS)
    assert (with_control.phase, with_control.first_step) == (Phase.ROLLOUT, 1)
    assert Because.REFERENCE_SHOWN_BY_CONTROL.value in with_control.because
    assert with_control.confidence is Confidence.HIGH


def test_scenario_2_shows_the_reference():
    pair = steps(4, **DISAGREES)
    verdict = judge(scenario_1=pair, scenario_2=steps(4), limits=LIMITS)
    assert (verdict.phase, verdict.confidence) == (Phase.ROLLOUT, Confidence.HIGH)
    assert Because.REFERENCE_SHOWN_BY_SCENARIO_2.value in verdict.because
    shared = judge(scenario_1=pair, scenario_2=steps(4, **DISAGREES), limits=LIMITS)
    assert shared.phase is Phase.INCONCLUSIVE
    assert Because.TRAININGS_MAY_SHARE_A_FAULT.value in shared.because
    assert Next.CHECK_REFERENCE.value in shared.next_actions


def test_a_control_that_disagrees_with_itself_is_no_control():
    pair = steps(4, **DISAGREES)
    verdict = judge(scenario_1=pair, control=pair, limits=LIMITS)
    assert (verdict.phase, verdict.because) == (
        Phase.INCONCLUSIVE,
        (Because.REFERENCE_DISAGREES_WITH_ITSELF.value,),
    )
    assert verdict.details["reference_disagrees_in"] == [
        "rollout_taker/logprob_abs_diff_mean",
        "rollout_sampler/logprob_abs_diff_mean",
    ]


def test_trainings_that_are_not_reproducible_accuse_nobody():
    pair = steps(4, forward=NO, rollout_sampler=NO)
    assert judge(scenario_1=pair, limits=LIMITS).phase is Phase.TRAINING_FORWARD
    verdict = judge(scenario_1=pair, control=steps(4, forward=NO), limits=LIMITS)
    assert verdict.phase is Phase.INCONCLUSIVE
    assert Because.REFERENCE_DISAGREES_WITH_ITSELF.value in verdict.because


def test_faults_of_either_phase_in_different_steps_are_both_told():
    pair = [*steps(2), step(3, sync=NO), step(4), step(5, update=NO), step(6, forward=NO, rollout_sampler=NO)]
    verdict = judge(scenario_1=pair, limits=LIMITS)
    assert (verdict.phase, verdict.first_step) == (Phase.BOTH, 3)
    told = {name: each["first_step"] for name, each in verdict.details["phases"].items()}
    assert told == {"rollout": 3, "training_update": 5, "training_forward": 6}


def test_an_update_may_follow_from_a_forward_pass_just_below_its_threshold():
    """So the forward pass gives the verdict, unless it differs in fewer steps."""
    forward = {"forward": NO, "rollout_sampler": NO}
    verdict = judge(scenario_1=[step(1), step(2, update=NO), step(3, **forward)], limits=LIMITS)
    assert (verdict.phase, verdict.first_step) == (Phase.TRAINING_FORWARD, 3)
    verdict = judge(scenario_1=[step(1), *steps(2, first=2, update=NO), step(4, **forward)], limits=LIMITS)
    assert (verdict.phase, verdict.first_step) == (Phase.TRAINING_UPDATE, 2)
    of_b = {"forward": NO, "rollout_taker": NO}
    verdict = judge(scenario_1=[step(1), step(2, update=NO), *steps(3, first=3, **of_b)], limits=LIMITS)
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.ENGINES_OF_A_AGREE_AGAINST_B.value,))


def test_what_differs_is_never_no_fault():
    """Rollout against its own training alone, which the table does not name."""
    for scenario in (1, 2):
        given = {f"scenario_{scenario}": steps(3, rollout_sampler=NO)}
        verdict = judge(**given, limits=LIMITS)
        assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.SOMETHING_DIFFERS.value,))


def test_a_scenario_that_ended_before_says_nothing_of_later_steps():
    """Both trainings at fault from step 4 on: scenario 1 of 3 healthy steps does not show that A's rollout agrees."""
    verdict = judge(scenario_1=steps(3), scenario_2=[*steps(3), *steps(3, first=4, **DISAGREES)], limits=LIMITS)
    assert verdict.phase is Phase.INCONCLUSIVE
    both_of_b = {"forward": NO, "rollout_taker": NO}
    verdict = judge(scenario_1=steps(3), scenario_2=[*steps(3), *steps(3, first=4, **both_of_b)], limits=LIMITS)
    assert (verdict.phase, verdict.confidence) == (Phase.TRAINING_FORWARD, Confidence.MEDIUM)


def test_a_doubt_speaks_of_the_engine_that_stands_alone():
    """A's training in scenario 2, and in scenario 1, later, A's rollout, which nothing shows to be at fault then."""
    first = [*steps(4), step(5, **DISAGREES)]
    verdict = judge(scenario_1=first, scenario_2=steps(2, forward=NO, rollout_taker=NO), limits=LIMITS)
    assert verdict.phase is Phase.TRAINING_FORWARD
    assert verdict.details["doubts"] == [Because.REFERENCE_SHOWN_ONLY_BEFORE.value]


def test_training_that_explains_the_samples_better_is_no_proof():
    """Log-probs of a training engine that do not sum to 1 explain anything better."""
    gain = [
        Finding(Aspect.SAMPLING, "logprob_gain_train_mean", AGREE, 0.5),
        Finding(Aspect.SAMPLING, "logprob_gain_train_nats", AGREE, 400.0),
    ]
    verdict = judge_step(step(1, extra=gain, forward=NO, rollout_taker=NO), False, LIMITS)
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.ENGINES_OF_A_AGREE_AGAINST_B.value,))
    verdict = judge_step(step(1, extra=gain, **DISAGREES), False, LIMITS)
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.CANNOT_TELL_WHICH.value,))


def test_steps_may_come_in_any_order():
    pair = [*steps(3), step(4, **DISAGREES), step(5)]
    assert judge(scenario_1=pair[::-1], limits=LIMITS) == judge(scenario_1=pair, limits=LIMITS)


def test_a_fault_seen_in_both_scenarios_is_training():
    faulty = {"forward": NO, "rollout_sampler": NO}
    verdict = judge(scenario_1=steps(2, **faulty), scenario_2=steps(2, forward=NO, rollout_taker=NO), limits=LIMITS)
    assert (verdict.phase, verdict.confidence, verdict.first_step) == (Phase.TRAINING_FORWARD, Confidence.HIGH, 1)
    assert {each.scenario for each in verdict.evidence} == {1}
    assert Next.COLLECT_ACTOR_FORWARD.value in verdict.next_actions


def test_no_fault_is_surer_with_more_compared():
    assert judge(scenario_1=steps(3), limits=LIMITS).confidence is Confidence.HIGH
    assert judge(scenario_1=steps(2), limits=LIMITS).confidence is Confidence.MEDIUM
    assert judge(scenario_1=steps(3, sync=NOT), limits=LIMITS).confidence is Confidence.MEDIUM


SAMPLING_TOO = ("sampling/nll_minus_entropy_mean", "sampling/nll_minus_entropy_z")
"""Cannot be read without the log-probs of the rollout engine."""


def test_a_gap_in_some_steps_is_told_and_in_many_is_inconclusive():
    few = judge(scenario_1=[*steps(7), step(8, rollout_taker=NOT)], limits=LIMITS)
    assert few.phase is Phase.NO_FAULT
    told = "not recorded (in 1 of 8 steps)"
    assert str(few.not_compared["rollout_taker/logprob_abs_diff_mean"]) == told
    assert set(few.not_compared) == {"rollout_taker/logprob_abs_diff_mean", *SAMPLING_TOO}
    many = judge(scenario_1=[*steps(4), *steps(4, first=5, rollout_taker=NOT)], limits=LIMITS)
    assert (many.phase, many.because) == (Phase.INCONCLUSIVE, (Because.ESSENTIAL_MISSING.value,))
    assert many.details["essential_missing"] == ["rollout_taker"]
    assert Next.SET_CALCULATE_LOG_PROBS.value in many.next_actions


def test_what_to_set_where_the_forward_pass_is_missing():
    verdict = judge(scenario_1=steps(2, forward=NOT, rollout_sampler=NOT, rollout_taker=NOT), limits=LIMITS)
    assert set(verdict.next_actions) >= {
        Next.SET_RECOMPUTE_LOG_PROBS.value,
        Next.SET_EVIDENCE_TOKENS.value,
        Next.SET_CALCULATE_LOG_PROBS.value,
    }


def test_sums_over_rows_alone_make_for_low_confidence():
    by_rows = Finding(Aspect.FORWARD, "logprob_row_diff_mean", DIFFER, 0.5)
    verdict = judge(scenario_1=steps(2, forward=NOT, rollout_sampler=NO, extra=[by_rows]), limits=LIMITS)
    assert (verdict.phase, verdict.confidence) == (Phase.TRAINING_FORWARD, Confidence.LOW)


def test_weak_evidence_of_one_step_is_medium():
    slight = Finding(Aspect.UPDATE, "pg_loss_rel_diff", DIFFER, LIMITS.loss_rel_diff * 1.5)
    once = judge(scenario_1=[*steps(2), step(3, extra=[slight])], limits=LIMITS)
    assert (once.phase, once.confidence) == (Phase.TRAINING_UPDATE, Confidence.LOW)
    fixed = judge(scenario_1=[step(1), step(2, extra=[slight]), step(3, extra=[slight])], limits=LIMITS)
    assert fixed.confidence is Confidence.LOW  # by a threshold of other models, which is beyond in each step alike
    slight = Finding(Aspect.UPDATE, "grad_norm_rel_diff", DIFFER, 1.5 * LIMITS.grad_norm_rel_diff, predicted=0.01)
    twice = judge(scenario_1=[step(1), step(2, extra=[slight]), step(3, extra=[slight])], limits=LIMITS)
    assert (twice.confidence, twice.first_step) == (Confidence.MEDIUM, 2)  # which of two updates is wrong is not shown
    unmoved = Finding(Aspect.UPDATE, "sampler_unmoved_tensors", DIFFER, 4.0)
    named = judge(scenario_1=[step(1), step(2, extra=[unmoved]), step(3, extra=[unmoved])], limits=LIMITS)
    assert (named.phase, named.confidence) == (Phase.TRAINING_UPDATE, Confidence.MEDIUM)  # they may be frozen in A


def test_evidence_is_strongest_first():
    verdict = judge_step(step(1, sync=NO, ending=NO), False, LIMITS)
    assert [each.finding.quantity for each in verdict.evidence] == ["tensors_out_of_sync", "unfinished_share"]


def falling(count, start, end, **states):
    """Steps whose reward goes from one value to the other."""
    rewards = [start + (end - start) * at / (count - 1) for at in range(count)]
    return [step(at + 1, outcomes={"reward": (reward, reward)}, **states) for at, reward in enumerate(rewards)]


UNSEEN = {"rollout_taker": NOT, "rollout_sampler": NOT, "forward": NOT}
OUTCOMES = {
    "rollout": ((0.8, 0.0), (0.5, 0.8), Phase.ROLLOUT, Because.OUTCOME_ROLLOUT),
    "training": ((0.5, 0.8), (0.8, 0.0), Phase.TRAINING_FORWARD, Because.OUTCOME_TRAINING),
    "both": ((0.8, 0.0), (0.8, 0.0), Phase.INCONCLUSIVE, Because.OUTCOME_BOTH),
    "neither": ((0.5, 0.8), (0.5, 0.8), Phase.INCONCLUSIVE, Because.ESSENTIAL_MISSING),
}


@pytest.mark.parametrize("case", OUTCOMES)
def test_outcomes_speak_where_log_probs_are_lacking(case):
    first, second, phase, because = OUTCOMES[case]
    verdict = judge(scenario_1=falling(12, *first, **UNSEEN), scenario_2=falling(12, *second, **UNSEEN), limits=LIMITS)
    assert verdict.phase is phase
    assert because.value in verdict.because
    assert phase is Phase.INCONCLUSIVE or verdict.confidence is Confidence.LOW


def test_outcomes_say_nothing_against_log_probs():
    verdict = judge(scenario_1=falling(12, 0.8, 0.0), scenario_2=falling(12, 0.5, 0.8), limits=LIMITS)
    assert verdict.phase is Phase.NO_FAULT


def test_missing_is_never_agreement():
    """Whatever is missing, alone or with others, the verdict is no more than with it."""
    essential = ("rollout_taker", "forward")
    for bits in range(1, 4):
        states = {name: NOT for at, name in enumerate(essential) if bits >> at & 1}
        assert judge(scenario_1=steps(4, **states), limits=LIMITS).phase is Phase.INCONCLUSIVE


def noisy(number, value):
    """A step in which both training engines agree, and the rollout engine is `value` away from either."""
    findings = [
        replace(each, value=value)
        if each.aspect in (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER) and each.quantity == "logprob_abs_diff_mean"
        else each
        for each in step(number).findings
    ]
    return replace(step(number), findings=tuple(findings))


@pytest.mark.parametrize(
    ("values", "phase"),
    [
        # The limit is 0.05. Noise just below it in the other steps explains one just beyond it.
        ((0.045, 0.048, 0.055, 0.047), Phase.NO_FAULT),
        ((0.045, 0.048, 0.140, 0.047), Phase.NO_FAULT),
        ((0.045, 0.048, 0.150, 0.047), Phase.ROLLOUT),
        ((0.010, 0.012, 0.055, 0.011), Phase.ROLLOUT),
        # Where it is beyond the limit from the first step on, nothing tells noise from a fault.
        ((0.055, 0.048, 0.055, 0.056), Phase.INCONCLUSIVE),
    ],
)
def test_a_step_is_set_apart_from_the_noise_of_the_others_not_from_a_limit_alone(values, phase):
    steps = [noisy(number, value) for number, value in enumerate(values, start=1)]
    verdict = judge(scenario_1=steps, limits=LIMITS)
    assert verdict.phase is phase
    assert verdict.first_step == (3 if phase is Phase.ROLLOUT else None)
