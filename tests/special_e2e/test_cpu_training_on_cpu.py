# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `main_ppo` on a CPU, for real: Ray, FSDP2 over gloo, the agent loop, checkpoints. Minutes, not seconds.

Seven runs, two at a time where their results allow it: that also shows that runs on one host keep out of each other's
way, and puts a load on the two seeded ones.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest

from recipe.crosscheck import demo_task, launch, make_data

TIMEOUT_S = 600.0
NEW_WORKERS = "trainer.use_legacy_worker_impl=disable"
# Makes upstream report the largest and the smallest ratio of training's probability to the rollout's.
REPORT_RATIOS = [
    "algorithm.rollout_correction.rollout_is=token",
    "algorithm.rollout_correction.rollout_is_threshold=10",
]
GAE_AND_REFERENCE = ["algorithm.adv_estimator=gae", "critic.optim.lr=1e-4", "actor_rollout_ref.actor.use_kl_loss=True"]
SAVE_AT_2_OF_3 = ["trainer.total_training_steps=3", "trainer.save_freq=2"]


class Runs:
    """Starts runs in folders of their own and waits for their steps, by number."""

    def __init__(self, folder):
        self.folder = folder
        self.data = make_data.write(folder / "data", train_rows=64, val_rows=16)

    def one(self, name, *overrides):
        everything = [*demo_task.overrides(self.data), *REPORT_RATIOS, *overrides]
        with launch.running(self.folder / name, everything) as run:
            return {step.number: step for step in run.wait(TIMEOUT_S)}

    def both(self, first, second):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda call: self.one(*call), (first, second)))

    def resume(self, name):
        step_2 = launch.checkpoint_dir(self.folder / name) / "global_step_2"
        return ["trainer.resume_mode=resume_path", f"trainer.resume_from_path={step_2}"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return Runs(tmp_path_factory.mktemp("training"))


@pytest.fixture(scope="module")
def legacy_twice(runs):
    same = [*SAVE_AT_2_OF_3, "trainer.test_freq=1"]
    return runs.both(("legacy", *same), ("legacy_again", *same))


@pytest.fixture(scope="module")
def two_ranks(runs):
    return runs.one("two_ranks", *SAVE_AT_2_OF_3, NEW_WORKERS, "trainer.n_gpus_per_node=2")


@pytest.fixture(scope="module")
def critics(runs):
    two_steps = [*GAE_AND_REFERENCE, "trainer.total_training_steps=2", "trainer.save_freq=2"]
    return runs.both(("gae_legacy", *two_steps), ("gae_new", *two_steps, NEW_WORKERS))


def assert_healthy(steps):
    for step in steps.values():
        values = step.values
        assert values["training/rollout_probs_diff_valid"] == 1
        largest, smallest = values["rollout_corr/rollout_is_max"], values["rollout_corr/rollout_is_min"]
        assert max(abs(math.log(largest)), abs(math.log(smallest))) <= 1e-3  # far below the 0.5 that we promise
        assert values["training/rollout_probs_diff_mean"] <= 1e-4
        assert all(math.isfinite(value) for value in values.values())
        assert values["actor/grad_norm"] > 0


def assert_same(steps, others, numbers):
    for number in numbers:
        mine, theirs = steps[number].repeatable, others[number].repeatable
        assert len(mine) > 40
        assert mine == theirs


def test_two_seeded_runs_have_equal_metrics(legacy_twice):
    first, second = legacy_twice
    assert sorted(first) == [1, 2, 3]
    assert_healthy(first)
    assert_same(first, second, [1, 2, 3])


def test_the_demo_model_starts_where_there_is_something_to_gain_and_to_lose(legacy_twice):
    first, _ = legacy_twice
    assert 0.2 < first[1].values["critic/score/mean"] < 0.8
    assert first[1].values["val-core/crosscheck/addition/acc/mean@1"] > 0.2


def test_a_resumed_run_goes_on_as_if_nothing_had_been(runs, legacy_twice):
    resumed = runs.one("legacy_resumed", *SAVE_AT_2_OF_3, "trainer.test_freq=1", *runs.resume("legacy"))
    assert sorted(resumed) == [3]
    assert_same(resumed, legacy_twice[0], [3])


def test_two_ranks_with_the_new_workers_train_and_resume(runs, two_ranks):
    assert sorted(two_ranks) == [1, 2, 3]
    assert_healthy(two_ranks)
    overrides = [*SAVE_AT_2_OF_3, NEW_WORKERS, "trainer.n_gpus_per_node=2", *runs.resume("two_ranks")]
    resumed = runs.one("two_ranks_resumed", *overrides)
    assert_same(resumed, two_ranks, [3])


def test_both_worker_implementations_agree(legacy_twice, two_ranks):
    """One rank with the legacy workers and two with the new ones start with the same rollouts and the same numbers."""
    legacy, new = legacy_twice[0][1].values, two_ranks[1].values
    for name in ("critic/score/mean", "response_length/mean"):
        assert legacy[name] == new[name]
    for name in ("actor/entropy", "actor/grad_norm"):
        assert legacy[name] == pytest.approx(new[name], rel=1e-3)


@pytest.mark.parametrize("index", [0, 1], ids=["legacy workers", "new workers"])
def test_a_critic_trains_beside_a_reference_policy(runs, critics, index):
    steps = critics[index]
    assert sorted(steps) == [1, 2]
    assert_healthy(steps)
    assert steps[1].values["critic/grad_norm"] > 0
    assert steps[1].values["actor/kl_loss"] < steps[2].values["actor/kl_loss"]
    folder = launch.checkpoint_dir(runs.folder / ["gae_legacy", "gae_new"][index]) / "global_step_2"
    assert any((folder / "critic").iterdir()) and any((folder / "actor").iterdir())


def test_critics_of_both_worker_implementations_start_alike(critics):
    legacy, new = (steps[1].values for steps in critics)
    assert legacy["critic/values/mean"] == pytest.approx(new["critic/values/mean"], abs=0.02)
