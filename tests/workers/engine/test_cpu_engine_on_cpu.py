# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which engines, rollouts and workers a CPU gets."""

import pytest

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.cpu_impl import CpuEngineWithLMHead, CpuEngineWithValueHead
from verl.workers.rollout.base import get_rollout_class
from verl.workers.rollout.hf_server.adapter import HFServerAdapter
from verl.workers.rollout.hf_server.replica import HFReplica
from verl.workers.rollout.replica import get_rollout_replica_class


@pytest.mark.parametrize("backend", ["fsdp", "fsdp2"])
def test_engines(backend):
    assert EngineRegistry.get_engine_cls("language_model", backend) is CpuEngineWithLMHead
    assert EngineRegistry.get_engine_cls("value_model", backend) is CpuEngineWithValueHead


def test_rollout():
    assert get_rollout_class("hf", "async") is HFServerAdapter
    assert get_rollout_replica_class("hf") is HFReplica
    assert get_rollout_class.__module__ == "verl.workers.rollout.base__upstream"


def test_a_replica_over_several_ranks_is_refused_by_the_key():
    from verl.workers.config import RolloutConfig

    config = RolloutConfig(name="hf", tensor_model_parallel_size=2)
    with pytest.raises(ValueError, match="tensor_model_parallel_size=1"):
        HFReplica(replica_rank=0, config=config, model_config=None, gpus_per_node=2)


def test_legacy_workers_keep_upstreams_methods():
    from verl.workers import fsdp_workers, fsdp_workers__upstream

    for name in ("ActorRolloutRefWorker", "AsyncActorRolloutRefWorker", "CriticWorker"):
        mine, theirs = getattr(fsdp_workers, name), getattr(fsdp_workers__upstream, name)
        assert mine is not theirs and issubclass(mine, theirs)
        assert set(dir(mine)) - {"__firstlineno__"} == set(dir(theirs)) - {"__firstlineno__"}
    assert fsdp_workers.create_device_mesh is fsdp_workers__upstream.create_device_mesh
