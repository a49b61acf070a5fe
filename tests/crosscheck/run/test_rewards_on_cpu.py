# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards by a run's own function: in the order of the rows that are asked for, and told when they cannot be had.

The workers are plain functions here; `tests/special_e2e/test_rewards_on_cpu.py` has upstream's own.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from verl.crosscheck.run import rewards


class Batch:
    """Rows that are told apart by a number, as `select_idxs` gives them."""

    def __init__(self, rows):
        self.rows = list(rows)

    def select_idxs(self, chosen):
        return Batch([self.rows[at] for at in chosen])


def manager(score, workers=3, **more):
    def worker():
        remote = lambda batch: [{"reward_score": score(row)} for row in batch.rows]  # noqa: E731
        return SimpleNamespace(compute_score_batch=SimpleNamespace(remote=remote))

    return SimpleNamespace(reward_loop_workers=[worker() for _ in range(workers)], **more)


@pytest.fixture(autouse=True)
def answers_at_once(monkeypatch):
    monkeypatch.setattr("ray.get", lambda answer: answer)


@pytest.mark.parametrize("rows", [[], [4], [7, 1, 3, 0, 9, 2, 5]])
@pytest.mark.parametrize("workers", [1, 3, 8])
def test_scores_come_in_the_order_of_the_rows(rows, workers):
    rescore = rewards.rescore_of(manager(lambda row: row / 10, workers), Batch(range(10)))
    assert rescore(rows).tolist() == [row / 10 for row in rows]


def test_a_reward_model_is_no_local_function():
    assert rewards.rescore_of(manager(float, reward_model_manager=object()), Batch([1])) is None
    assert rewards.rescore_of(None, Batch([1])) is None


def test_a_function_that_differs_each_time_is_told_from_one_that_is_wrong():
    given = np.asarray([1.0, 0.0, 1.0])
    wrong = rewards.rescore_of(manager(lambda row: 0.5), Batch(range(3)))
    assert rewards.own_rewards(wrong, [0, 1, 2], given).tolist() == [0.5, 0.5, 0.5]
    random = np.random.default_rng(0)
    other = rewards.rescore_of(manager(lambda row: float(random.random())), Batch(range(3)))
    with pytest.raises(rewards.NotRepeatableError, match="in 3 of 3 rows"):
        rewards.own_rewards(other, [0, 1, 2], given)
