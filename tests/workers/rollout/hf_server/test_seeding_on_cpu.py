# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A row's seed says what the row is: equal for equal rows, different for different ones."""

from types import SimpleNamespace

import pytest

from verl.workers.rollout.hf_server.seeding import base_seed, row_seeds, turn_seed

agent_loop = pytest.importorskip("verl.workers.rollout.hf_server.agent_loop")


class Prompts(SimpleNamespace):
    def __len__(self):
        return self.rows


def test_rows_steps_and_validation_are_told_apart():
    seeds = [s for step in (1, 2) for validate in (False, True) for s in row_seeds(7, step, validate, 64)]
    assert len(set(seeds)) == len(seeds) == 256
    assert row_seeds(7, 1, False, 64) == seeds[:64]
    assert row_seeds(8, 1, False, 64)[0] not in seeds


def test_a_row_keeps_its_seed_in_a_larger_call():
    assert row_seeds(7, 1, False, 8) == row_seeds(7, 1, False, 64)[:8]


def test_turns_of_a_conversation_are_told_apart():
    assert turn_seed(5, [1, 2]) == turn_seed(5, (1, 2)) != turn_seed(5, [1, 2, 3])


def test_seeds_do_not_depend_on_the_process():
    assert row_seeds(42, 3, False, 2) == [66197913251927601, 30331222042896586]


def test_a_configured_seed_is_taken_and_none_is_random():
    assert base_seed(0) == 0 and base_seed("12") == 12
    assert base_seed(None) != base_seed(None)


def test_each_row_is_told_its_own_seed():
    column = agent_loop.own_params(Prompts(rows=3, meta_info={"global_steps": 4, "validate": False}), 7)
    assert [own["seed"] for own in column] == row_seeds(7, 4, False, 3)
    assert all(own.keys() == {"seed"} for own in column)


@pytest.mark.parametrize(("meta", "greedy"), [({"do_sample": False}, True), ({"do_sample": True}, False), ({}, False)])
def test_a_call_that_asks_for_no_sampling_is_greedy(meta, greedy):
    (own,) = agent_loop.own_params(Prompts(rows=1, meta_info=meta), 7)
    assert (own.get("temperature") == 0.0) is greedy
