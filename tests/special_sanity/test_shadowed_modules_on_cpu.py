# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A module that the fork takes the place of still is upstream's in everything that the fork does not define."""

import importlib
import pickle
from unittest import mock

import pytest
import ray

from verl.crosscheck.installation import Role, read_installation

WRITTEN_ANEW = {"verl.utils.rollout_skip"}
"""Takes the whole place of upstream's module, as the contract asks."""
RUNS_IN_PLACE = {"verl.trainer.main_ppo", "verl.third_party.vllm", "verl.workers.rollout.vllm_rollout"}
"""Run upstream's file in their own namespace; the last two import vLLM."""
SHADOWS = [file.name for file in read_installation().files if file.role is Role.SHADOWS]
EXTENDED = [name for name in SHADOWS if name not in WRITTEN_ANEW | RUNS_IN_PLACE]


def both(name):
    return importlib.import_module(name), importlib.import_module(f"{name}__upstream")


def test_there_are_some():
    assert "verl.trainer.ppo.ray_trainer" in EXTENDED
    assert set(SHADOWS) >= WRITTEN_ANEW | RUNS_IN_PLACE


@pytest.mark.parametrize("name", EXTENDED)
def test_every_name_is_there_and_upstreams_unless_the_fork_defines_it(name):
    module, upstream = both(name)
    for each, value in vars(upstream).items():
        if not each.startswith("__"):
            found = getattr(module, each)
            defined_here = each in vars(module) and getattr(found, "__module__", name) != upstream.__name__
            assert found is value or defined_here, each


@pytest.mark.parametrize("name", EXTENDED)
def test_a_star_import_gives_what_it_gives_from_upstream(name):
    module, upstream = both(name)
    promised = getattr(upstream, "__all__", [each for each in vars(upstream) if not each.startswith("_")])
    given: dict = {}
    exec(f"from {name} import *", given)
    assert set(promised) <= set(given)
    assert set(promised) <= set(dir(module))


def test_what_people_put_in_a_functions_place_is_what_upstream_calls():
    module, upstream = both("verl.trainer.ppo.ray_trainer")
    original = module.compute_advantage
    seen = upstream.RayPPOTrainer.fit.__globals__
    with mock.patch("verl.trainer.ppo.ray_trainer.compute_advantage") as mine:
        assert seen["compute_advantage"] is mine
        assert module.compute_advantage is mine
    assert seen["compute_advantage"] is original
    assert module.compute_advantage is original


def test_what_the_fork_defines_is_set_in_the_fork_alone():
    module, upstream = both("verl.trainer.ppo.ray_trainer")
    fork_class, upstream_class = module.RayPPOTrainer, upstream.RayPPOTrainer
    with mock.patch.object(module, "RayPPOTrainer", str):
        assert module.RayPPOTrainer is str
        assert upstream.RayPPOTrainer is upstream_class
    assert module.RayPPOTrainer is fork_class


def test_what_both_import_is_set_in_both(monkeypatch):
    module, upstream = both("verl.trainer.ppo.ray_trainer")
    assert "DataProto" in vars(module)
    monkeypatch.setattr(module, "DataProto", dict)
    assert module.DataProto is dict
    assert upstream.DataProto is dict
    monkeypatch.undo()
    assert module.DataProto is upstream.DataProto is not dict


@pytest.mark.parametrize("pickler", [pickle, ray.cloudpickle])
def test_modules_travel_by_name(pickler):
    module, _ = both("verl.utils.device")
    assert pickler.loads(pickler.dumps(module)) is module


def test_a_function_that_refers_to_a_module_travels():
    module, _ = both("verl.utils.device")

    def task():
        return module.get_device_name()

    assert ray.cloudpickle.loads(ray.cloudpickle.dumps(task))() == module.get_device_name()


def test_an_unknown_name_is_an_attribute_error():
    module, _ = both("verl.trainer.ppo.ray_trainer")
    with pytest.raises(AttributeError, match="no_such_name"):
        module.no_such_name  # noqa: B018
    with pytest.raises(ImportError):
        exec("from verl.trainer.ppo.ray_trainer import no_such_name")


def test_a_name_rebound_by_upstream_is_read_anew(monkeypatch):
    module, upstream = both("verl.utils.device")
    monkeypatch.setattr(upstream, "is_npu_available", "rebound")
    assert module.is_npu_available == "rebound"
