# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Simulated steps: healthy ones are never accused, however small or odd; faults are, from few responses."""

import numpy as np
import pytest
from crosscheck.diagnosis.simulated import World, draw, log_softmax, step

from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Phase, State
from verl.crosscheck.diagnosis.rollout_checks import nll_minus_entropy
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import limits_for, profile
from verl.crosscheck.diagnosis.verdict import judge, judge_step


def compared(world, rng, number=1, **how):
    sides = step(world, rng, number, **how)
    return compare_step(*sides, limits_for(*(side.sampling for side in sides)))


def test_healthy_steps_of_all_kinds_are_not_accused():
    rng = np.random.default_rng(5)
    for _ in range(60):
        world = World(
            rows=int(rng.choice([64, 128, 256])),
            longest=int(rng.choice([1, 2, 4, 8])),
            sharpness=float(rng.choice([0.1, 0.5, 1, 2, 4, 8, 15])),
            temperature=float(rng.choice([0.6, 1, 1.2])),
            noise=float(rng.choice([1e-5, 0.002, 0.015])),
            same_training=bool(rng.integers(2)),
        )
        comparison = compared(world, rng)
        differing = [each for each in comparison.findings if each.state is State.DIFFER]
        assert not differing, (world, differing)
        assert judge(scenario_1=[comparison], limits=profile(f"dense_{SHORT[world.dtype]}")).phase is Phase.NO_FAULT


SHORT = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def some_distributions(rng):
    """[K, V] from next to uniform to next to certain, with rare tokens of all kinds."""
    soft = [log_softmax(rng.normal(0, sharpness, (6, 99))) for sharpness in (0.2, 1, 2, 4, 8, 20)]
    rare = [[1 - share, *[share / 98] * 98] for share in (0.3, 0.05, 0.01, 0.003, 0.001)]
    two = [[1 - share, share, *[1e-30] * 97] for share in (0.5, 0.2, 0.05, 0.01, 0.003, 0.001)]
    return np.concatenate([*soft, np.log(rare), np.log(two)])


def test_thousands_of_healthy_samplings_are_not_accused():
    rng = np.random.default_rng(6)
    log_probs = some_distributions(rng)
    cumulated = np.cumsum(np.exp(log_probs), axis=1)
    entropies = -(np.exp(log_probs) * log_probs).sum(axis=1)
    limits = profile("dense_fp32")
    beyond = 0
    for trial in range(6000):
        rows, length = int(rng.choice([16, 64, 128])), int(rng.choice([1, 2, 4]))
        # half of the trials use one distribution throughout, which leaves chance the most room
        some = (
            rng.integers(len(log_probs), size=rows * length) if trial % 2 else np.full(rows * length, trial // 2 % 47)
        )
        tokens = (cumulated[some] < rng.random(some.size)[:, None]).sum(axis=1).clip(0, 98)
        sums = [column.reshape(rows, length).sum(axis=1) for column in (log_probs[some, tokens], entropies[some])]
        gap = nll_minus_entropy(*sums, np.full(rows, length))
        beyond += gap.mean > limits.nll_minus_entropy_mean and gap.z > limits.nll_minus_entropy_z
    assert beyond == 0


def test_drawing_follows_the_distribution():
    rng = np.random.default_rng(7)
    log_probs = np.broadcast_to(np.log([0.6, 0.3, 0.1]), (30_000, 3))
    assert np.bincount(draw(log_probs, rng)) / 30_000 == pytest.approx([0.6, 0.3, 0.1], abs=0.02)


BF16, FP32 = 0.015, 1e-5
FAULTS = {
    # what is wrong, the verdict, a rule that led to it
    "hotter": (World(rows=192, sampled_at=1.3), Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "hotter, bf16": (World(rows=192, sampled_at=1.3, noise=BF16), Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "colder": (World(rows=192, sampled_at=0.7), Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "top-k": (World(rows=96, top_k=2), Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "wide top-k": (World(rows=192, top_k=10), Phase.ROLLOUT, Because.SAMPLING_NOT_AS_CLAIMED),
    "untempered": (World(rows=192, untempered=True, temperature=0.7), Phase.ROLLOUT, Because.ROLLOUT_DIFFERS),
    "engine": (World(rows=64, engine_off=0.05), Phase.ROLLOUT, Because.ROLLOUT_DIFFERS),
    "engine, bf16": (World(rows=64, engine_off=0.2, noise=BF16), Phase.ROLLOUT, Because.ROLLOUT_DIFFERS),
    "training of A": (World(rows=64, train_a_off=0.05), Phase.TRAINING_FORWARD, Because.ROLLOUT_AGREES_WITH_B),
    "cut": (World(rows=64, cut=0.2), Phase.ROLLOUT, Because.RESPONSES_CUT),
}


@pytest.mark.parametrize("case", FAULTS)
def test_faults_are_found_in_one_step_of_few_responses(case):
    world, phase, because = FAULTS[case]
    rng = np.random.default_rng(8)
    for number in (1, 2, 3):
        comparison = compared(world, rng, number)
        verdict = judge_step(comparison, True, profile(f"dense_{SHORT[world.dtype]}"))
        assert (verdict.phase, verdict.first_step) == (phase, number)
        assert because.value in verdict.because


def test_a_reference_that_shares_the_fault_is_inconclusive():
    """Both trainings are wrong in the same way, so the sampling must not be blamed for it either."""
    rng = np.random.default_rng(9)
    world = World(rows=128)
    pair = []
    for number in (1, 2):
        sampler, taker = step(world, rng, number)
        off = rng.normal(0, 2.0, len(sampler.tokens["train"])).astype(np.float32)
        for side in (sampler, taker):
            side.tokens["train"][:] = np.minimum(side.tokens["train"] + off, 0)
        taker.rows["entropy_sum"][:] *= 0.3
        pair.append(compare_step(sampler, taker, profile("dense_fp32")))
    verdict = judge(scenario_1=pair, limits=profile("dense_fp32"))
    assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.CANNOT_TELL_WHICH.value,))


def test_a_control_finds_what_the_profile_does_not():
    rng = np.random.default_rng(10)
    healthy, slightly = World(rows=64, noise=BF16), World(rows=64, noise=BF16, engine_off=0.04)
    control = [compared(healthy, rng, number) for number in range(1, 9)]
    pair = [compared(slightly, rng, number) for number in range(1, 4)]
    limits = profile("dense_bf16")
    assert judge(scenario_1=pair, limits=limits).phase is Phase.NO_FAULT
    found = judge(scenario_1=pair, control=control, limits=limits)
    assert (found.phase, found.first_step, found.details["control_steps"]) == (Phase.ROLLOUT, 1, 8)
    again = [compared(healthy, rng, number) for number in range(1, 9)]
    assert judge(scenario_1=again, control=control, limits=limits).phase is Phase.NO_FAULT
