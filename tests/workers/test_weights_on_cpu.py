# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Change of the weights and sync digests of real workers: two ranks under Ray, both worker implementations.

What the workers say is compared with norms of whole tensors, which torch gathers from them at each moment. Each rank is
one process for all tests, in which the workers take turns.
"""

import asyncio
import importlib
import os
import socket
import sys
from types import SimpleNamespace

import pytest
import ray
import torch
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from verl.crosscheck.evidence.step import TensorChange
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.settings import ChangeDetail
from verl.crosscheck.weights.calls import run_on_all
from verl.crosscheck.weights.change.watch import WeightWatch
from verl.crosscheck.weights.sync import EngineWeights
from verl.workers.rollout.hf_server.replica import HFReplica

pytestmark = pytest.mark.slow
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

RANKS = 2
NEW = ("verl.workers.engine_workers", "ActorRolloutRefWorker")
LEGACY = ("verl.workers.fsdp_workers", "AsyncActorRolloutRefWorker")


class Rank:
    """Holds a worker as upstream's container of several does."""

    def __init__(self, rank, port):
        os.environ.update(WORLD_SIZE=str(RANKS), RANK=str(rank), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.set_num_threads(1)
        self.worker_dict = {}

    def put_in(self, module, name, config):
        worker = getattr(importlib.import_module(module), name)(config=config, role="actor_rollout")
        worker.init_model()
        self.worker_dict = {"actor_rollout": worker}

    def do(self, name, *args):
        result = getattr(self.worker_dict["actor_rollout"], name)(*args)
        if asyncio.iscoroutine(result):
            asyncio.new_event_loop().run_until_complete(result)

    def parameters(self):
        worker = self.worker_dict["actor_rollout"]
        module = worker.actor_module_fsdp if hasattr(worker, "actor_module_fsdp") else worker.actor.engine.module
        return list(module.named_parameters())

    def whole_weights(self):
        return {name: p.full_tensor().detach().double() for name, p in self.parameters()}

    def move(self, size):
        """Into a direction that depends on `size`; the norms of the layers' inputs stay where they are."""
        for index, (name, p) in enumerate(self.parameters()):
            if "input_layernorm" not in name:
                local = p.to_local().data
                # Equal on all ranks, as replicas must stay.
                generator = torch.Generator().manual_seed(int(abs(size) * 1e6) + index)
                local.add_(size * torch.randn(local.shape, generator=generator))


@pytest.fixture(scope="module")
def group():
    ray.init(num_cpus=8, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    yield SimpleNamespace(workers=[ray.remote(Rank).remote(rank, port) for rank in range(RANKS)])
    ray.shutdown()


def configure(model, fsdp_size):
    overrides = [
        f"actor_rollout_ref.model.path={model}",
        f"actor_rollout_ref.actor.fsdp_config.fsdp_size={fsdp_size}",
        "actor_rollout_ref.rollout.max_num_seqs=8",
        "actor_rollout_ref.rollout.dtype=bfloat16",
    ]
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_cpu_trainer", overrides=overrides).actor_rollout_ref
    OmegaConf.resolve(config)
    return config


def on_all(group, name, *args):
    return ray.get([getattr(worker, name).remote(*args) for worker in group.workers])


def whole_weights(group):
    return on_all(group, "whole_weights")[0]


def distances(one, other):
    return {name: torch.linalg.vector_norm(one[name] - other[name]).item() for name in one}


@pytest.mark.parametrize(
    ("kind", "fsdp_size"), [(NEW, RANKS), (LEGACY, RANKS), (LEGACY, 1)], ids=["new", "legacy", "legacy, replicated"]
)
def test_changes_are_those_of_the_whole_tensors(group, model_folder, tmp_path, kind, fsdp_size):
    on_all(group, "put_in", *kind, configure(model_folder, fsdp_size))
    watch = WeightWatch(group, ChangeDetail.FULL)
    on_all(group, "move", 0.03)
    theirs = whole_weights(group)
    on_all(group, "do", "save_checkpoint", str(tmp_path), None, 0, None)
    on_all(group, "move", -0.01)
    start = whole_weights(group)
    watch.begin()
    on_all(group, "move", 0.001)
    own = whole_weights(group)
    watch.before_load()
    on_all(group, "do", "load_checkpoint", str(tmp_path), None, False)
    changes, missing = watch.after_load()

    assert missing == {}
    expected = [distances(*pair) for pair in ((own, start), (theirs, start), (own, theirs))]
    assert changes.keys() == start.keys() and len(changes) > 20
    for name, change in changes.items():
        norms = [norm[name] for norm in expected]
        assert [change.own, change.other, change.apart] == pytest.approx(norms, rel=1e-12, abs=0), name
        assert ("input_layernorm" in name) == (norms == [0, 0, 0])

    on_all(group, "move", 0.002)
    changes, missing = watch.own_only()
    own = distances(whole_weights(group), theirs)
    assert missing == {} and changes == {n: TensorChange(pytest.approx(own[n], rel=1e-12, abs=0)) for n in own}


def test_digests_tell_a_server_that_holds_something_else(group, model_folder):
    config = configure(model_folder, RANKS)
    on_all(group, "put_in", *NEW, config)
    replica = HFReplica(0, config.rollout, config.model, gpus_per_node=RANKS)
    asyncio.run(replica.init_hybrid(group))
    run_on_all(SimpleNamespace(workers=group.workers[1:]), put_in_no_server)
    sync = EngineWeights(SimpleNamespace(workers=group.workers[:1]))
    assert sync.read() == ({}, {"weights": because(ReasonCode.NOTHING_SENT)})
    sync.begin()
    on_all(group, "move", 0.02)
    on_all(group, "do", "update_weights", 1)
    weights, missing = sync.read()
    names = whole_weights(group).keys()
    assert missing == {} and weights.keys() == {f"{kind}/{name}" for name in names for kind in ("sent", "held")}
    assert all(weights[f"sent/{name}"] == weights[f"held/{name}"] for name in names)

    ray.get(replica.servers[0].__ray_call__.remote(spoil))
    spoilt, _ = sync.read()
    assert {name for name in weights if spoilt[name] != weights[name]} == {"held/model.norm.weight"}


def put_in_no_server(held):
    """Tests need one server, and every rank must send."""
    from unittest.mock import AsyncMock, Mock

    held.worker_dict["actor_rollout"].rollout.__dict__["_server"] = Mock(
        load_weights=Mock(remote=AsyncMock()), finish_weights=Mock(remote=AsyncMock())
    )


def spoil(server):
    server.engine.model.get_parameter("model.norm.weight").data[3] += 0.125
