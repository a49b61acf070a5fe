# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which settings make two runs with unequal numbers of ranks do the same update."""

import pytest

from verl.crosscheck.agreement.batch_split import BatchSplit, batch_split_of, why_other_advantages, why_other_updates

ACTOR = "actor_rollout_ref.actor"


def flat(ranks=1, **changes):
    return {
        "trainer.nnodes": 1,
        "trainer.n_gpus_per_node": ranks,
        "trainer.use_legacy_worker_impl": "disable",
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 64,
        f"{ACTOR}.ppo_mini_batch_size": 64,
        f"{ACTOR}.strategy": "fsdp2",
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, BatchSplit(4, 1, False)),
        ({f"{ACTOR}.ppo_mini_batch_size": 24}, BatchSplit(4, 3, False)),
        ({"trainer.use_legacy_worker_impl": "auto"}, BatchSplit(4, 1, True)),
        (
            {"trainer.use_legacy_worker_impl": "auto", f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean"},
            BatchSplit(4, 1, False),
        ),
        ({f"{ACTOR}.ulysses_sequence_parallel_size": 2}, BatchSplit(2, 1, False)),
        ({f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size": 4}, BatchSplit(1, 1, False)),
        ({"trainer.nnodes": 2}, BatchSplit(8, 1, False)),
        ({"algorithm.adv_estimator": "gae", "critic.ppo_mini_batch_size": 16}, BatchSplit(4, 1, False, 4)),
        ({f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.tensor_model_parallel_size": 4}, BatchSplit(1, 1, False)),
        ({"data.train_batch_size": None}, BatchSplit(4, None, False)),
        ({"trainer.nnodes": "two"}, BatchSplit(None, 1, False)),
    ],
)
def test_of_a_configuration(changes, expected):
    found = batch_split_of(flat(4, **changes))
    assert found == expected
    assert BatchSplit.from_json(found.to_json()) == found


def test_one_mini_batch_holds_all_rows_whatever_the_layout():
    assert why_other_updates(BatchSplit(1, 1, False), BatchSplit(2, 1, False)) is None


def test_equal_layouts_do_the_same_whatever_the_settings():
    assert why_other_updates(BatchSplit(2, 4, True), BatchSplit(2, 4, True)) is None


def test_several_mini_batches_hold_other_rows():
    why = str(why_other_updates(BatchSplit(16, 4, False), BatchSplit(8, 4, False)))
    assert why.startswith("16 data-parallel ranks here and 8 there cut the batch into 4 mini-batches of other rows")
    assert "ppo_mini_batch_size equal to data.train_batch_size" in why


def test_a_mean_by_rank_weighs_otherwise():
    why = str(why_other_updates(BatchSplit(1, 1, True), BatchSplit(2, 1, True)))
    assert "token-mean" in why and "trainer.use_legacy_worker_impl=disable" in why


def test_legacy_workers_read_the_actors_own_word_on_sequence_parallelism():
    key = f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size"
    assert batch_split_of(flat(4, **{key: 4, "trainer.use_legacy_worker_impl": "auto"})).ranks == 4


def test_critics_that_see_other_mini_batches_drift_apart():
    pair = BatchSplit(2, 1, False, 4), BatchSplit(1, 1, False, 4)
    assert why_other_updates(*pair) == why_other_advantages(*pair)
    assert "critic.ppo_mini_batch_size equal to data.train_batch_size" in str(why_other_advantages(*pair))
    assert why_other_advantages(BatchSplit(2, 4, False, 1), BatchSplit(1, 4, False, 1)) is None
    assert why_other_advantages(BatchSplit(2, 1, False, 4), BatchSplit(2, 1, False, 4)) is None


def test_what_is_not_known_is_not_accused():
    assert why_other_updates(BatchSplit(None, 4, True), BatchSplit(2, 4, True)) is None
    assert BatchSplit.from_json("nonsense") is None
    assert BatchSplit.from_json({"ranks": -1, "mini_batches": True}) == BatchSplit(None, None, False)
