# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Sent and held weights are compared by digests: every fault of the way between shows, and nothing else does."""

import asyncio
from types import SimpleNamespace

import pytest
import torch
from tiny_models import tiny_qwen2

from recipe.crosscheck.model import build_tokenizer
from verl.crosscheck.weights import calls, sync
from verl.workers.rollout.hf_server import adapter as adapter_module
from verl.workers.rollout.hf_server.adapter import HFServerAdapter
from verl.workers.rollout.hf_server.digests import SAMPLE_ELEMENTS, digest

BF16, FP32 = torch.bfloat16, torch.float32


class Handle:
    """Stands for a Ray handle of a server in this process."""

    def __init__(self, server):
        self._server = server

    def __getattr__(self, method):
        return SimpleNamespace(remote=getattr(self._server, method))


def make_adapter(server):
    adapter = HFServerAdapter.__new__(HFServerAdapter)
    adapter.config = SimpleNamespace(checkpoint_engine=SimpleNamespace(update_weights_bucket_megabytes=0))
    adapter.__dict__["_server"] = Handle(server)
    return adapter


def weights(seed):
    return tiny_qwen2(vocab_size=len(build_tokenizer()), seed=seed).state_dict()


def moved(one, other):
    """Names of the tensors that differ between the weights of two seeds: biases and norms start alike."""
    before, after = weights(one), weights(other)
    names = {name for name in before if not torch.equal(before[name], after[name])}
    assert len(names) > 10
    return names


class Run:
    """Replicas, and what stands for the worker group that serves them."""

    def __init__(self, servers, monkeypatch):
        self.servers = {f"server_{rank}": server for rank, server in enumerate(servers)}
        self.adapters = [make_adapter(server) for server in servers]
        names = {id(adapter): name for adapter, name in zip(self.adapters, self.servers, strict=True)}
        monkeypatch.setattr(HFServerAdapter, "server_name", property(lambda adapter: names[id(adapter)]))
        monkeypatch.setattr(
            calls.ray, "get", lambda each: [asyncio.run(c) if asyncio.iscoroutine(c) else c for c in each]
        )
        monkeypatch.setattr(sync.ray, "get_actor", lambda name: Handle(self.servers[name]))
        self.group = SimpleNamespace(workers=[self._worker(adapter) for adapter in self.adapters])

    def _worker(self, adapter):
        held = SimpleNamespace(_is_actor=True, rollout=adapter)
        return SimpleNamespace(__ray_call__=SimpleNamespace(remote=lambda function, *args: function(held, *args)))

    def push(self, seed, step=1):
        for adapter in self.adapters:
            asyncio.run(adapter.update_weights(iter(weights(seed).items()), global_steps=step))


def differing(found):
    return {name[5:] for name in found if name[:5] == "sent/" and found[name] != found[f"held/{name[5:]}"]}


# ---------------------------------------------------------------- one digest


def test_values_shape_and_dtype_make_the_digest():
    x = torch.randn(4, 6)
    same = {digest(x, FP32), digest(x.clone(), FP32), digest(x.t().contiguous().t(), FP32)}
    assert len(same) == 1
    others = [digest(x.reshape(6, 4), FP32), digest(x, BF16), digest(x + 1e-6, FP32), digest(-x, FP32)]
    assert len({*same, *others}) == 5


def test_the_dtype_is_that_of_the_holder():
    sent = torch.randn(100)
    assert digest(sent, BF16) == digest(sent.to(BF16), BF16)
    assert digest(sent, FP32) != digest(sent.to(BF16), FP32)


def test_values_that_are_not_finite_have_one_too():
    x = torch.tensor([1.0, float("nan"), float("inf")])
    assert digest(x, BF16) == digest(x.to(BF16), BF16) != digest(torch.tensor([1.0, 2.0, 3.0]), BF16)


@pytest.mark.parametrize("shape", [(), (0,), (0, 3)])
def test_small_shapes(shape):
    assert digest(torch.zeros(shape), FP32) == digest(torch.zeros(shape), FP32)


def test_a_large_tensor_is_sampled_all_over():
    size = 3 * SAMPLE_ELEMENTS + 5
    base = digest(torch.zeros(size), FP32)
    for at in (0, 4, size // 2 - size // 2 % 4, size - 1):
        changed = torch.zeros(size)
        changed[at] = 1.0
        assert digest(changed, FP32) != base, at
    assert digest(torch.ones(size), FP32) != base


# ---------------------------------------------------------------- from adapter to server


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_held_is_what_was_sent(make_server, monkeypatch, dtype):
    run = Run([make_server(dtype=dtype), make_server(dtype=dtype)], monkeypatch)
    engine = sync.EngineWeights(run.group)
    engine.begin()
    run.push(seed=1)
    first, missing = engine.read()
    assert missing == {} and len(first) == 2 * len(weights(1)) and not differing(first)
    run.push(seed=2, step=2)
    second, _ = engine.read()
    assert not differing(second)
    assert {name[5:] for name in first if first[name] != second[name]} == moved(1, 2)


def test_a_tensor_that_was_not_copied(make_server, monkeypatch):
    run = Run([make_server(), make_server()], monkeypatch)
    engine = sync.EngineWeights(run.group)
    engine.begin()
    run.push(seed=1)
    stale, server = "model.layers.1.mlp.up_proj.weight", run.servers["server_1"]
    kept = server.engine.model.state_dict()[stale].clone()
    run.push(seed=2)
    assert not differing(engine.read()[0])
    server.engine.model.state_dict()[stale].copy_(kept)
    assert differing(engine.read()[0]) == {stale}


def test_an_update_that_one_server_skips(make_server, monkeypatch):
    run = Run([make_server(), make_server()], monkeypatch)
    engine = sync.EngineWeights(run.group)
    engine.begin()
    run.push(seed=1)

    async def skip(*_):
        pass

    monkeypatch.setattr(run.servers["server_0"], "load_weights", skip)
    monkeypatch.setattr(run.servers["server_0"], "finish_weights", skip)
    run.push(seed=2)
    assert differing(engine.read()[0]) == moved(1, 2)


def test_off_means_no_digest_and_no_question(make_server, monkeypatch):
    run = Run([make_server()], monkeypatch)
    monkeypatch.setattr(adapter_module, "digest", lambda *_: pytest.fail("a digest was made"))
    monkeypatch.setattr(run.servers["server_0"], "weight_dtypes", lambda: pytest.fail("the server was asked"))
    run.push(seed=1)
    assert run.adapters[0].sent_digests() == {}


# ---------------------------------------------------------------- what cannot be told


def test_before_the_first_update(make_server, monkeypatch):
    run = Run([make_server()], monkeypatch)
    engine = sync.EngineWeights(run.group)
    engine.begin()
    found, missing = engine.read()
    assert found == {} and "no weights have been sent" in str(missing["weights"])


def test_an_engine_that_does_not_tell(make_server, monkeypatch):
    run = Run([make_server()], monkeypatch)
    monkeypatch.delattr(HFServerAdapter, "note_digests")
    engine = sync.EngineWeights(run.group)
    engine.begin()
    run.push(seed=1)
    found, missing = engine.read()
    assert found == {} and "(HFServerAdapter) does not report" in str(missing["weights"])


def test_a_server_that_is_gone(make_server, monkeypatch):
    run = Run([make_server()], monkeypatch)
    engine = sync.EngineWeights(run.group)
    engine.begin()
    run.push(seed=1)
    run.servers.clear()
    found, missing = engine.read()
    assert found == {} and "KeyError: 'server_0'" in str(missing["weights"])
    assert engine.read() == (found, missing)


def test_replicas_that_differ_among_each_other_agree_if_each_holds_what_it_was_sent():
    one, two = {"w": "1"}, {"w": "2"}
    assert sync.combine_replicas([(one, one), (two, two)]) == {"sent/w": "1|2", "held/w": "1|2"}
    assert sync.combine_replicas([(one, two), (two, one)]) == {"sent/w": "1|2", "held/w": "2|1"}
    assert sync.combine_replicas([(one, one), (one, {})]) == {"sent/w": "1", "held/w": "1|absent"}
