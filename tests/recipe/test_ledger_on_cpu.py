# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger of a step, with times computed by hand."""

import pytest

from recipe.crosscheck.ledger import StepTimes, exchange_s


def ckpt_side(**changes):
    """Generates 2 s and saves 0.1 s, trains 3 s, waits 5 s, loads 0.2 s, pushes 1 s."""
    timing = {
        "gen": 2.1,
        "share_data/save_rollout": 0.1,
        "share_data/wait_ckpt": 5.0,
        "share_data/load_ckpt": 0.2,
        "update_weights": 1.0,
        "step": 11.3,
        **changes,
    }
    return StepTimes.of({f"timing_s/{key}": value for key, value in timing.items()})


def rollout_side(**changes):
    """Waits 3 s and loads 0.3 s, trains 7 s, saves 0.4 s, pushes 0.5 s."""
    timing = {
        "gen": 3.3,
        "share_data/wait_rollout": 3.0,
        "share_data/load_rollout": 0.3,
        "share_data/save_ckpt": 0.4,
        "update_weights": 0.5,
        "step": 11.2,
        **changes,
    }
    return StepTimes.of({f"timing_s/{key}": value for key, value in timing.items()})


def test_own_work():
    a, b = ckpt_side(), rollout_side()
    assert (a.generate_s, a.push_s) == pytest.approx((2.0, 1.0))
    assert (a.work_s, a.train_s) == pytest.approx((6.0, 3.0))
    assert (b.generate_s, b.push_s) == pytest.approx((0.0, 0.5))
    assert (b.work_s, b.train_s) == pytest.approx((7.5, 7.0))


def test_cost_of_the_ckpt_side():
    # B trains 7 s and A 3 s, so 4 s of A's wait of 5 s are B's own work: 0.1 + 0.2 + (5 - 4).
    assert exchange_s([ckpt_side()] * 3, [rollout_side()] * 3) == pytest.approx([1.3, 1.3])


def test_cost_of_the_rollout_side():
    # A pushes 1 s and generates 2 s while B pushes 0.5 s, so 2.5 s of B's wait of 3 s are A's: 0.3 + 0.4 + (3 - 2.5).
    assert exchange_s([rollout_side()] * 2, [ckpt_side()] * 2) == pytest.approx([1.2])


def test_the_rollout_side_waits_for_the_push_of_the_step_before():
    peer = [ckpt_side(update_weights=3.0, step=13.3), ckpt_side()]
    # 3 - 0.5 + 2 = 4.5 s are owed, more than the wait: only loading and saving remain.
    assert exchange_s([rollout_side()] * 2, peer) == pytest.approx([0.7])


def test_a_wait_shorter_than_what_is_owed_costs_nothing_more():
    assert exchange_s(
        [ckpt_side(**{"share_data/wait_ckpt": 1.0, "step": 7.3})] * 2, [rollout_side()] * 2
    ) == pytest.approx([0.3])


def test_the_longer_run_is_cut():
    assert len(exchange_s([ckpt_side()] * 5, [rollout_side()] * 3)) == 2
    assert exchange_s([ckpt_side()], [rollout_side()]) == []
