# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Limits that two healthy runs measure."""

import pytest

from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.diagnosis.reference import beyond_noise, floors, raised_to_noise, with_control
from verl.crosscheck.diagnosis.thresholds import profile

LIMITS = profile("dense_bf16")
MEAN = "rollout_taker/logprob_abs_diff_mean"


def control(*values, aspect=Aspect.ROLLOUT_TAKER, quantity="logprob_abs_diff_mean", beside=()):
    return [
        StepComparison(at, at, 64, 100, (Finding(aspect, quantity, State.AGREE, value), *beside))
        for at, value in enumerate(values)
    ]


def derived(*values, **what):
    limits = with_control(LIMITS, control(*values, **what))
    return limits.of(what.get("aspect", Aspect.ROLLOUT_TAKER), what.get("quantity", "logprob_abs_diff_mean"))


def test_the_limit_is_a_multiple_of_the_largest_value():
    assert derived(0.010, 0.012, 0.016, 0.011, 0.012, 0.013, 0.012, 0.012) == pytest.approx(1.5 * 0.016)


def test_a_short_control_leaves_more_room():
    assert derived(0.010, 0.016) == pytest.approx(2 * 0.016)


def test_a_single_outlier_does_not_count_in_full():
    assert floors(control(*[0.01] * 9, 0.5)) == {MEAN: pytest.approx(0.03)}


def test_equal_machines_leave_a_share_of_the_profile():
    assert derived(0.0, 0.0) == pytest.approx(0.3 * LIMITS.logprob_abs_diff_mean)


def test_equal_updates_leave_their_limit_as_it_is():
    what = {"aspect": Aspect.UPDATE, "quantity": "change_rel_diff"}
    assert derived(0.0, 0.0, **what) == LIMITS.change_rel_diff
    assert derived(*[0.1] * 8, **what) == pytest.approx(0.15)


def test_noise_beyond_the_profile_widens_the_limit_up_to_a_ceiling():
    assert derived(*[0.08] * 8) == pytest.approx(0.12)
    assert derived(*[10.0] * 8) == pytest.approx(1.5 * 3 * LIMITS.logprob_abs_diff_mean)


def test_beyond_the_ceiling_it_is_no_noise():
    aspects = (Aspect.ROLLOUT_TAKER,)
    assert beyond_noise(LIMITS, control(*[0.08] * 8), aspects) == ()
    assert beyond_noise(LIMITS, control(*[0.16] * 8), aspects) == (MEAN,)
    assert beyond_noise(LIMITS, control(*[0.16] * 8), (Aspect.FORWARD,)) == ()


def test_a_correlation_is_measured_from_1_downwards():
    spread = Finding(Aspect.FORWARD, "prob_spread", State.AGREE, 0.3)
    what = {"aspect": Aspect.FORWARD, "quantity": "pearson"}
    assert derived(*[0.99] * 8, beside=(spread,), **what) == pytest.approx(1 - 1.5 * 0.01)
    flat = Finding(Aspect.FORWARD, "prob_spread", State.AGREE, 0.01)
    assert derived(*[0.2] * 8, beside=(flat,), **what) == LIMITS.pearson


def test_a_ratio_is_measured_from_1_upwards():
    what = {"aspect": Aspect.FORWARD, "quantity": "exp_abs_diff_mean"}
    assert derived(*[1.02] * 8, **what) == pytest.approx(1.03)


def test_what_must_be_exact_or_is_chance_keeps_its_limit():
    for aspect, quantity in ((Aspect.SYNC, "tensors_out_of_sync"), (Aspect.SAMPLING, "nll_minus_entropy_z")):
        assert derived(*[9.0] * 8, aspect=aspect, quantity=quantity) == LIMITS.of(aspect, quantity)
    assert derived(*[0.5] * 8, aspect=Aspect.UPDATE, quantity="lr_rel_diff") == LIMITS.lr_rel_diff


def test_only_the_aspect_that_was_measured_changes():
    limits = with_control(LIMITS, control(*[0.01] * 8))
    assert limits.of(Aspect.FORWARD, "logprob_abs_diff_mean") == LIMITS.logprob_abs_diff_mean
    assert (limits.name, limits.control_steps) == ("dense_bf16+control", 8)


def test_no_control_changes_nothing():
    assert with_control(LIMITS, []) is LIMITS
    assert floors([]) == {}


def test_beside_other_steps_noise_counts_by_what_each_quantity_goes_with():
    """Three times for differences, nine times for what goes with their square; a share cannot be told to be smaller
    than that of three tokens."""
    values = {
        "logprob_abs_diff_mean": 0.03,
        "k3": 0.004,
        "pearson": 0.997,
        "ratio_beyond_2_share": 0.001,
    }
    more = {"tokens": 900, "prob_spread": 0.3}
    findings = tuple(
        Finding(Aspect.ROLLOUT_TAKER, name, State.AGREE, value) for name, value in {**values, **more}.items()
    )
    steps = [StepComparison(1, 0, 256, 900, findings)]
    raised = raised_to_noise(profile("dense_bf16"), steps, Aspect.ROLLOUT_TAKER)
    found = {name: raised.of(Aspect.ROLLOUT_TAKER, name) for name in values}
    assert found == pytest.approx(
        {"logprob_abs_diff_mean": 0.09, "k3": 0.036, "pearson": 0.973, "ratio_beyond_2_share": 9 * 3 / 900}
    )
    quiet = raised_to_noise(profile("dense_bf16"), [], Aspect.ROLLOUT_TAKER)
    assert quiet.of(Aspect.ROLLOUT_TAKER, "k3") == profile("dense_bf16").of(Aspect.ROLLOUT_TAKER, "k3")
