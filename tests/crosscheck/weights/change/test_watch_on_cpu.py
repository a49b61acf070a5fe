# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the trainer is told about changes of the weights, by ranks in this process."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from verl.crosscheck.evidence.step import TensorChange
from verl.crosscheck.settings import ChangeDetail
from verl.crosscheck.weights import calls
from verl.crosscheck.weights.change import on_worker
from verl.crosscheck.weights.change.on_worker import ChangePart
from verl.crosscheck.weights.change.watch import WeightWatch, combine


class Actor:
    """Stands for a Ray actor: runs functions at once."""

    def __init__(self, held):
        self.held, self.asked = held, []
        self.__ray_call__ = SimpleNamespace(remote=self._run)

    def _run(self, function, *args):
        self.asked.append(function.__name__)
        return function(self.held, *args)


@pytest.fixture
def ranks(monkeypatch):
    """Two ranks with parameter `weight` [1, 1], and a critic beside the actor."""
    monkeypatch.setattr(calls.ray, "get", lambda results: results)
    modules = [nn.Linear(1, 1, bias=False) for _ in range(2)]
    set_weights(modules, 0.0, 0.0)
    actors = [SimpleNamespace(_is_actor=True, actor_module_fsdp=module) for module in modules]
    held = [SimpleNamespace(worker_dict={"critic": SimpleNamespace(), "actor_rollout": actor}) for actor in actors]
    return SimpleNamespace(modules=modules, group=SimpleNamespace(workers=[Actor(each) for each in held]))


def set_weights(modules, *values):
    with torch.no_grad():
        for module, value in zip(modules, values, strict=True):
            module.weight.fill_(value)


def one_step(watch, ranks):
    watch.begin()
    set_weights(ranks.modules, 3.0, 4.0)
    watch.before_load()
    set_weights(ranks.modules, 3.0, 0.0)
    return watch.after_load()


def test_full(ranks):
    assert one_step(WeightWatch(ranks.group, ChangeDetail.FULL), ranks) == (
        {"weight": TensorChange(own=5.0, other=3.0, apart=4.0)},
        {},
    )


def test_norm_says_what_is_missing(ranks):
    changes, missing = one_step(WeightWatch(ranks.group, ChangeDetail.NORM), ranks)
    assert changes == {"weight": TensorChange(own=5.0, other=3.0, apart=None)}
    assert list(missing) == ["changes/apart"] and "set full" in str(missing["changes/apart"])


def test_off_asks_nobody(ranks):
    watch = WeightWatch(ranks.group, ChangeDetail.OFF)
    changes, missing = one_step(watch, ranks)
    assert changes == {} and "share_data_weight_change=off" in str(missing["changes"])
    assert watch.own_only() == (changes, missing)
    assert [actor.asked for actor in ranks.group.workers] == [[], []]


def test_own_only_counts_from_step_to_step(ranks):
    watch = WeightWatch(ranks.group, ChangeDetail.FULL)
    watch.begin()
    for values, norm in (((3.0, 4.0), 5.0), ((3.0, 4.0), 0.0), ((3.0, 5.0), 1.0)):
        set_weights(ranks.modules, *values)
        assert watch.own_only() == ({"weight": TensorChange(own=norm)}, {})


def test_a_worker_that_cannot_is_told_in_every_step_and_asked_no_more(ranks):
    del ranks.group.workers[1].held.worker_dict["actor_rollout"].actor_module_fsdp
    watch = WeightWatch(ranks.group, ChangeDetail.FULL)
    first = one_step(watch, ranks)
    assert first[0] == {} and "LookupError: SimpleNamespace holds its actor's model at none" in str(first[1]["changes"])
    assert watch.own_only() == first
    assert ranks.group.workers[0].asked == ["remember", "forget"]
    assert not hasattr(ranks.group.workers[0].held.worker_dict["actor_rollout"], on_worker._MEMORY)


def test_a_group_without_actors():
    watch = WeightWatch(None, ChangeDetail.FULL)
    watch.begin()
    changes, missing = watch.own_only()
    assert changes == {} and "'NoneType' object has no attribute 'workers'" in str(missing["changes"])


def test_replicas_count_once_and_padding_is_none():
    assert combine([{"w": ChangePart(own=8.0, elements=10, whole=10)}] * 2) == {"w": TensorChange(own=8.0**0.5)}
    assert combine([{"w": ChangePart(own=8.0, elements=6, whole=11)}] * 2) == {"w": TensorChange(own=4.0)}
    assert combine([{"w": ChangePart(own=8.0, elements=10, whole=None)}] * 2) == {"w": TensorChange(own=4.0)}


def test_ranks_may_hold_different_tensors():
    ranks = [
        {"a": ChangePart(9.0, 1, None, 4.0, 1.0)},
        {"a": ChangePart(16.0, 1, None, 5.0, 3.0), "b": ChangePart(1.0, 1, None, 4.0, 9.0)},
    ]
    assert combine(ranks) == {"a": TensorChange(5.0, 3.0, 2.0), "b": TensorChange(1.0, 2.0, 3.0)}


def test_the_actor_is_found_in_both_kinds_of_containers():
    actor, ref = SimpleNamespace(_is_actor=True), SimpleNamespace(_is_actor=False)
    for held in (
        actor,
        SimpleNamespace(worker_dict={"r": ref, "a": actor}),
        SimpleNamespace(fused_worker_dict={"a": actor}),
    ):
        assert calls.actor_worker(held) is actor
    with pytest.raises(LookupError, match="trains an actor"):
        calls.actor_worker(SimpleNamespace(worker_dict={"r": ref}))


MODEL, OTHER = nn.Linear(1, 1), nn.Linear(1, 1)
HOLDERS = {
    "legacy FSDP": SimpleNamespace(actor_module_fsdp=MODEL, actor_module=OTHER, actor=SimpleNamespace()),
    "legacy Megatron": SimpleNamespace(actor_module=[MODEL], actor=SimpleNamespace(actor_module=[OTHER])),
    "new": SimpleNamespace(actor=SimpleNamespace(engine=SimpleNamespace(module=MODEL))),
    "new Megatron": SimpleNamespace(actor=SimpleNamespace(engine=SimpleNamespace(module=[MODEL]))),
}


@pytest.mark.parametrize("worker", HOLDERS.values(), ids=HOLDERS)
def test_where_worker_implementations_hold_the_actors_model(worker):
    worker._is_actor = True
    MODEL.weight.data.fill_(1.0)
    on_worker.remember(worker)
    MODEL.weight.data.fill_(3.0)
    assert on_worker.own_change(worker)["weight"].own == 4.0
