# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The ledger of a step, with times computed by hand."""

import pytest

from recipe.crosscheck.ledger import LedgerStep, exchange_s, ideal_step_s


def times(**timing):
    return LedgerStep.of({f"timing_s/{name.replace('__', '/')}": seconds for name, seconds in timing.items()})


def ckpt_side(**changes):
    """Generates 2 s, identifies and saves 0.1 s, trains 3 s, waits 5 s, loads 0.2 s, pushes 1 s."""
    timing = {
        "gen": 2.1,
        "share_data__identify": 0.04,
        "share_data__save_rollout": 0.06,
        "share_data__wait_ckpt": 5.0,
        "share_data__load_ckpt": 0.2,
        "update_weights": 1.0,
        "step": 11.3,
    }
    return times(**{**timing, **changes})


def rollout_side(**changes):
    """Spends 0.02 s around the exchange, waits 3 s, loads 0.3 s, trains 7 s, saves 0.4 s, pushes 0.5 s."""
    timing = {
        "gen": 3.32,
        "share_data__identify": 0.1,
        "share_data__wait_rollout": 3.0,
        "share_data__load_rollout": 0.2,
        "share_data__save_ckpt": 0.4,
        "update_weights": 0.5,
        "step": 11.22,
    }
    return times(**{**timing, **changes})


def test_own_work():
    a, b = ckpt_side(), rollout_side()
    assert (a.generate_s, a.train_s, a.push_s, a.work_s) == pytest.approx((2.0, 3.0, 1.0, 6.0))
    assert (a.wait_s, a.save_s, a.load_s) == pytest.approx((5.0, 0.1, 0.2))
    assert (b.generate_s, b.train_s, b.push_s, b.work_s) == pytest.approx((0.02, 7.0, 0.5, 7.52))
    assert (b.wait_s, b.save_s, b.load_s) == pytest.approx((3.0, 0.4, 0.3))


def test_without_an_exchange_a_step_is_generating_the_longer_training_and_pushing():
    a, b = ideal_step_s([ckpt_side()] * 3, [rollout_side()] * 3)
    assert a == pytest.approx([10.0, 10.0, 10.0])  # 2 + max(3, 7) + 1
    # B: waits for A's 2 s, trains 7, pushes 0.5; from then on it is in step with A, half a second of pushing ahead.
    assert b == pytest.approx([9.5, 10.0, 10.0])


def test_what_a_step_takes_beyond_that_is_the_exchange():
    a, b = exchange_s([ckpt_side()] * 3, [rollout_side()] * 3)
    assert a == pytest.approx([1.3, 1.3])
    assert b == pytest.approx([1.22, 1.22])


def test_a_slow_push_of_the_other_run_is_its_own_work():
    # B pushes 4 s, so it begins to train 1 s after A has generated: 4 - (1 + 2) = 1 s longer, and no exchange.
    a, b = ideal_step_s([ckpt_side()] * 3, [rollout_side(update_weights=4.0, step=14.72)] * 3)
    assert b == pytest.approx([13.0, 11.02, 11.02])  # 0.02 around, 7 of training, 4 of pushing: B is the slower one
    assert a == pytest.approx([10.0, 11.02, 11.02])


def test_training_of_the_ckpt_side_counts_if_it_is_the_longer():
    a, _ = ideal_step_s([ckpt_side(step=20.3)] * 2, [rollout_side()] * 2)
    assert a == pytest.approx([2 + 12 + 1] * 2)


def test_the_longer_run_is_cut():
    a, b = exchange_s([ckpt_side()] * 5, [rollout_side()] * 3)
    assert (len(a), len(b)) == (2, 2)
    assert exchange_s([ckpt_side()], [rollout_side()]) == ([], [])
