# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Cases that were once judged wrongly with high confidence, each with the right verdict, on several seeds."""

from dataclasses import replace
from math import hypot

import numpy as np
import pytest
from crosscheck.diagnosis.simulated import World, evidence, step
from crosscheck.diagnosis.test_verdict_on_cpu import steps

from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase, State
from verl.crosscheck.diagnosis.rules import Because
from verl.crosscheck.diagnosis.thresholds import limits_for, profile
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.diagnosis.weight_changes import kind_of, layer_of
from verl.crosscheck.evidence.step import TensorChange

BF16, FP32 = 0.015, 1e-5
LIMITS = {BF16: profile("dense_bf16"), FP32: profile("dense_fp32")}
SEEDS = range(5)


def compared(world, rng, number, **how):
    sides = step(world, rng, number, **how)
    return compare_step(*sides, limits_for(*(side.sampling for side in sides)))


def pair(world, seed, count=4, **how):
    rng = np.random.default_rng([seed, count])
    return [compared(world, rng, number, **how) for number in range(1, count + 1)]


@pytest.mark.parametrize("seed", SEEDS)
def test_samples_of_a_prompt_that_are_all_the_same(seed):
    """One seed for all samples of a prompt: the rewards of a group are equal, so the gradient is 0 in both runs."""
    verdict = judge(scenario_1=pair(World(rows=128, group=8, clones=1.0), seed, 3), limits=LIMITS[FP32])
    assert (verdict.phase, verdict.first_step, verdict.confidence) == (Phase.ROLLOUT, 1, Confidence.HIGH)
    assert verdict.because == (Because.SAMPLES_NOT_INDEPENDENT.value,)  # and no hint at the temperature


def test_the_sampling_test_is_not_mistaken_for_clones():
    """On groups of 8 clones, sums over rows fired by chance in one step of ten."""
    fired = 0
    for seed in range(30):
        world = World(rows=128, group=8, clones=1.0)
        findings = compared(world, np.random.default_rng([7, seed]), 1).findings
        fired += any(each.aspect is Aspect.SAMPLING and each.state is State.DIFFER for each in findings)
    assert fired == 0


@pytest.mark.parametrize("longest", [1, 2, 8])
@pytest.mark.parametrize("sharpness", [0.3, 4, 15])
def test_equal_responses_by_chance_are_not_accused(longest, sharpness):
    """Short responses of a sure model are equal most of the time."""
    for seed in range(6):
        world = World(rows=64, group=16, longest=longest, sharpness=float(sharpness), noise=BF16)
        verdict = judge(scenario_1=pair(world, seed, 5), limits=LIMITS[BF16])
        assert verdict.phase is Phase.NO_FAULT, verdict.because


@pytest.mark.parametrize("seed", SEEDS)
def test_a_stop_token_inside_a_response(seed):
    verdict = judge(scenario_1=pair(World(stops_inside=0.05), seed), limits=LIMITS[FP32])
    assert (verdict.phase, verdict.confidence) == (Phase.ROLLOUT, Confidence.HIGH)
    assert verdict.because == (Because.STOP_TOKEN_INSIDE.value,)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("sampled_at", [0.95, 1.05])
def test_a_temperature_that_is_a_little_off_in_all_steps(seed, sampled_at):
    world = World(rows=128, sampled_at=sampled_at, noise=BF16)
    few, many = pair(world, seed, 1), pair(world, seed, 20)
    assert judge(scenario_1=few, limits=LIMITS[BF16]).phase is Phase.NO_FAULT
    verdict = judge(scenario_1=many, limits=LIMITS[BF16])
    assert verdict.phase is Phase.ROLLOUT
    assert Because.SAMPLING_NOT_AS_CLAIMED.value in verdict.because
    assert any("pooled" in each.finding.quantity for each in verdict.evidence)


@pytest.mark.parametrize("noise", [BF16, FP32])
def test_tests_over_steps_do_not_accuse_healthy_pairs(noise):
    for seed in range(8):
        world = World(rows=64, noise=noise, temperature=[0.7, 1.0, 1.3][seed % 3])
        assert judge(scenario_1=pair(world, seed, 40), limits=LIMITS[noise]).phase is Phase.NO_FAULT


@pytest.mark.parametrize("rows", [4, 16])
@pytest.mark.parametrize("controlled", [False, True])
def test_small_batches_and_heavy_tails_are_not_accused(rows, controlled):
    """In 2 % of the tokens the engine has 20 times the noise."""
    world = World(rows=rows, noise=BF16, tail=(0.02, 20.0))
    for seed in range(10):
        control = pair(replace(world, rows=64), 100 + seed, 6) if controlled else ()
        verdict = judge(scenario_1=pair(world, seed, 6), control=control, limits=LIMITS[BF16])
        assert verdict.phase in (Phase.NO_FAULT, Phase.INCONCLUSIVE), verdict.evidence[:1]


def test_a_noisier_engine_beside_a_control_of_other_hardware():
    """A's engine is twice as noisy as B's, both as their hardware is: the control tells of B's alone."""
    for seed in SEEDS:
        control, own = (
            pair(World(rows=64, noise=BF16), 50 + seed, 8),
            pair(World(rows=64, noise=BF16, engine_off=0.05), seed),
        )
        unlike = judge(scenario_1=own, control=control, limits=LIMITS[BF16], control_alike=False)
        assert unlike.phase is Phase.NO_FAULT
        alike = judge(scenario_1=own, control=control, limits=LIMITS[BF16], control_alike=True)
        assert alike.phase is Phase.ROLLOUT


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("off", [0.05, 1.0])
def test_a_fault_of_the_training_of_b(seed, off):
    """Once laid on A's training, with scenario 2 and a control that shows B off as well."""
    world = World(rows=128, train_b_off=off)
    one, two = pair(world, seed), pair(world, 30 + seed, a_is_sampler=False)
    alone = judge(scenario_1=one, limits=LIMITS[FP32])
    assert (alone.phase, alone.because) == (Phase.INCONCLUSIVE, (Because.ENGINES_OF_A_AGREE_AGAINST_B.value,))
    both = judge(scenario_1=one, scenario_2=two, limits=LIMITS[FP32])
    assert (both.phase, both.confidence, both.first_step) == (Phase.REFERENCE, Confidence.HIGH, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_of_the_training_of_a_below_the_noise_of_the_rollout(seed):
    """The rollout engine in bfloat16 agrees with both trainings; it still shows which of them is wrong."""
    world = World(rows=256, noise=BF16, train_a_off=0.2)
    verdict = judge(scenario_1=pair(world, seed), limits=LIMITS[BF16])
    assert verdict.phase is Phase.TRAINING_FORWARD
    assert Because.ROLLOUT_AGREES_WITH_B.value in verdict.because


def test_the_same_fault_in_both_trainings_from_a_step_on():
    disagrees = {"rollout_taker": State.DIFFER, "rollout_sampler": State.DIFFER}
    shared = [*steps(3), *steps(3, first=4, **disagrees)]
    for more in ({}, {"control": steps(3)}):
        verdict = judge(scenario_1=shared, limits=LIMITS[BF16], **more)
        assert (verdict.phase, verdict.because) == (Phase.INCONCLUSIVE, (Because.REFERENCE_SHOWN_ONLY_BEFORE.value,))


def test_another_reward_for_the_same_responses():
    rng = np.random.default_rng(3)
    sampler, taker = step(World(), rng)
    other = taker.rows["reward"] + (np.arange(len(taker.row_ids)) < 5)
    taker = replace(taker, rows={**taker.rows, "reward": other})
    found = compare_step(sampler, taker, LIMITS[FP32])
    verdict = judge(scenario_1=[found], limits=LIMITS[FP32])
    assert (verdict.phase, verdict.because) == (Phase.REWARD_OR_ADVANTAGE, (Because.REWARDS_DIFFER.value,))


def test_a_reward_function_of_a_that_is_wrong_travels_with_its_rollout():
    """Both runs train on the rewards that came with the rollout: only B's own function shows it."""
    sampler, taker = step(World(), np.random.default_rng(3))
    own = np.where(np.arange(len(taker.row_ids)) < 64, taker.rows["reward"], np.nan)
    agreeing = replace(taker, rows={**taker.rows, "own_reward": own})
    assert (
        judge(scenario_1=[compare_step(sampler, agreeing, LIMITS[FP32])], limits=LIMITS[FP32]).phase is Phase.NO_FAULT
    )
    differing = replace(taker, rows={**taker.rows, "own_reward": 1.0 - own})
    verdict = judge(scenario_1=[compare_step(sampler, differing, LIMITS[FP32])], limits=LIMITS[FP32])
    assert (verdict.phase, verdict.because) == (Phase.REWARD_OR_ADVANTAGE, (Because.REWARDS_DIFFER.value,))
    unknown = judge(scenario_1=[compare_step(sampler, taker, LIMITS[FP32])] * 3, limits=LIMITS[FP32])
    assert "inputs/reward_recomputed_rel_diff_max" in unknown.not_compared
    assert unknown.confidence is not Confidence.HIGH


def test_a_critic_is_listed_as_not_compared():
    sides = [
        replace(each, sampling={**each.sampling, "critic": True}) for each in step(World(), np.random.default_rng(4))
    ]
    verdict = judge(scenario_1=[compare_step(*sides, LIMITS[FP32])] * 3, limits=LIMITS[FP32])
    assert "update/critic_update" in verdict.not_compared
    assert verdict.confidence is not Confidence.HIGH


def transformer(layers, hidden, kv, inner, vocabulary, experts=0):
    """Elements of each tensor of a model, by its name."""
    sizes = {"model.embed_tokens.weight": vocabulary * hidden, "lm_head.weight": vocabulary * hidden}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        sizes |= {
            f"{at}.self_attn.q_proj.weight": hidden * hidden,
            f"{at}.self_attn.k_proj.weight": hidden * kv,
            f"{at}.self_attn.v_proj.weight": hidden * kv,
            f"{at}.self_attn.o_proj.weight": hidden * hidden,
            f"{at}.self_attn.k_proj.bias": kv,
            f"{at}.input_layernorm.weight": hidden,
        }
        for part in ("gate", "up", "down"):
            if experts:
                sizes |= {f"{at}.mlp.experts.{n}.{part}_proj.weight": hidden * inner for n in range(experts)}
            else:
                sizes[f"{at}.mlp.{part}_proj.weight"] = hidden * inner
    return sizes


SHAPES = {
    "tiny": (2, 64, 32, 128, 99),
    "7B": (28, 3584, 512, 18944, 152064),
    "30B-A3B": (48, 2048, 512, 768, 151936, 128),
}


def updates(sizes, rng, fault, noise=0.25):
    """What Adam's update does to each tensor: about a learning rate to each element, and rounding apart."""
    changes = {}
    for name, size in sizes.items():
        other = 1e-6 * np.sqrt(size) * rng.uniform(0.7, 1.0)
        apart = (1.4 if name.endswith("bias") else noise * rng.uniform(0.7, 1.3)) * other
        changes[name] = TensorChange(other, other, apart)
        if fault == "attention lost" and ".self_attn." in name:
            changes[name] = TensorChange(0.0, other, other)
        if fault == "k and v of the wrong sign" and (".k_proj." in name or ".v_proj." in name):
            changes[name] = TensorChange(other, other, 2 * other)
        if fault == "experts of one rank lost" and ".experts." in name and int(name.split(".")[5]) < 16:
            changes[name] = TensorChange(0.0, other, other)
        if fault == "one layer lost" and ".layers.1." in name:
            changes[name] = TensorChange(0.0, other, other)
        if fault == "one layer lost in B" and ".layers.1." in name:
            changes[name] = TensorChange(other, 0.0, other)
        if fault == "an expert without a token" and ".layers.1.mlp.experts.5." in name:
            changes[name] = TensorChange(0.0, other, other)
    return changes


UPDATES = [
    ("7B", "attention lost", Phase.TRAINING_UPDATE),
    ("7B", "k and v of the wrong sign", Phase.TRAINING_UPDATE),
    ("7B", "one layer lost", Phase.TRAINING_UPDATE),
    ("7B", "one layer lost in B", Phase.REFERENCE),
    ("7B", None, Phase.NO_FAULT),
    ("tiny", "attention lost", Phase.TRAINING_UPDATE),
    ("tiny", "k and v of the wrong sign", Phase.TRAINING_UPDATE),
    ("tiny", None, Phase.NO_FAULT),
    ("30B-A3B", "experts of one rank lost", Phase.TRAINING_UPDATE),
    ("30B-A3B", "attention lost", Phase.TRAINING_UPDATE),
    ("30B-A3B", "one layer lost", Phase.TRAINING_UPDATE),
    ("30B-A3B", "an expert without a token", Phase.NO_FAULT),
    ("30B-A3B", None, Phase.NO_FAULT),
]


@pytest.mark.parametrize(("shape", "fault", "phase"), UPDATES)
def test_updates_of_part_of_a_model(shape, fault, phase):
    rng = np.random.default_rng([11, len(shape)])
    sampler, taker = step(World(noise=BF16), rng)
    sampler = replace(sampler, changes=updates(transformer(*SHAPES[shape]), rng, fault))
    found = compare_step(sampler, taker, LIMITS[BF16])
    verdict = judge(scenario_1=[found, *[replace(found, global_step=n) for n in (2, 3)]], limits=LIMITS[BF16])
    assert verdict.phase is phase, [(e.finding.quantity, e.finding.value) for e in verdict.evidence]
    names = " ".join(str(each.finding.reason) for each in verdict.evidence)
    named = {"attention lost": "self_attn", "k and v of the wrong sign": "_proj", "experts of one rank lost": "experts"}
    assert named.get(fault, "") in names
    if fault in ("attention lost", "one layer lost", "experts of one rank lost"):
        assert Because.ONLY_A_LEFT_UNMOVED.value in verdict.because


def test_kinds_and_layers_of_tensors():
    assert kind_of("model.layers.3.mlp.experts.17.up_proj.weight") == "model.layers.*.mlp.experts.*.up_proj.weight"
    assert layer_of("model.layers.3.mlp.experts.17.up_proj.weight") == "model.layers.3"
    assert (kind_of("lm_head.weight"), layer_of("lm_head.weight")) == ("lm_head.weight", "lm_head.weight")


def test_evidence_of_older_versions_lacks_the_new_tests_and_says_so():
    log_probs = {"rollout": np.log(np.full(30, 0.5)), "train": np.log(np.full(30, 0.5))}
    sides = [evidence(mode, np.arange(10), [3] * 10, log_probs) for mode in ("ckpt", "rollout")]
    found = compare_step(*sides, LIMITS[BF16])
    missing = {f"{f.aspect.value}/{f.quantity}": str(f.reason) for f in found.findings if f.state is State.MISSING}
    assert "older version" in missing["independence/equal_responses_nats"]
    assert "older version" in missing["ending/stop_inside_share"]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("shift", [0.03, 0.5])
@pytest.mark.parametrize("who", ["train_a", "train_b", "both"])
def test_log_probs_of_a_training_engine_that_do_not_sum_to_1(seed, shift, who):
    """A sum over parts of the vocabulary that was not reduced over ranks: every log-prob is too high."""
    shifted = []
    for number in (1, 2, 3):
        sides = step(World(rows=128, noise=BF16), np.random.default_rng([seed, number]), number)
        for name, side in zip(("train_a", "train_b"), sides, strict=True):
            if who in (name, "both"):
                side.tokens["train"][:] = np.minimum(side.tokens["train"] + np.float32(shift), 0)
        shifted.append(compare_step(*sides, LIMITS[BF16]))
    verdict = judge(scenario_1=shifted, limits=LIMITS[BF16])
    assert verdict.phase in (Phase.INCONCLUSIVE, Phase.NO_FAULT, Phase.TRAINING_FORWARD), verdict.because
    assert verdict.phase is not Phase.TRAINING_FORWARD or who == "train_a"


def test_masks_that_depend_on_the_response_make_no_test_of_chance():
    """Overlong responses are masked in both runs, so those that are left are not a sample."""
    for seed in range(30):
        sides = step(World(rows=256, sharpness=2.0), np.random.default_rng([13, seed]))
        masked = []
        for side in sides:
            keep = np.repeat(side.lengths < 8, side.lengths)
            counts = np.where(side.lengths < 8, side.lengths, 0)
            masked.append(
                replace(side, tokens={**side.tokens, "mask": keep}, rows={**side.rows, "mask_tokens": counts})
            )
        found = compare_step(*masked, LIMITS[FP32])
        for aspect in (Aspect.SAMPLING, Aspect.INDEPENDENCE):
            (only,) = [each for each in found.findings if each.aspect is aspect]
            assert only.state is State.MISSING and "masks leave out" in str(only.reason)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_in_few_rows_is_found_over_steps(seed):
    """Three of eight rows are beyond any threshold, and three standard errors of one step as well."""
    few = []
    for number in range(1, 9):
        rng = np.random.default_rng([17, seed, number])
        sampler, taker = step(World(rows=8), rng, number)
        at_row = np.repeat(np.arange(8), sampler.lengths)
        off = np.where(at_row < 3, np.abs(rng.normal(0, 0.1, len(at_row))), 0).astype(np.float32)
        tokens = {**sampler.tokens, "train": sampler.tokens["train"] - off}
        few.append(compare_step(replace(sampler, tokens=tokens), taker, LIMITS[FP32]))
    verdict = judge(scenario_1=few, limits=LIMITS[FP32])
    assert verdict.phase is Phase.TRAINING_FORWARD
    first = judge(scenario_1=few[:1], limits=LIMITS[FP32])
    assert (first.phase, first.confidence) != (Phase.NO_FAULT, Confidence.HIGH)


def test_rewards_are_compared_on_their_own_scale():
    sampler, taker = step(World(), np.random.default_rng(5))
    for scale, outlier in ((0.01, 0.0), (1.0, -100.0), (1e3, 0.0)):
        rewards = scale * (np.arange(len(taker.row_ids)) % 2) + outlier * (np.arange(len(taker.row_ids)) == 0)
        inverted = np.where(np.arange(len(rewards)) > 0, scale - rewards, rewards)
        given = ((sampler, rewards), (taker, inverted))
        own, other = (replace(each, rows={**each.rows, "reward": reward}) for each, reward in given)
        verdict = judge(scenario_1=[compare_step(own, other, LIMITS[FP32])], limits=LIMITS[FP32])
        assert verdict.phase is Phase.REWARD_OR_ADVANTAGE
        same = replace(taker, rows={**taker.rows, "reward": rewards + scale * 1e-7})
        assert judge(scenario_1=[compare_step(own, same, LIMITS[FP32])], limits=LIMITS[FP32]).phase is Phase.NO_FAULT


@pytest.mark.parametrize("shape", ["tiny", "7B", "30B-A3B"])
@pytest.mark.parametrize("factor", [0.6, 0.7, 1.5])
def test_an_update_of_another_size(shape, factor):
    rng = np.random.default_rng(19)
    changes = {
        name: TensorChange(factor * each.other, each.other, hypot((1 - factor) * each.other, 0.05 * each.other))
        for name, each in updates(transformer(*SHAPES[shape]), rng, None).items()
    }
    sampler, taker = step(World(noise=BF16), rng)
    found = compare_step(replace(sampler, changes=changes), taker, LIMITS[BF16])
    verdict = judge(scenario_1=[found], limits=LIMITS[BF16])
    assert verdict.phase is Phase.TRAINING_UPDATE
    assert "change_norm_rel_diff" in {each.finding.quantity for each in verdict.evidence}
