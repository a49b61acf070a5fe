# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two real runs in settings that the demo does not have, and two that do not ask the same question."""

from contextlib import ExitStack

import pytest

from recipe.crosscheck import demo_task, launch, make_data

pytestmark = pytest.mark.slow

LIMIT_S = 300


def start_pair(stack, folder, *, both=(), a=(), b=()):
    """Scenario 1: A in mode ckpt, B in mode rollout, with the overrides of both and of each."""
    data = make_data.write(folder / "data", val_rows=8)
    runs = []
    for name, mode, own in (("a", "ckpt", a), ("b", "rollout", b)):
        overrides = [
            *demo_task.overrides(data),
            f"trainer.share_data={mode}",
            f"trainer.share_data_dir={folder / 'share'}",
            "trainer.share_data_timeout_s=240",
            "trainer.total_training_steps=2",
            *both,
            *own,
        ]
        runs.append(stack.enter_context(launch.running(folder / name, overrides)))
    return runs


def assert_equal_updates(steps_a, steps_b):
    steps_a, steps_b = ([step for step in steps if step.number] for steps in (steps_a, steps_b))  # 0: validation only
    assert [step.number for step in steps_a] == [step.number for step in steps_b] == [1, 2]
    for one, other in zip(steps_a, steps_b, strict=True):
        keys = [k for k in one.repeatable if k.startswith(("actor/", "critic/", "val-", "training/rollout_probs_diff"))]
        assert len(keys) > 10
        assert {key: one.values[key] for key in keys} == {key: other.values[key] for key in keys}


def test_new_workers_with_validation(tmp_path):
    both = ["trainer.use_legacy_worker_impl=disable", "trainer.val_before_train=True", "trainer.test_freq=1"]
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, both=both)
        steps_a, steps_b = a.wait(LIMIT_S), b.wait(LIMIT_S)
    assert_equal_updates(steps_a, steps_b)
    # One validation before training, then training and validation in each of two steps: none is B's own.
    assert len(list((tmp_path / "share").glob("rollout_*"))) == 5
    assert b.log().count("[ShareDataTest] Successfully load pre-generated data from") == 5
    assert a.log().count("[ShareDataTest] Successfully load ckpt from") == 2


def test_two_ranks_with_a_critic(tmp_path):
    both = ["trainer.n_gpus_per_node=2", "algorithm.adv_estimator=gae", "actor_rollout_ref.rollout.n=1"]
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, both=both)
        steps_a, steps_b = a.wait(LIMIT_S), b.wait(LIMIT_S)
    assert_equal_updates(steps_a, steps_b)
    saved = {path.name for path in (tmp_path / "share" / "ckpt_1").iterdir()}
    assert {"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt", "manifest.json"} <= saved


def test_other_prompts_stop_both_runs(tmp_path):
    with ExitStack() as stack:
        a, b = start_pair(
            stack,
            tmp_path,
            a=["trainer.share_data_timeout_s=10"],
            b=["data.seed=7", "trainer.share_data_timeout_s=120"],
        )
        with pytest.raises(launch.RunFailed, match="exit code 1"):
            b.wait(LIMIT_S)
        with pytest.raises(launch.RunFailed, match="exit code 1"):
            a.wait(LIMIT_S)
    assert "MismatchError" in b.log()
    assert "rollout_0 answers another call than this run's call 0 (training, global step 1)" in b.log()
    assert "of 64 prompts differ" in b.log()
    assert "WaitTimeoutError" in a.log()
    assert "for ckpt_0 in" in a.log()
    assert not (tmp_path / "share" / "ckpt_0").exists()
