# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The faults that vLLM is given from outside, with stand-ins for upstream's class and for vLLM's sampler."""

import importlib
import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from recipe.crosscheck.faults import site
from recipe.crosscheck.faults.plan import VARIABLE

NAMES = ["embed", "layers.0.down_proj.weight", "layers.1.down_proj.weight", "head"]
FACTOR = 2.0


class UpstreamsExtension:
    """Takes buckets of two tensors."""

    def __init__(self):
        self.loaded = []
        self.model_runner = SimpleNamespace(sampler=SimpleNamespace(topk_topp_sampler=SimpleNamespace(forward=draw)))

    def monkey_patch_model(self, vocab_size):
        self.vocab_size = vocab_size

    def update_weights_from_ipc(self, use_shm=False):
        self.loaded = []
        for bucket in (NAMES[:2], NAMES[2:]):
            self._update_weights([(name, torch.zeros(1)) for name in bucket], peft_config=None)

    def _update_weights(self, weights, peft_config):
        self.loaded += [name for name, _ in weights]


def draw(logits, generators, k, p):
    """The likeliest token, and log-probs; writes into its logits."""
    told = logits.log_softmax(-1)
    logits.zero_()
    return told.max(-1).values, told


@pytest.fixture
def planted(monkeypatch):
    def make(plan):
        package, utils = ModuleType("verl.workers.rollout.vllm_rollout"), ModuleType("utils")
        utils.vLLMColocateWorkerExtension = UpstreamsExtension
        monkeypatch.setitem(sys.modules, "verl.workers.rollout.vllm_rollout", package)
        monkeypatch.setitem(sys.modules, "verl.workers.rollout.vllm_rollout.utils", utils)
        monkeypatch.delitem(sys.modules, "recipe.crosscheck.faults.vllm_engine", raising=False)
        monkeypatch.setenv(VARIABLE, plan)
        site.own_site.cache_clear()
        extension = importlib.import_module("recipe.crosscheck.faults.vllm_engine").PlantedExtension()
        extension.monkey_patch_model(9)
        return extension

    yield make
    sys.modules.pop("recipe.crosscheck.faults.vllm_engine", None)
    site.own_site.cache_clear()


def pushes(extension, count):
    """What each of the first pushes loaded."""
    found = []
    for _ in range(count):
        extension.update_weights_from_ipc(use_shm=True)
        found.append(extension.loaded)
    return found


def test_weights_are_not_taken_in_the_planned_step(planted, caplog):
    assert pushes(planted("stale_weights@2"), 3) == [NAMES, [], NAMES]
    assert [each.getMessage() for each in caplog.records if "applied" in each.getMessage()] == [
        "planted fault stale_weights was applied in vLLM in step 2"
    ]


def test_one_tensor_of_all_buckets_is_lost(planted, caplog):
    without = [name for name in NAMES if name != "layers.1.down_proj.weight"]
    assert pushes(planted("tensor_not_synced@2-3"), 4) == [NAMES, without, without, NAMES]
    assert [each.args for each in caplog.records if "applied" in each.msg] == [
        ("tensor_not_synced", 2),
        ("tensor_not_synced", 3),
    ]


def test_the_wrong_temperature_is_drawn_and_the_right_one_told(planted, caplog):
    extension = planted(f"temperature:{FACTOR}@2")
    logits = torch.tensor([[0.0, 1.0, 3.0]])
    for step, factor in enumerate((1.0, FACTOR, 1.0), start=1):
        extension.update_weights_from_ipc()
        drawn, told = extension.model_runner.sampler.topk_topp_sampler.forward(logits.clone(), {}, None, None)
        torch.testing.assert_close(told, logits.log_softmax(-1))
        torch.testing.assert_close(drawn, (logits / factor).log_softmax(-1).max(-1).values)
        assert ("was applied in vLLM in step 2" in caplog.text) == (step >= 2)
