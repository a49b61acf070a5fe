# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Real runs with the real vLLM: upstream's server, agent loop and transfer of weights. Minutes each."""

import statistics
from contextlib import ExitStack
from importlib.util import find_spec

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.bench.faults import try_fault
from recipe.crosscheck.bench.pairs import MANY_PROMPTS, NEW_WORKERS, Play, perform
from recipe.crosscheck.data import task_overrides, write_data
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.ledger import LedgerStep, exchange_s
from torture import interrupted
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.diagnosis.verdict import judge

pytestmark = [
    pytest.mark.slow,
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; scripts/test-vllm has it"),
]

VLLM = "actor_rollout_ref.rollout.name=vllm"
TWO_RANKS = "trainer.n_gpus_per_node=2"
PLAN = "stale_weights@2,tensor_not_synced@3,temperature@4"
LIMIT_S = 600
CLOSE = 0.005
"""Largest mean difference of a token's probability, engine against training, of a healthy run."""
EXCHANGE_S = 1.0
"""Most that the exchange may cost a step, in seconds."""


def steps_of(folder):
    return {name: launch.read_steps(launch.metrics_path(folder / name)) for name in "ab"}


def assert_healthy(played, folder):
    """No fault seen, engine and training close, both trainings equal, and a cheap exchange."""
    verdict = judge(scenario_1=list(played.comparisons.values()), limits=played.limits)
    assert verdict.phase is Phase.NO_FAULT, verdict
    steps = steps_of(folder)
    assert_equal_training(steps["a"], steps["b"], played.play.steps)
    costs = exchange_s(*([LedgerStep.of(step.values) for step in steps[name]] for name in "ab"))
    cost_s = max(statistics.fmean(each) for each in costs)
    seconds = [round(step.values["timing_s/step"], 1) for step in steps["a"]]
    print(f"exchange {cost_s:.2f} s a step; steps of A {seconds} s")
    assert cost_s <= EXCHANGE_S


def assert_equal_training(a, b, count):
    assert len(a) == len(b) == count
    for one, other in zip(a, b, strict=True):
        apart = one.values["training/rollout_probs_diff_mean"]
        print(f"step {one.number}: engine against training {apart:.2e}")
        assert 0 < apart <= CLOSE
        assert one.values["actor/grad_norm"] == other.values["actor/grad_norm"] > 0


def test_vllm_against_hf(tmp_path):
    played = perform(Play("pair", steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


def test_vllm_against_vllm_with_new_workers(tmp_path):
    played = perform(Play("pair", both=(VLLM, NEW_WORKERS), steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


@pytest.mark.parametrize(
    "own", [(), ("actor_rollout_ref.rollout.tensor_model_parallel_size=2",)], ids=["data parallel", "tensor parallel"]
)
def test_two_ranks(tmp_path, own):
    """Each rank has a vLLM of its own, or both share one. Run B serves the model with `hf`."""
    played = perform(Play("pair", both=(NEW_WORKERS, TWO_RANKS), a_only=own, steps=3, engine="vllm"), tmp_path)
    assert_healthy(played, tmp_path / "pair")


def test_faults_of_the_engine_are_localised(tmp_path):
    """vLLM gives no digests of its weights, so a lost tensor is told by log-probs alone, and has to move far enough."""
    faster = "actor_rollout_ref.actor.optim.lr=1e-4"
    play = Play("faults", plans.parse(PLAN), (faster,), steps=5, prompts=MANY_PROMPTS, engine="vllm")
    played = perform(play, tmp_path)
    tried = [try_fault(played, planted.fault, planted.first) for planted in played.play.plan.faults]
    for each in tried:
        print(each)
    assert all(each.localised for each in tried)
    for planted in play.plan.faults:
        assert f"planted fault {planted.fault.name} was applied in vLLM in step {planted.first}" in played.log
    [temperature] = [each for each in tried if each.fault == "temperature"]
    assert temperature.evidence.startswith("sampling/")  # all log-probs are right: chance alone tells


def overrides(folder, *own):
    return [*task_overrides(write_data(folder / "data", val_rows=8)), VLLM, *own]


def test_scenario_2_and_its_replay(tmp_path):
    """A in mode rollout, with B's rollouts, then alone with the recorded ones: equal numbers, and nothing written."""
    share, length = launch.override("trainer.share_data_dir", tmp_path / "share"), "trainer.total_training_steps=3"
    modes = {"a": "rollout", "b": "ckpt"}
    with ExitStack() as stack:
        runs = {
            name: stack.enter_context(
                launch.running(tmp_path / name, overrides(tmp_path, share, length, f"trainer.share_data={mode}"))
            )
            for name, mode in modes.items()
        }
        steps = {name: run.wait(LIMIT_S) for name, run in runs.items()}
    assert_equal_training(steps["a"], steps["b"], 3)
    before = sorted((tmp_path / "share").rglob("*"))
    replay = ("trainer.share_data=rollout", "trainer.share_data_replay=True")
    with launch.running(tmp_path / "replay", overrides(tmp_path, share, length, *replay)) as run:
        replayed = run.wait(LIMIT_S)
    assert [step.repeatable for step in replayed] == [step.repeatable for step in steps["a"]]
    assert sorted((tmp_path / "share").rglob("*")) == before


def test_a_killed_run_goes_on(tmp_path):
    """It would draw other tokens when it is started again. So if both trainings are equal, it took those that were
    recorded in the step in which it was killed."""
    data = write_data(tmp_path / "data")
    case = interrupted.Case("a", "loading ckpt", alone=True)
    other_seed = ("actor_rollout_ref.rollout.engine_kwargs.hf.seed=7",)
    found, resumed_at = interrupted.kill_and_resume(
        tmp_path / "pair", data, case, {"a": (VLLM,), "b": (VLLM,)}, other_seed
    )
    assert resumed_at == {"a": interrupted.KILLED_INDEX}
    assert list(found["a"]) == list(found["b"]) == list(range(1, interrupted.STEPS + 1))
    for step, values in found["a"].items():
        assert values["actor/grad_norm"] == found["b"][step]["actor/grad_norm"] > 0
        assert values["training/rollout_probs_diff_mean"] <= CLOSE


def test_rollout_skip(tmp_path):
    """What the first run generated is what the second one trains on."""
    skip = ("actor_rollout_ref.rollout.skip_rollout=True", "trainer.total_training_steps=2")
    dump = launch.override("actor_rollout_ref.rollout.skip_dump_dir", tmp_path / "dump")
    found = []
    for name, mark in (("first", "Successfully dump data in"), ("second", "Successfully load pre-generated data from")):
        with launch.running(tmp_path / name, overrides(tmp_path, *skip, dump)) as run:
            found.append([step.repeatable for step in run.wait(LIMIT_S)])
        assert run.log().count(f"[RolloutSkip()] {mark}") == 2
    assert found[0] == found[1]
