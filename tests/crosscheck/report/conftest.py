# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Reports of made-up runs, as the loader would give them."""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from recipe.crosscheck.bench.synthetic import FORWARD, GRADIENT, STALE, SyntheticPlan, evidence_of_step
from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Confidence, Phase, Verdict, VerdictEvidence
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.report.model import Report, RunSummary, Scenario, SettingRow, Token, TokenRow, worst_findings

FAULTS = {Phase.ROLLOUT: STALE, Phase.TRAINING_FORWARD: FORWARD, Phase.TRAINING_UPDATE: GRADIENT}
TOLD = {
    Phase.NO_FAULT: ([Because.ALL_AGREE], [Next.RUN_LONGER, Next.RUN_SCENARIO_2]),
    Phase.ROLLOUT: (
        [Because.ROLLOUT_DIFFERS, Because.REFERENCE_SHOWN_BY_OTHER_STEPS],
        [Next.COLLECT_ROLLOUT, Next.CHECK_WEIGHT_SYNC, Next.GET_CONTROL],
    ),
    Phase.TRAINING_FORWARD: ([Because.FORWARD_DIFFERS], [Next.COLLECT_ACTOR_FORWARD]),
    Phase.TRAINING_UPDATE: ([Because.UPDATE_DIFFERS], [Next.COLLECT_ACTOR_UPDATE, Next.CHECK_OPTIMISER]),
    Phase.BOTH: ([Because.ROLLOUT_DIFFERS_FROM_ALL, Because.FORWARD_DIFFERS], [Next.COLLECT_ACTOR_FORWARD]),
    Phase.REFERENCE: ([Because.TRAINING_OF_B_ALONE, Because.FORWARD_DIFFERS], [Next.CHECK_REFERENCE]),
    Phase.REWARD_OR_ADVANTAGE: ([Because.REWARDS_DIFFER], [Next.CHECK_INPUTS]),
    Phase.INCONCLUSIVE: (
        [Because.CANNOT_TELL_WHICH, Because.REFERENCE_DISAGREES_WITH_ITSELF],
        [Next.GET_CONTROL, Next.CHECK_REFERENCE, Next.SET_CALCULATE_LOG_PROBS],
    ),
}
CONFIDENCE = {Phase.NO_FAULT: Confidence.MEDIUM, Phase.INCONCLUSIVE: Confidence.LOW}


def steps_of(plan, count=8):
    pairs = (evidence_of_step(plan, step) for step in range(1, count + 1))
    return tuple(compare_step(*pair, limits_for(pair[0].sampling, pair[1].sampling)) for pair in pairs)


def run_facts(letter, mode):
    versions = {"verl-crosscheck": "0.1.0", "torch": "2.8.0" if letter == "A" else "2.9.0"}
    device = "npu" if letter == "A" else "cuda"
    return RunSummary(
        letter, mode, f"{letter}-1234", f"host-{letter}", device, "fsdp2", 8, "2026-11-29", versions, 1, ""
    )


def a_scenario(plan, number=1, count=8, directory="/mnt/shared/check-1"):
    runs = tuple(
        run_facts(letter, mode) for letter, mode in zip("AB", ("ckpt", "rollout")[:: 3 - 2 * number], strict=True)
    )
    settings = (
        SettingRow("actor_rollout_ref.rollout.name", "vllm", "sglang", False, because(ReasonCode.ROLLOUT_ENGINE)),
        SettingRow("torch", "2.8.0", "2.9.0", False),
    )
    return Scenario(number, Path(directory), 1, runs, steps_of(plan, count), settings=settings)


def some_rows(scenario, texts=None):
    """Responses with the tokens of a sentence, apart in the second half."""
    texts = texts or [*"The answer is 42 because six times seven is forty-two. "]
    step = scenario.steps[-1]
    for worst in step.worst_rows[:3]:
        tokens = tuple(
            Token(text, -1.0 - at / 40, -1.0 - at / 40 - (at / 30) ** 3, at != 5) for at, text in enumerate(texts)
        )
        yield TokenRow(
            scenario.number, step.global_step, worst.aspect, worst.row_id, worst.logprob_abs_diff_mean,
            worst.logprob_abs_diff_max, 60, 3, tokens, "text", "How much is 6 x 7?",
        )  # fmt: skip


def a_verdict(phase, scenarios):
    rules, following = TOLD[phase]
    at_fault = phase not in (Phase.NO_FAULT, Phase.INCONCLUSIVE)
    evidence = [
        VerdictEvidence(each.number, step.global_step, finding)
        for each in scenarios
        for step in each.steps
        for finding in worst_findings(step)
    ]
    return Verdict(
        phase=phase,
        confidence=CONFIDENCE.get(phase, Confidence.HIGH),
        first_step=min((each.global_step for each in evidence), default=None) if at_fault else None,
        steps=sum(len(each.steps) for each in scenarios),
        because=tuple(each.value for each in rules),
        evidence=tuple(sorted(evidence, key=lambda each: -strength(each.finding))[:6]),
        not_compared={"sync": because(ReasonCode.NO_DIGESTS)},
        next_actions=tuple(each.value for each in following),
    )


def a_report(phase=Phase.ROLLOUT, count=8, lean=False, **plan):
    """With `lean`, two quantities alone, which draws faster."""
    fault = FAULTS.get(phase, "" if phase is Phase.NO_FAULT else STALE)
    scenario = a_scenario(SyntheticPlan(fault=fault, **plan), count=count)
    if lean:
        kept = ("prob_abs_diff_mean", "grad_norm_rel_diff")
        steps = [
            replace(each, outcomes={}, findings=tuple(f for f in each.findings if f.quantity in kept))
            for each in scenario.steps
        ]
        scenario = replace(scenario, steps=tuple(steps))
    rows = tuple(some_rows(scenario)) if scenario.steps else ()
    return Report(a_verdict(phase, (scenario,)), (scenario,), rows, versions={"verl-crosscheck": "0.1.0"})


@pytest.fixture(scope="session")
def rollout_report():
    return a_report()


@pytest.fixture(scope="session")
def make_report():
    """Makes a report of a verdict; each is made once."""
    return lru_cache(a_report)
