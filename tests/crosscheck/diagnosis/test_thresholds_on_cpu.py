# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Limits: which profile fits, what a file may replace, and that each number has a reason and a source."""

from dataclasses import fields

import pytest

from verl.crosscheck.diagnosis.findings import Aspect
from verl.crosscheck.diagnosis.thresholds import (
    BELOW_IS_BAD,
    LIMIT_NAMES,
    PROFILES,
    Thresholds,
    limits_for,
    profile,
    profile_name,
    read_limits,
)
from verl.crosscheck.errors import SettingsError


@pytest.mark.parametrize(
    ("rollout", "train", "moe", "name"),
    [
        ("bfloat16", "float32", False, "dense_bf16"),
        ("float32", "torch.bfloat16", False, "dense_bf16"),
        ("float16", "float32", False, "dense_fp16"),
        ("float16", "bfloat16", True, "moe_bf16"),
        ("float32", "float32", False, "dense_fp32"),
        ("float32", "float32", True, "moe_fp32"),
        ("fp8", "float32", False, "dense_bf16"),
        (None, None, False, "dense_bf16"),
    ],
)
def test_the_coarsest_precision_wins(rollout, train, moe, name):
    assert profile_name({"rollout_dtype": rollout, "train_dtype": train, "moe": moe}) == name


def test_both_runs_count():
    fine = {"rollout_dtype": "float32", "train_dtype": "float32"}
    assert limits_for(fine).name == "dense_fp32"
    assert limits_for(fine, fine | {"rollout_dtype": "float16", "moe": True}).name == "moe_fp16"
    assert limits_for(fine, fine | {"quantization": "fp8"}).name == "moe_bf16"


def test_an_unknown_profile_is_refused_with_the_known_ones():
    with pytest.raises(SettingsError, match="'dense_fp8'.*dense_bf16, dense_fp16, dense_fp32, moe_bf16"):
        profile("dense_fp8")


@pytest.mark.parametrize("name", PROFILES)
def test_every_limit_has_a_number_a_reason_and_a_source(name):
    limits = profile(name)
    for each in fields(Thresholds):
        if each.name not in ("name", "own", "control_steps", "control_alike"):
            assert each.metadata["reason"] and each.metadata["source"], each.name
            assert getattr(limits, each.name) >= 0


@pytest.mark.parametrize(("wide", "narrow"), [("bf16", "fp16"), ("fp16", "fp32")])
@pytest.mark.parametrize("kind", ["dense", "moe"])
def test_finer_precision_has_narrower_limits(kind, wide, narrow):
    one, other = profile(f"{kind}_{wide}"), profile(f"{kind}_{narrow}")
    for name in LIMIT_NAMES:
        a, b = getattr(one, name), getattr(other, name)
        assert a <= b if name in BELOW_IS_BAD else a >= b, name


@pytest.mark.parametrize(
    ("old", "new"),
    [("surprise_gap_mean", "nll_minus_entropy_mean"), ("sampling/claim_refuted_mean", "logprob_gain_train_mean")],
)
def test_a_file_with_a_name_of_0_1_0_counts(tmp_path, old, new):
    (tmp_path / "limits.yaml").write_text(f"{old}: 0.1\n")
    limits = read_limits(tmp_path / "limits.yaml")
    assert limits.of(Aspect.SAMPLING, new) == 0.1


def test_what_has_no_limit_is_not_judged():
    limits = profile("dense_bf16")
    assert limits.of(Aspect.FORWARD, "k1") is None
    assert limits.of(Aspect.FORWARD, "name") is None
    assert limits.of(Aspect.FORWARD, "control_steps") is None
    assert limits.of(Aspect.UPDATE, "pg_loss_rel_diff") == limits.loss_rel_diff


def test_a_file_replaces_some(tmp_path):
    path = tmp_path / "limits.yaml"
    path.write_text("k3: 0.002\nlogprob_abs_diff_mean: 1e-3\nforward/k3: 1.0e-6\n")
    limits = read_limits(path, profile("dense_fp16"))
    assert limits.of(Aspect.ROLLOUT_TAKER, "k3") == 0.002
    assert limits.of(Aspect.FORWARD, "k3") == 1e-6
    assert limits.logprob_abs_diff_mean == 1e-3
    assert limits.prob_abs_diff_mean == profile("dense_fp16").prob_abs_diff_mean
    assert limits.name == "dense_fp16+file"


def test_a_file_may_be_json_and_name_the_profile(tmp_path):
    path = tmp_path / "limits.json"
    path.write_text('{"profile": "moe_fp16", "pearson": 0.9}')
    limits = read_limits(path, profile("dense_bf16"))
    assert (limits.k3, limits.pearson, limits.name) == (profile("moe_fp16").k3, 0.9, "moe_fp16+file")
    path.write_text("{}")
    assert read_limits(path).k3 == profile("dense_bf16").k3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "k4: 1",
            "'k4', which are no thresholds. Allowed: profile, logprob_abs_diff_mean.*aspects: inputs, rollout_taker",
        ),
        ("name: x", "'name', which are no thresholds"),
        ("nowhere/k3: 1", "'nowhere/k3', which are no thresholds"),
        ("forward/name: 1", "'forward/name', which are no thresholds"),
        ("k3: high", "'k3' to 'high', expected a number of at least 0"),
        ("k3: -1", "expected a number of at least 0"),
        ("k3: .nan", "expected a number of at least 0"),
        ("k3: true", "expected a number of at least 0"),
        ("k3: [1]", "expected a number of at least 0"),
        ("- k3", "holds list, expected lines such as"),
        ("", "holds NoneType"),
        ("k3: [", "cannot be read as YAML or JSON"),
        ("profile: dense", "no profile 'dense'"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path, text, message):
    path = tmp_path / "limits.yaml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=f"(?s){message}"):
        read_limits(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(SettingsError, match="nothing.yaml cannot be read"):
        read_limits(tmp_path / "nothing.yaml")
