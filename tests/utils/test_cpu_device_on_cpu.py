# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A CPU as a device, and the promise that a machine with an accelerator sees none of it."""

import logging
import os
import subprocess
import sys

import pytest
import torch
import torch.distributed
from omegaconf import OmegaConf

from verl.utils import attention_utils, device, distributed, fsdp_utils
from verl.utils.cpu_device import machine_has_accelerator, prepare_config

WITH_ACCELERATOR = """
import sys, types, torch
import ray  # has a psutil of its own
psutil, sys.modules["psutil"] = sys.modules["psutil"], None  # importing it fails: this must not ask for it
if {kind!r} == "cuda":
    torch.cuda.is_available = lambda: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
else:
    torch.npu = types.SimpleNamespace(is_available=lambda: True, get_device_name=lambda *_: "Ascend910B")
from verl.utils import device, device__upstream, distributed
sys.modules["psutil"] = psutil
assert device.get_device_name() == {kind!r}
assert not device.is_cpu_backend
for name in device.__all__:
    if name != "is_cpu_backend":
        assert getattr(device, name) is getattr(device__upstream, name), name
import torch.distributed as dist
asked = []
dist.init_process_group = lambda backend=None, **kwargs: asked.append(backend)
distributed.initialize_global_process_group_ray()
assert asked == [{backends!r}], asked
"""

REGISTRIES = """
from verl.workers.rollout import base, replica
from verl.workers.engine import base as engine
from verl.workers.engine import base__upstream as engine__upstream
assert ("hf", "async") not in base._ROLLOUT_REGISTRY
assert "hf" not in replica.RolloutReplicaRegistry._registry
assert engine.EngineRegistry is engine__upstream.EngineRegistry
from verl.utils import model, model__upstream
assert model.load_valuehead_model is model__upstream.load_valuehead_model
from verl.utils import fsdp_utils, fsdp_utils__upstream
assert fsdp_utils.CPUOffloadPolicy is fsdp_utils__upstream.CPUOffloadPolicy
from verl.workers import fsdp_workers, fsdp_workers__upstream
for name in fsdp_workers.__all__:
    assert getattr(fsdp_workers, name) is getattr(fsdp_workers__upstream, name), name
"""


HIDDEN = """
from pathlib import Path
glob = Path.glob
Path.glob = lambda self, pattern, **kwargs: iter([self]) if str(self) == "/dev" else glob(self, pattern, **kwargs)
from verl.utils import device, device__upstream
assert device.get_device_name() == "cpu" and not device.is_cpu_backend
assert device.get_torch_device is device__upstream.get_torch_device
"""


def run_python(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_nothing_changes_where_cuda_is():
    run_python(WITH_ACCELERATOR.format(kind="cuda", backends="cpu:gloo,cuda:nccl") + REGISTRIES)


def test_nothing_changes_where_an_npu_is():
    run_python(WITH_ACCELERATOR.format(kind="npu", backends="cpu:gloo,npu:hccl"))


def test_nothing_changes_where_ray_hides_the_accelerator_from_a_process():
    run_python(HIDDEN + REGISTRIES)


@pytest.mark.parametrize("node", ["nvidia0", "nvidiactl", "davinci3", "davinci_manager", "kfd"])
def test_an_accelerator_is_known_by_its_device_node(tmp_path, node):
    (tmp_path / "null").touch()
    assert not machine_has_accelerator(tmp_path)
    (tmp_path / node).touch()
    assert machine_has_accelerator(tmp_path)


def test_a_cpu_answers_what_upstream_asks_of_a_gpu():
    cpu = device.get_torch_device()
    assert device.is_cpu_backend and device.get_device_name() == "cpu"
    assert cpu.is_available() and cpu.device_count() == 1 and torch.device(device.get_device_id()).type == "cpu"
    for name in ("memory_allocated", "memory_reserved", "max_memory_allocated", "max_memory_reserved"):
        assert 1 << 20 < getattr(cpu, name)() < 1 << 40
    free, total = cpu.mem_get_info()
    assert 0 < free < total
    for name in ("empty_cache", "ipc_collect", "reset_peak_memory_stats", "synchronize"):
        getattr(cpu, name)()
    assert not hasattr(cpu, "no_such_thing")
    assert not hasattr(torch.cpu, "memory_allocated")  # torch itself stays as it is


def test_names_of_back_end_and_resource():
    assert device.get_nccl_backend() == "gloo"
    assert device.get_resource_name() == "GPU"


@pytest.mark.parametrize(("given", "asked"), [(None, "gloo"), ("cpu:gloo", "cpu:gloo")])
def test_the_process_group_speaks_gloo(monkeypatch, given, asked):
    seen = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda backend, **_: seen.append(backend))
    distributed.initialize_global_process_group_ray(timeout_second=5, backend=given)
    assert seen == [asked]


@pytest.mark.parametrize(("ranks", "port"), [("1", "0"), ("2", "29501")])
def test_a_single_rank_takes_any_port_and_never_one_that_is_taken(monkeypatch, ranks, port):
    seen = []
    monkeypatch.setattr(torch.distributed, "init_process_group", lambda **_: seen.append(os.environ["MASTER_PORT"]))
    monkeypatch.setenv("WORLD_SIZE", ranks)
    monkeypatch.setenv("MASTER_PORT", "29501")
    distributed.initialize_global_process_group_ray()
    assert seen == [port]


def test_padding_goes_there_and_back_without_flash_attn():
    mask = torch.tensor([[0, 1, 1], [1, 1, 0]])
    hidden = torch.arange(6.0).reshape(2, 3, 1)
    packed, indices, *_ = attention_utils.unpad_input(hidden, mask)
    assert packed.flatten().tolist() == [1, 2, 3, 4]
    back = attention_utils.pad_input(packed, indices, batch=2, seqlen=3)
    assert torch.equal(back, hidden * mask[..., None])


def test_parameters_in_main_memory_are_not_pinned():
    policy = fsdp_utils.CPUOffloadPolicy(pin_memory=True)
    assert isinstance(policy, torch.distributed.fsdp.CPUOffloadPolicy) and not policy.pin_memory


def config(**changes):
    made = OmegaConf.create(
        {
            "trainer": {"device": "cpu", "use_legacy_worker_impl": "auto"},
            "actor_rollout_ref": {"actor": {"strategy": "fsdp2"}, "model": {"use_remove_padding": True}},
        }
    )
    for key, value in changes.items():
        OmegaConf.update(made, key, value)
    return made


def test_ranks_are_asked_of_ray_by_the_word_that_it_knows():
    made = config()
    device.auto_set_device(made)
    assert made.trainer.device == "cuda"


def test_a_main_program_that_trains_elsewhere_is_left_alone():
    made = config(**{"trainer.device": "cuda", "actor_rollout_ref.actor.strategy": "megatron"})
    device.auto_set_device(made)
    assert made == config(**{"trainer.device": "cuda", "actor_rollout_ref.actor.strategy": "megatron"})


@pytest.mark.parametrize("strategy", ["fsdp", "megatron"])
def test_says_what_to_set_where_the_sharding_cannot_work(strategy):
    with pytest.raises(ValueError, match="actor_rollout_ref.actor.strategy=fsdp2"):
        prepare_config(config(**{"actor_rollout_ref.actor.strategy": strategy}))


@pytest.mark.parametrize(
    ("workers", "padding_removed", "warned"),
    [("disable", False, True), ("disable", True, False), ("auto", False, False)],
)
def test_warns_of_the_setting_that_trains_on_wrong_numbers(caplog, workers, padding_removed, warned):
    made = config(
        **{"trainer.use_legacy_worker_impl": workers, "actor_rollout_ref.model.use_remove_padding": padding_removed}
    )
    with caplog.at_level(logging.WARNING):
        prepare_config(made)
    assert ("6345" in caplog.text) is warned


def test_a_configuration_of_another_program_is_left_alone():
    prepare_config(OmegaConf.create({"data": {}}))
    prepare_config(OmegaConf.create({"trainer": {"device": "cpu"}}))
