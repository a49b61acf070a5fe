# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A on two ranks, B on one: weights cross in the portable form, and the verdict is what it is with equal ranks."""

import json

import pytest

from recipe.crosscheck.bench.faults import try_fault
from recipe.crosscheck.bench.pairs import NEW_WORKERS, Play, perform
from recipe.crosscheck.faults import plan as plans
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.exchange.manifest import read_checked

pytestmark = pytest.mark.slow

FAULTS = "stale_weights@3,position_shift@4,perturbed_layer@5"
"""The last one is of training: what it does to A's optimizer stays there, since weights alone are exchanged."""


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """Scenario 1, five steps."""
    play = Play("pair", plans.parse(FAULTS), (NEW_WORKERS,), ("trainer.n_gpus_per_node=2",), 5, prompts=32)
    return perform(play, tmp_path_factory.mktemp("unequal"))


def test_weights_cross_and_both_runs_reach_the_end(played):
    """Loading compares a checksum of each tensor with the writer's, so a run that goes on holds what was written."""
    assert sorted(played.comparisons) == [1, 2, 3, 4, 5]
    kept = sorted(played.share.glob("ckpt_*"))
    assert [path.name for path in kept] == ["ckpt_3", "ckpt_4"]
    for path in kept:
        found = read_checked(path)
        assert (found.about["format"], found.about["world_size"]) == ("portable", 1)
        tensors = json.loads((path / "portable.json").read_text())["tensors"]
        assert len(tensors) > 20
        assert not list(path.glob("*.pt"))
    reason = "checkpoints are exchanged in the portable form: world size 2 here, 1 there"
    assert played.log.count(reason) == 1
    assert played.log.count("Successfully load ckpt from") == 5


def test_healthy_steps_accuse_nobody(played):
    verdict = judge(scenario_1=played.reference, limits=limits_for(*played.sampling))
    assert (verdict.phase, verdict.steps) == (Phase.NO_FAULT, 2)
    assert "update/optimiser_state" in verdict.not_compared
    assert "inputs/reward_recomputed_rel_diff_max" not in verdict.not_compared


def test_faults_of_each_phase_are_localised(played):
    for planted in played.play.plan.faults:
        assert try_fault(played, planted.fault, planted.first).localised, planted.fault.name
