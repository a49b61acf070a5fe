# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of real runs with the real vLLM: upstream's server, agent loop and transfer of weights. Minutes each."""

import statistics
from importlib.util import find_spec

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.bench_faults import limits_of, try_fault
from recipe.crosscheck.bench_pairs import NEW_WORKERS, Play, perform
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.ledger import StepTimes, exchange_s
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.diagnosis.verdict import judge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; scripts/test-vllm has it"),
]

VLLM = "actor_rollout_ref.rollout.name=vllm"
PLAN = "stale_weights@2,tensor_not_synced@3,temperature@4"


def steps_of(folder):
    return {name: launch.read_steps(launch.metrics_path(folder / name)) for name in "ab"}


def assert_healthy(played, folder):
    """No fault seen, engine and training close, both trainings equal, and a cheap exchange."""
    verdict = judge(scenario_1=list(played.comparisons.values()), limits=limits_of(played))
    assert verdict.phase is Phase.NO_FAULT, verdict
    steps = steps_of(folder)
    assert len(steps["a"]) == len(steps["b"]) == played.play.steps
    for a, b in zip(steps["a"], steps["b"], strict=True):
        apart = a.values["training/rollout_probs_diff_mean"]
        print(
            f"step {a.number}: vLLM against training {apart:.2e}, at most", a.values["training/rollout_probs_diff_max"]
        )
        assert 0 < apart <= 0.005
        assert a.values["actor/grad_norm"] == b.values["actor/grad_norm"] > 0
    costs = exchange_s(*([StepTimes.of(step.values) for step in steps[name]] for name in "ab"))
    cost_s = max(statistics.fmean(each) for each in costs)
    print(
        f"exchange {cost_s:.2f} s a step; steps of A", [round(step.values["timing_s/step"], 1) for step in steps["a"]]
    )
    assert cost_s <= 1.0


def test_vllm_against_hf(tmp_path):
    played = perform(Play("pair", steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


def test_vllm_against_vllm_with_new_workers(tmp_path):
    played = perform(Play("pair", both=(VLLM, NEW_WORKERS), steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


def test_two_replicas_of_vllm(tmp_path):
    """Two ranks, each with a vLLM of its own."""
    two = "trainer.n_gpus_per_node=2"
    played = perform(Play("pair", both=(NEW_WORKERS, two), steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


def test_faults_of_the_engine_are_localised(tmp_path):
    played = perform(Play("faults", plans.parse(PLAN), steps=5, engine="vllm"), tmp_path)
    tried = [try_fault(played, planted.fault, planted.first) for planted in played.play.plan.faults]
    for each in tried:
        print(each)
    assert [each.localised for each in tried] == [True] * len(tried)
