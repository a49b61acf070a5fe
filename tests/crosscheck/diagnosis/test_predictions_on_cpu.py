# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Predictions of noise: whose they are, what follows of two together, and which thresholds they make."""

from dataclasses import replace
from math import hypot

import numpy as np
import pytest
from crosscheck.diagnosis.simulated import World, step

from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.distances import Accumulator, SampleColumn
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Finding, Phase, State, StepComparison
from verl.crosscheck.diagnosis.predictions import Predictions, carried_on
from verl.crosscheck.diagnosis.reference import with_control
from verl.crosscheck.diagnosis.thresholds import profile, threshold
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.evidence.step import ROLLOUT, TRAIN, TensorChange

LIMITS = profile("dense_bf16")
MEAN = "logprob_abs_diff_mean"


def noise_of(engine, train, quantity=MEAN):
    return {f"engine/{quantity}": engine, f"train/{quantity}": train}


def sides(own, other, world=World(noise=0.015)):  # noqa: B008  never changed
    sampler, taker = step(world, np.random.default_rng(1))
    return replace(sampler, noise=own), replace(taker, noise=other)


def predicted(own, other, aspect, quantity=MEAN):
    finding = Finding(aspect, quantity, State.AGREE, 0.01)
    (found,) = Predictions(*sides(own, other)).attached([finding])
    return found.predicted


def test_each_aspect_has_the_noise_of_the_engines_that_it_compares():
    own, other = noise_of(0.03, 0.02), noise_of(0.5, 0.04)
    assert predicted(own, other, Aspect.ROLLOUT_TAKER) == pytest.approx(hypot(0.03, 0.04))
    assert predicted(own, other, Aspect.ROLLOUT_SAMPLER) == pytest.approx(hypot(0.03, 0.02))
    assert predicted(own, other, Aspect.FORWARD) == pytest.approx(hypot(0.02, 0.04))
    assert predicted(own, {}, Aspect.FORWARD) is None
    assert predicted(own, other, Aspect.SAMPLING) is None


def test_squares_add_as_they_are_and_correlations_from_1_downwards():
    for quantity, one, two, together in (
        ("k3", 1e-3, 2e-3, 3e-3),
        ("pearson", 0.999, 0.998, 0.997),
        ("exp_abs_diff_mean", 1.03, 1.04, 1.07),
    ):
        own, other = noise_of(0, one, quantity), noise_of(0, two, quantity)
        assert predicted(own, other, Aspect.FORWARD, quantity) == pytest.approx(together)


@pytest.mark.parametrize(
    ("aspect", "quantity", "healthy", "expected"),
    [
        (Aspect.FORWARD, MEAN, 0.04, 0.1),
        (Aspect.FORWARD, MEAN, 1e-7, 0.3 * LIMITS.logprob_abs_diff_mean),
        (Aspect.FORWARD, MEAN, 9.0, 10 * LIMITS.logprob_abs_diff_mean),
        (Aspect.FORWARD, "logprob_abs_diff_max", 1.0, LIMITS.logprob_abs_diff_max),
        (Aspect.FORWARD, "logprob_abs_diff_max", 8.0, 20.0),
        (Aspect.FORWARD, "k3", 2e-3, 6.25 * 2e-3),
        (Aspect.FORWARD, "pearson", 0.99, 1 - 6.25 * 0.01),
        (Aspect.UPDATE, "change_rel_diff", 0.4, 0.6),
        (Aspect.UPDATE, "change_rel_diff", 1.0, 0.9),
        (Aspect.UPDATE, "change_rel_diff", 1e-6, 0.3 * LIMITS.change_rel_diff),
        (Aspect.UPDATE, "grad_norm_rel_diff", 0.1, 0.15),
        (Aspect.SYNC, "tensors_out_of_sync", None, 0),
        (Aspect.FORWARD, MEAN, None, LIMITS.logprob_abs_diff_mean),
    ],
)
def test_the_threshold_that_follows(aspect, quantity, healthy, expected):
    finding = Finding(aspect, quantity, State.AGREE, 0.1, predicted=healthy)
    assert threshold(LIMITS, finding) == pytest.approx(expected)


def test_a_control_of_equal_machines_counts_before_a_prediction():
    finding = Finding(Aspect.FORWARD, MEAN, State.AGREE, 0.1, predicted=0.04)
    control = [StepComparison(n, n, 64, 100, (replace(finding, value=0.01, predicted=None),)) for n in range(8)]
    assert threshold(with_control(LIMITS, control), finding) == pytest.approx(0.015)
    assert threshold(with_control(LIMITS, control, alike=False), finding) == pytest.approx(0.1)


def test_steps_without_a_prediction_have_that_of_the_step_before():
    finding = Finding(Aspect.FORWARD, MEAN, State.AGREE, 0.1)
    steps = [
        StepComparison(n, n, 64, 100, (replace(finding, predicted=value),))
        for n, value in ((1, None), (2, 0.2), (3, None), (4, 0.4), (5, None))
    ]
    assert [each.findings[0].predicted for each in carried_on(steps)] == [0.2, 0.2, 0.2, 0.4, 0.4]


def measured_noise(sampler, taker):
    """What runs would predict of these two: distances of each engine from the truth, which only a simulation knows."""

    def distances(one, other):
        found = Accumulator()
        found.add(SampleColumn(one), SampleColumn(other), np.asarray([len(one)]))
        return found.result().values

    apart = distances(sampler.tokens[ROLLOUT], taker.tokens[TRAIN])
    return {f"{whose}/{name}": value for whose in ("engine", "train") for name, value in apart.items()}


def test_noise_beyond_the_profile_is_healthy_if_it_is_predicted():
    """A small model in bfloat16: both engines are 0.1 nats from each other, twice the profile's threshold."""
    world = World(rows=128, noise=0.015, engine_off=0.15)
    pairs = [step(world, np.random.default_rng(n), n) for n in range(1, 5)]
    blind = [compare_step(*pair, LIMITS) for pair in pairs]
    assert judge(scenario_1=blind, scenario_2=(), limits=LIMITS).phase is not Phase.NO_FAULT
    seeing = [
        compare_step(*(replace(side, noise=measured_noise(*pair) if n == 0 else {}) for side in pair), LIMITS)
        for n, pair in enumerate(pairs)
    ]
    assert judge(scenario_1=seeing, limits=LIMITS).phase is Phase.NO_FAULT


@pytest.mark.parametrize("healthy", [0.02, 0.3, 0.6, 1.4])
def test_no_prediction_hides_an_update_that_is_lost(healthy):
    names = [f"model.layers.{n}.mlp.up_proj.weight" for n in range(4)]
    noise = {"train/change_rel_diff": healthy, **{f"train/change_rel_diff/{name}": healthy for name in names}}
    sampler, taker = sides(noise, noise)
    lost = {name: TensorChange(1.0, 1.0, 1.0 if name == names[2] else 0.1) for name in names}
    found = compare_step(replace(sampler, changes=lost), taker, LIMITS)
    verdict = judge(scenario_1=[found], limits=LIMITS)
    assert verdict.phase is Phase.TRAINING_UPDATE
    assert names[2] in {str(each.finding.reason) for each in verdict.evidence}


def test_beyond_a_fixed_threshold_alone_evidence_is_not_strong():
    differing = Finding(Aspect.FORWARD, MEAN, State.DIFFER, 0.2)
    others = [
        Finding(Aspect.ROLLOUT_TAKER, MEAN, State.AGREE, 0.01),
        Finding(Aspect.ROLLOUT_SAMPLER, MEAN, State.AGREE, 0.2),
    ]

    def confidence(**change):
        findings = (replace(differing, **change), *others)
        steps = [StepComparison(n, n, 64, 100, findings) for n in (1, 2)]
        verdict = judge(scenario_1=steps, limits=LIMITS)
        assert verdict.phase is Phase.TRAINING_FORWARD
        return verdict.confidence

    assert confidence() is Confidence.MEDIUM
    assert confidence(value=0.6) is Confidence.HIGH
    assert confidence(predicted=0.01) is Confidence.HIGH
