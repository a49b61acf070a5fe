# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Distances of two log-probs, against values worked out by hand."""

import math

import numpy as np
import pytest

from verl.crosscheck.diagnosis.distances import TokenBlock, distances

LN = math.log


def of(p, q, *row_tokens):
    """Distances of tokens with these probabilities."""
    columns = (np.log(np.asarray(each)).astype(np.float32) for each in (p, q))
    return distances([TokenBlock(*columns, np.asarray(row_tokens or [len(p)]))])


def of_logs(p, q):
    return distances([TokenBlock(np.asarray(p, np.float32), np.asarray(q, np.float32), np.asarray([len(p)]))])


def test_four_tokens_by_hand():
    found = of([0.5, 0.25, 0.2, 0.8], [0.25, 0.5, 0.2, 0.1])
    values = found.values
    assert values["logprob_abs_diff_mean"] == pytest.approx((LN(2) + LN(2) + 0 + LN(8)) / 4)
    assert values["logprob_abs_diff_max"] == pytest.approx(LN(8))
    assert values["prob_abs_diff_mean"] == pytest.approx((0.25 + 0.25 + 0 + 0.7) / 4)
    # log-ratios of q to p: -ln 2, ln 2, 0, -ln 8
    assert values["k1"] == pytest.approx(LN(8) / 4)
    k3 = (0.5 - 1 + LN(2) + 2 - 1 - LN(2) + 0 + 0.125 - 1 + LN(8)) / 4
    assert values["k3"] == pytest.approx(k3)
    assert values["k3_over_k1"] == pytest.approx(k3 / (LN(8) / 4))
    assert values["exp_abs_diff_mean"] == pytest.approx((2 + 2 + 1 + 8) / 4)
    assert values["pearson"] == pytest.approx(np.corrcoef([0.5, 0.25, 0.2, 0.8], [0.25, 0.5, 0.2, 0.1])[0, 1], rel=1e-5)
    assert values["prob_spread"] == pytest.approx(np.std([0.25, 0.5, 0.2, 0.1]), rel=1e-4)
    assert (found.tokens, found.nonfinite, values["exact_zeros"]) == (4, (0, 0), 0)


def test_ratios_beyond_2_either_way():
    assert of([0.9, 0.1, 0.5, 0.5], [0.4, 0.21, 0.3, 0.9]).values["ratio_beyond_2_share"] == 0.5


def test_equal_log_probs_are_no_distance_at_all():
    found = of([0.5, 0.2, 0.9], [0.5, 0.2, 0.9])
    zero = ("logprob_abs_diff_mean", "logprob_abs_diff_max", "prob_abs_diff_mean", "k1", "k3", "ratio_beyond_2_share")
    assert [found.values[name] for name in zero] == [0.0] * len(zero)
    assert found.values["exp_abs_diff_mean"] == 1.0
    assert found.values["pearson"] == pytest.approx(1.0)
    assert "k3_over_k1" not in found.values


def test_rows_without_tokens_count_for_nothing():
    found = of([0.5, 0.5, 0.25], [0.25, 0.5, 0.5], 0, 2, 0, 1, 0)
    assert found.row_sums == pytest.approx([0, LN(2), 0, LN(2), 0])
    assert found.row_maxima == pytest.approx([0, LN(2), 0, LN(2), 0])
    assert list(found.row_tokens) == [0, 2, 0, 1, 0]


def test_blocks_add_up_to_the_whole():
    rng = np.random.default_rng(1)
    p = -rng.exponential(1.0, 1000).astype(np.float32)
    q = np.minimum(p + rng.normal(0, 0.3, 1000).astype(np.float32), 0)
    whole = distances([TokenBlock(p, q, np.full(100, 10))])
    parts = distances([TokenBlock(p[at : at + 200], q[at : at + 200], np.full(20, 10)) for at in range(0, 1000, 200)])
    assert parts.values == pytest.approx(whole.values, rel=1e-5)
    np.testing.assert_array_equal(parts.row_sums, whole.row_sums)
    exact = q.astype(float) - p.astype(float)
    assert whole.values["k3"] == pytest.approx(np.mean(np.exp(exact) - 1 - exact), rel=1e-4)


def test_small_differences_keep_their_digits():
    rng = np.random.default_rng(2)
    p = -rng.exponential(1.0, 20_000).astype(np.float32)
    q = p + rng.normal(0, 1e-3, p.size).astype(np.float32)
    found = distances([TokenBlock(p, q, np.full(2000, 10))])
    assert found.values["k3"] == pytest.approx(0.5e-6, rel=0.1)


def test_tokens_that_are_not_finite_are_counted_by_side_and_left_out():
    found = of_logs([-1.0, math.nan, -1.0, -1.0], [-1.0, -1.0, -math.inf, -2.0])
    assert found.nonfinite == (1, 1)
    assert found.tokens == 4
    assert found.values["logprob_abs_diff_mean"] == pytest.approx(0.5)
    assert not np.isfinite(found.row_sums[0])


@pytest.mark.filterwarnings("error")
def test_numbers_above_0_are_no_log_probs():
    found = of_logs([-1.0, 300.0, -1.0], [-1.0, -1.0, -2.0])
    assert found.nonfinite == (1, 0)
    assert found.values["logprob_abs_diff_mean"] == pytest.approx(0.5)
    # What is rounded up from just below 0 still is one.
    assert of_logs([0.004, -1.0], [0.0, -1.0]).nonfinite == (0, 0)


def test_nothing_finite_leaves_no_values():
    found = of_logs([math.nan, math.nan], [-1.0, -1.0])
    assert (found.values, found.nonfinite) == ({}, (2, 0))


def test_all_zero_is_told_by_side():
    assert of_logs([0.0, 0.0], [-1.0, -2.0]).all_zero == (True, False)
    assert of_logs([0.0, -1.0], [0.0, -2.0]).all_zero == (False, False)
    assert of_logs([0.0, -1.0], [0.0, -2.0]).values["exact_zeros"] == 1


def test_no_tokens():
    found = distances([])
    assert (found.tokens, found.values, found.row_sums.size) == (0, {}, 0)


def test_far_apart_stays_finite():
    values = of_logs([-1.0, -2.0], [-500.0, -2.0]).values
    assert all(math.isfinite(value) for value in values.values())
    assert values["logprob_abs_diff_max"] == 499.0
    assert of_logs([-500.0, -2.0], [-1.0, -2.0]).values["k3"] == pytest.approx((math.exp(20) - 21) / 2, rel=1e-5)


def test_tiny_probabilities_are_compared_by_their_logs():
    values = of_logs([-60.0, -95.0], [-60.5, -94.0]).values
    assert values["exp_abs_diff_mean"] == pytest.approx((math.exp(0.5) + math.exp(1)) / 2)
