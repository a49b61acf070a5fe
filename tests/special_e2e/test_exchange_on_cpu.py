# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two real runs whose own halves would give other numbers, and two that are not set up alike.

Two healthy runs of one configuration agree even if nothing is exchanged. So here A's own training wrecks the model (a
learning rate of 0.01) and B's own sampling has another seed: numbers that agree can only have come from the other run.
The cross-check refuses such a pair, so it is told to warn only.
"""

import shutil
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data

pytestmark = pytest.mark.slow

LIMIT_S = 300
RECORDED = Path(__file__).parents[1] / "recorded" / "session_0_1_0"
VALIDATED = ["trainer.use_legacy_worker_impl=disable", "trainer.val_before_train=True", "trainer.test_freq=1"]
A_TRAINS_BADLY = ["actor_rollout_ref.actor.optim.lr=1e-2", "trainer.share_data_strict=False"]
B_SAMPLES_OTHERWISE = ["actor_rollout_ref.rollout.engine_kwargs.hf.seed=7", "trainer.share_data_strict=False"]


def start_pair(stack, folder, *, both=(), a=(), b=()):
    """Scenario 1: A in mode ckpt, B in mode rollout, with the overrides of both and of each."""
    data = write_data(folder / "data", val_rows=8)
    runs = []
    for name, mode, own in (("a", "ckpt", a), ("b", "rollout", b)):
        overrides = [
            *task_overrides(data),
            f"trainer.share_data={mode}",
            f"trainer.share_data_dir={folder / 'share'}",
            "trainer.share_data_timeout_s=240",
            "trainer.total_training_steps=2",
            *both,
            *own,
        ]
        runs.append(stack.enter_context(launch.running(folder / name, overrides)))
    return runs


def assert_a_rolls_out_and_b_trains(steps_a, steps_b):
    """A's numbers are those of its rollouts under B's weights; B's are those of A's rollouts."""
    steps_a, steps_b = ([step for step in steps if step.number] for steps in (steps_a, steps_b))  # 0: validation only
    assert [step.number for step in steps_a] == [step.number for step in steps_b] == [1, 2]
    for one, other in zip(steps_a, steps_b, strict=True):
        keys = [k for k in one.repeatable if k.startswith(("actor/", "critic/", "val-", "response_length/"))]
        keys = [key for key in keys if key != "actor/lr"]
        assert len(keys) > 10
        assert {key: one.values[key] for key in keys} == {key: other.values[key] for key in keys}
        # The weights that A took reached its rollout engine in the same step.
        assert one.values["training/rollout_probs_diff_max"] < 1e-3
    assert steps_a[0].values["actor/lr"] == 1e-2
    assert steps_b[0].values["actor/lr"] == 1e-5


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A pair with the new workers, its steps, and what it left in its directory."""
    folder = tmp_path_factory.mktemp("pair")
    with ExitStack() as stack:
        a, b = start_pair(stack, folder, both=VALIDATED, a=A_TRAINS_BADLY, b=B_SAMPLES_OTHERWISE)
        steps_a, steps_b = a.wait(LIMIT_S), b.wait(LIMIT_S)
    share = folder / "share"
    return SimpleNamespace(folder=folder, a=a, b=b, steps_a=steps_a, steps_b=steps_b, share=share, left=found_in(share))


@pytest.fixture(scope="module")
def replays(pair, tmp_path_factory):
    """B alone on what A's engine answered in the pair, and a run on the session that version 0.1.0 recorded.

    Both at the same time: one run alone, whose processes start one after the other, leaves cores idle.
    """
    folder = tmp_path_factory.mktemp("recorded")
    data = write_data(pair.folder / "data", val_rows=8)
    own = [*task_overrides(data), *VALIDATED, *B_SAMPLES_OTHERWISE, "trainer.total_training_steps=2"]
    recorded = [*task_overrides(write_data(folder / "data")), "trainer.total_training_steps=3"]
    share = folder / "share"
    shutil.copytree(RECORDED, share)
    share.chmod(0o700)
    left = found_in(share)
    with (
        launch.running(pair.folder / "replay", [*own, *replaying(pair.share)]) as of_pair,
        launch.running(folder / "run", [*recorded, *replaying(share)]) as of_recorded,
    ):
        steps = of_pair.wait(LIMIT_S)
        recorded_steps = of_recorded.wait(LIMIT_S)
    return SimpleNamespace(steps=steps, recorded_steps=recorded_steps, recorded=of_recorded, share=share, left=left)


def replaying(share):
    return [
        "trainer.share_data=rollout",
        "trainer.share_data_replay=True",
        launch.override("trainer.share_data_dir", share),
    ]


def found_in(share):
    return sorted(path.relative_to(share) for path in share.rglob("*"))


def test_new_workers_with_validation(pair):
    assert_a_rolls_out_and_b_trains(pair.steps_a, pair.steps_b)
    # One validation before training, then training and validation in each of two steps: none is B's own.
    assert len(list(pair.share.glob("rollout_*"))) == 5
    assert pair.b.log().count("[ShareDataTest] Successfully load pre-generated data from") == 5
    assert pair.a.log().count("[ShareDataTest] Successfully load ckpt from") == 2


def test_a_replay_has_the_numbers_of_the_pair_and_writes_nothing(pair, replays):
    assert [step.repeatable for step in replays.steps] == [step.repeatable for step in pair.steps_b]
    assert found_in(pair.share) == pair.left


def test_a_run_trains_on_the_recorded_rollouts(replays):
    """A session that version 0.1.0 recorded is replayed by a real run of this version."""
    assert [step.number for step in replays.recorded_steps if step.number] == [1, 2, 3]
    log = replays.recorded.log()
    for index in range(3):
        line = f"[ShareDataTest] Successfully load pre-generated data from {replays.share}/rollout_{index}"
        assert log.count(line) == 1
    assert log.count("[ShareDataTest] replaying session 1 of") == 1
    assert found_in(replays.share) == replays.left


@pytest.mark.extended
def test_two_ranks_with_a_critic(tmp_path):
    both = ["trainer.n_gpus_per_node=2", "algorithm.adv_estimator=gae", "actor_rollout_ref.rollout.n=1"]
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, both=both, a=A_TRAINS_BADLY, b=B_SAMPLES_OTHERWISE)
        steps_a, steps_b = a.wait(LIMIT_S), b.wait(LIMIT_S)
    assert_a_rolls_out_and_b_trains(steps_a, steps_b)
    saved = {path.name for path in (tmp_path / "share" / "ckpt_1").iterdir()}
    assert {"model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt", "manifest.json"} <= saved


@pytest.mark.extended
def test_the_two_halves_alone_give_other_numbers(tmp_path):
    """The control of the tests above: without an exchange these two runs differ from the first update on."""
    off = ["trainer.share_data=null"]
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, a=[*A_TRAINS_BADLY, *off], b=[*B_SAMPLES_OTHERWISE, *off])
        steps_a, steps_b = a.wait(LIMIT_S), b.wait(LIMIT_S)
    assert steps_a[0].values["actor/grad_norm"] != pytest.approx(steps_b[0].values["actor/grad_norm"], rel=0.01)
    assert steps_a[1].values["actor/entropy"] != pytest.approx(steps_b[1].values["actor/entropy"], rel=0.1)


@pytest.mark.extended
def test_different_settings_stop_both_runs(tmp_path):
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, b=["data.seed=7", "actor_rollout_ref.actor.optim.lr=1e-4"])
        for run in (a, b):
            with pytest.raises(launch.RunFailed, match="exit code 1"):
                run.wait(LIMIT_S)
    for run in (a, b):  # whoever looks first is told by the directory, the other one by that one or likewise
        for part in ("AgreementError", "data.seed", "actor_rollout_ref.actor.optim.lr", "share_data_strict=False"):
            assert part in run.log()
    assert not list((tmp_path / "share").glob("ckpt_*"))
