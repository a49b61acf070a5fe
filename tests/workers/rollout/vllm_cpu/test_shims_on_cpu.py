# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The shims around stand-ins of vLLM's classes: they add what is missing and leave the rest. No vLLM needed."""

import importlib
import os
import sys
from importlib import metadata
from types import ModuleType, SimpleNamespace

import pytest
import ray
import torch

from _verl_overlay import vllm_plugin
from _verl_overlay.vllm_plugin import Build
from verl.utils import device
from verl.workers.rollout.vllm_cpu import device_uuid
from verl.workers.rollout.vllm_cpu import metadata as vllm_metadata

VLLMS_WORKER = "vllm.v1.worker.cpu_worker.CPUWorker"


class StandInPlatform:
    """Of `vllm.platforms.cpu.CpuPlatform`."""

    @classmethod
    def get_device_uuid(cls, device_id=0):
        raise NotImplementedError

    @classmethod
    def check_and_update_config(cls, vllm_config):
        if vllm_config.parallel_config.worker_cls == "auto":
            vllm_config.parallel_config.worker_cls = VLLMS_WORKER


class StandInWorker:
    """Of `vllm.v1.worker.cpu_worker.CPUWorker`."""

    device = None
    local_rank = 1

    def init_device(self):
        self.initialised = True


@pytest.fixture
def vllm(monkeypatch):
    """Stand-ins for the two modules of vLLM that the shims stand on, and the shims."""
    for name in ("vllm", "vllm.platforms", "vllm.v1", "vllm.v1.worker"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for name, cls in (("vllm.platforms.cpu", StandInPlatform), ("vllm.v1.worker.cpu_worker", StandInWorker)):
        module = ModuleType(name)
        setattr(module, VLLMS_WORKER.rpartition(".")[2] if cls is StandInWorker else "CpuPlatform", cls)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["vllm"]._custom_ops = SimpleNamespace(_supports_onednn=True)
    shims = {}
    for name in ("platform", "worker"):
        monkeypatch.delitem(sys.modules, f"verl.workers.rollout.vllm_cpu.{name}", raising=False)
        shims[name] = importlib.import_module(f"verl.workers.rollout.vllm_cpu.{name}")
    yield SimpleNamespace(**shims)
    for name in shims:
        sys.modules.pop(f"verl.workers.rollout.vllm_cpu.{name}", None)


def in_ray(monkeypatch, node="a" * 56, job="01000000", gpus=("0",)):
    """This process as a Ray worker."""
    context = SimpleNamespace(
        get_node_id=lambda: node, get_job_id=lambda: job, get_accelerator_ids=lambda: {"GPU": list(gpus)}
    )
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)


@pytest.fixture(autouse=True)
def _outside(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv(device_uuid.VARIABLE, "unset")  # so that it is put back
    monkeypatch.delenv(device_uuid.VARIABLE)


def test_training_worker_and_vllms_worker_call_a_device_by_one_name(monkeypatch, vllm):
    """Two ranks, one vLLM with tensor parallel size 2: what each rank sends arrives at its own worker."""
    sent = []
    for rank in ("3", "5"):
        in_ray(monkeypatch, gpus=[rank])
        sent.append(vllm.platform.CrosscheckCpuPlatform.get_device_uuid("cpu"))
    in_ray(monkeypatch, gpus=[])  # the server actor
    config = SimpleNamespace(parallel_config=SimpleNamespace(worker_cls="auto"))
    vllm.platform.CrosscheckCpuPlatform.check_and_update_config(config)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # vLLM's processes
    monkeypatch.setenv(device.get_visible_devices_keyword(), "3,5")
    assert [device_uuid.of_vllm_worker(local_rank) for local_rank in (0, 1)] == sent
    assert len(set(sent)) == 2


def test_ranks_runs_and_hosts_have_names_of_their_own(monkeypatch):
    places = [("a" * 56, "01000000", "0"), ("a" * 56, "01000000", "1"), ("a" * 56, "02000000", "0")]
    places += [("b" * 56, "01000000", "0")]
    names = set()
    for node, job, gpu in places:
        in_ray(monkeypatch, node, job, [gpu])
        names.add(device_uuid.of_training_worker())
    assert len(names) == len(places)
    assert all(len(f"/tmp/rl-colocate-zmq-{name}.sock") < 107 for name in names)  # a socket's path


def test_vllms_worker_becomes_one_with_a_device(monkeypatch, vllm):
    config = SimpleNamespace(parallel_config=SimpleNamespace(worker_cls="auto"))
    vllm.platform.CrosscheckCpuPlatform.check_and_update_config(config)
    module, _, name = config.parallel_config.worker_cls.rpartition(".")
    worker = getattr(importlib.import_module(module), name)()
    assert isinstance(worker, StandInWorker)
    worker.init_device()
    assert worker.initialised and worker.device == torch.device("cpu")
    assert worker.device_uuid is None, "vLLM that serves no training run has no name to agree on"
    monkeypatch.setenv(device_uuid.VARIABLE, "run")
    monkeypatch.setenv(device.get_visible_devices_keyword(), "3,5")
    worker.init_device()
    assert worker.device_uuid == "CPU-run-5"


def test_weights_stay_where_a_push_finds_them(monkeypatch, vllm):
    """vLLM's faster kernels drop them when the model is loaded, which comes after this."""
    monkeypatch.setenv("VLLM_CPU_SGL_KERNEL", "1")
    vllm.worker.CrosscheckCpuWorker().init_device()
    assert sys.modules["vllm"]._custom_ops._supports_onednn is False
    assert os.environ["VLLM_CPU_SGL_KERNEL"] == "0"


def test_another_workers_class_is_left_alone(vllm):
    config = SimpleNamespace(parallel_config=SimpleNamespace(worker_cls="somebody.elses.Worker"))
    vllm.platform.CrosscheckCpuPlatform.check_and_update_config(config)
    assert config.parallel_config.worker_cls == "somebody.elses.Worker"


def test_outside_ray_the_platform_is_vllms(vllm):
    with pytest.raises(NotImplementedError):
        vllm.platform.CrosscheckCpuPlatform.get_device_uuid(0)


@pytest.mark.parametrize(
    ("build", "cpu_machine", "chosen"),
    [
        (("vllm-cpu", "0.12.0"), True, True),
        (("vllm", "0.12.0+cpu"), True, True),
        (("vllm-cpu", "0.12.0"), False, False),
        (("vllm", "0.12.0"), True, False),
        (None, True, False),
    ],
)
def test_vllm_is_told_of_the_platform_on_a_cpu_and_for_a_cpu_build_alone(monkeypatch, build, cpu_machine, chosen):
    monkeypatch.setattr(vllm_plugin, "installed_build", lambda: Build(*build) if build else None)
    monkeypatch.setattr(device, "is_cpu_backend", cpu_machine)
    assert vllm_plugin.platform() == (vllm_plugin.PLATFORM if chosen else None)


def test_the_installation_has_the_entry_point():
    group, name = vllm_plugin.ENTRY_POINT
    (point,) = [point for point in metadata.entry_points(group=group) if point.name == name]
    assert point.load() is vllm_plugin.platform


@pytest.fixture
def versions(monkeypatch):
    """Chooses which distributions there are."""

    def choose(**there):
        def distribution(name):
            if name.replace("-", "_") not in there:
                raise metadata.PackageNotFoundError(name)
            return SimpleNamespace(version=there[name.replace("-", "_")])

        monkeypatch.setattr(metadata, "distribution", distribution)

    return choose


def test_upstream_finds_the_cpu_build_by_the_usual_name(versions):
    versions(vllm_cpu="0.12.0", torch="2.9.1")
    with vllm_metadata.vllm_by_its_usual_name():
        assert metadata.version("vllm") == "0.12.0" and metadata.version("torch") == "2.9.1"
        with pytest.raises(metadata.PackageNotFoundError):
            metadata.version("sglang")
    with pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm")


def test_without_vllm_upstream_says_so_itself(versions):
    versions(torch="2.9.1")
    with vllm_metadata.vllm_by_its_usual_name(), pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm")


def test_on_an_accelerator_nothing_is_put_in_place(versions, monkeypatch):
    versions(vllm_cpu="0.12.0")
    monkeypatch.setattr(vllm_metadata, "is_cpu_backend", False)
    with vllm_metadata.vllm_by_its_usual_name(), pytest.raises(metadata.PackageNotFoundError):
        metadata.version("vllm")
