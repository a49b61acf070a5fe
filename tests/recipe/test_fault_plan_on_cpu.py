# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The catalogue of faults, plans as text, and that a process without a plan has no fault."""

import importlib
import os
import sys
from pathlib import Path

import pytest

from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.faults.catalogue import CATALOGUE, ROLLOUT_FAULTS, TRAINING_FAULTS, Amount
from recipe.crosscheck.faults.plan import VARIABLE, FaultPlan, PlanError, parse
from recipe.crosscheck.faults.site import Site, own_site
from verl.crosscheck.diagnosis.findings import Phase


def test_the_catalogue_has_sixteen_lines_and_twenty_switches():
    assert len(CATALOGUE) == len(ROLLOUT_FAULTS) + len(TRAINING_FAULTS) == 20
    assert {fault.line for fault in ROLLOUT_FAULTS} == set(range(1, 9))
    assert {fault.line for fault in TRAINING_FAULTS} == set(range(9, 17))
    assert {fault.phase for fault in ROLLOUT_FAULTS} == {Phase.ROLLOUT}
    assert {fault.phase for fault in TRAINING_FAULTS} == {Phase.TRAINING_FORWARD, Phase.TRAINING_UPDATE}
    for fault in CATALOGUE.values():
        assert fault.aspects, fault.name
        if fault.amount is not None:
            assert fault.amount.require(fault.amount.default) == fault.amount.default


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("stale_weights", "stale_weights@2-"),
        ("stale_weights@3", "stale_weights@3"),
        ("top_k@1-", "top_k:2@1-"),
        ("temperature:1.05@4-6", "temperature:1.05@4-6"),
        (" dropout:1e-3@2 , nan_gradient@7-7", "dropout:0.001@2,nan_gradient@7"),
        ("none", ""),
    ],
)
def test_a_plan_is_read_and_written(text, canonical):
    plan = parse(text)
    assert str(plan) == canonical
    assert bool(plan) is bool(canonical)
    if plan:
        assert parse(str(plan)) == plan


def test_each_fault_acts_in_its_steps_alone():
    plan = parse("top_k:3@2-4,gradient_scaled@3,update_skipped@5-")
    acting = [plan.acting(step) for step in range(1, 8)]
    assert acting[0] == {}
    assert acting[1] == acting[3] == {"top_k": 3.0}
    assert acting[2] == {"top_k": 3.0, "gradient_scaled": 10}
    assert acting[4] == acting[6] == {"update_skipped": 0.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is no fault to plant"),
        ("stale_weights@", "is no fault to plant"),
        ("typo@2", "no fault 'typo'. There are: temperature, stale_weights"),
        ("stale_weights:2", "has no amount; write stale_weights"),
        ("top_k:2.5", "2.5 is not a whole number of at least 1"),
        ("temperature:0", "0 is not a number of at least 1e-06"),
        ("dropout:1", "at most 0.99"),
        ("top_k:nan", "nan is not"),
        ("top_k:few", "few"),
        ("stale_weights@1-", "go upwards from 2"),
        ("top_k@4-3", "go upwards from 1"),
        ("top_k:2@2-5,top_k:3@5", "planted twice in the same step"),
        ("top_k,none", "no fault 'none'"),
    ],
)
def test_what_is_no_plan_is_explained(text, message):
    with pytest.raises(PlanError, match=message.replace("(", r"\(")):
        parse(text)


def test_the_same_fault_can_be_tried_with_two_amounts():
    plan = parse("temperature:1.1@2,temperature:1.2@4")
    assert [plan.acting(step).get("temperature") for step in range(1, 6)] == [None, 1.1, None, 1.2, None]


def test_an_amount_says_what_it_can_be():
    assert Amount(1, "x", 1, 3, whole=True).require(3) == 3
    with pytest.raises(ValueError, match=r"4 is not a whole number of at least 1 and at most 3 \(x\)"):
        Amount(1, "x", 1, 3, whole=True).require(4)


def test_only_the_run_that_has_a_fault_is_told(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    assert (
        plans.overrides(FaultPlan()) == []
        and plans.environment(FaultPlan()) == {}
        and plans.settings(FaultPlan()) == []
    )
    training, rollout = parse("loss_mask_shifted@3"), parse("stale_weights")
    external = "actor_rollout_ref.model.external_lib=recipe.crosscheck.faults.planted"
    manager = "recipe.crosscheck.faults.rollout.PlantedAgentLoopManager"
    assert plans.overrides(training) == [external]
    assert plans.overrides(rollout) == [
        external,
        f"actor_rollout_ref.rollout.agent.agent_loop_manager_class={manager}",
    ]
    assert plans.settings(training) == ["actor_rollout_ref.rollout.temperature=1.3"]
    variables = plans.environment(training)
    assert variables[VARIABLE] == "loss_mask_shifted:1@3"
    root, inherited = variables["PYTHONPATH"].split(os.pathsep)
    assert inherited == "/elsewhere"
    assert (Path(root) / "recipe" / "crosscheck" / "faults" / "planted.py").exists()


def test_vllm_carries_its_faults_in_its_worker():
    found = plans.overrides(parse("stale_weights,tensor_not_synced@4,temperature@5,dropout@6"), engine="vllm")
    key = "+actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls"
    assert found[1:] == [f"{key}=recipe.crosscheck.faults.vllm_engine.PlantedExtension"]
    assert len(plans.overrides(parse("dropout"), engine="vllm")) == 1
    with pytest.raises(PlanError, match="top_k from outside, only stale_weights"):
        plans.overrides(parse("top_k"), engine="vllm")


def test_settings_of_several_faults_are_named_once():
    both = parse("loss_mask_shifted@3,untempered_log_probs@4,top_k@5")
    assert plans.settings(both) == ["actor_rollout_ref.rollout.temperature=1.3"]


def test_a_sentence_for_people():
    texts = [each.sentence for each in parse("stale_weights,temperature:1.2@3,dropout@4-5").faults]
    assert texts[0].startswith("stale_weights, from step 2 on: it does not take the last weights")
    assert texts[1].startswith("temperature, in step 3: it samples") and "factor on the temperature: 1.2" in texts[1]
    assert texts[2].startswith("dropout, from step 4 to 5: it drops")


def test_a_configuration_without_a_plan_stops(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    own_site.cache_clear()
    sys.modules.pop("recipe.crosscheck.faults.planted", None)
    with pytest.raises(PlanError, match=f"{VARIABLE} is not set.*scripts/demo --fault"):
        importlib.import_module("recipe.crosscheck.faults.planted")


def test_a_site_steps_on_when_weights_are_pushed():
    site = Site(parse("top_k@1,nan_gradient@3-"))
    assert not site.acts("top_k"), "before the first push nothing can act"
    site.begin_after(0)
    assert (site.step, site.amount("top_k"), site.amount("nan_gradient")) == (1, 2, None)
    site.begin_after(4)
    assert (site.step, site.amount("top_k"), site.amount("nan_gradient")) == (5, None, 0.0)
