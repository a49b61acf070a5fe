# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters of a rank, by name: whatever wraps them, wherever their values are."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from verl.crosscheck.weights.tensors import local_parameters


class Layer(nn.Module):
    def __init__(self, number=None):
        super().__init__()
        self.linear = nn.Linear(2, 3, bias=False)
        if number is not None:
            self.layer_number = number


class Model(nn.Module):
    def __init__(self, numbers=(None, None)):
        super().__init__()
        self.layers = nn.ModuleList(Layer(number) for number in numbers)


class Wrapper(nn.Module):
    """Around a module, under the name that a library uses."""

    def __init__(self, inner, name="module"):
        super().__init__()
        setattr(self, name, inner)


class Buffer:
    """A Megatron buffer of a chunk's parameters, which are views of it."""

    def __init__(self, chunk):
        parameters = list(chunk.parameters())
        self.param_data = torch.zeros(sum(p.numel() for p in parameters))
        at = 0
        for p in parameters:
            view = self.param_data[at : at + p.numel()].view(p.shape)
            p.data, at = view.copy_(p.data), at + p.numel()

    def put_aside(self):
        """As upstream's `offload_megatron_model_to_cpu` does."""
        self.param_data.cpu_data = self.param_data.clone()
        self.param_data.untyped_storage().resize_(0)


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def names(*chunks):
    return list(local_parameters(chunks))


def test_a_plain_module():
    model = Model()
    shards = local_parameters([model])
    assert list(shards) == ["layers.0.linear.weight", "layers.1.linear.weight"]
    shard = shards["layers.1.linear.weight"]
    assert torch.equal(shard.local, model.layers[1].linear.weight.flatten()) and shard.whole_elements is None


def test_frozen_parameters_are_left_out():
    model = Model()
    model.layers[0].requires_grad_(False)
    assert names(model) == ["layers.1.linear.weight"]


@pytest.mark.parametrize("wrapper", ["_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module", "module"])
def test_wrappers_leave_no_trace(wrapper):
    assert names(Wrapper(Wrapper(Model(), wrapper), wrapper)) == names(Model())


def test_layers_of_a_pipeline_stage_are_counted_through_the_whole_model():
    stage = [Wrapper(Wrapper(Model(numbers))) for numbers in ((3, 4), (11, 12))]
    assert names(*stage) == [f"layers.{number}.linear.weight" for number in (2, 3, 10, 11)]


def test_equal_names_in_two_chunks_are_told_apart():
    assert names(Wrapper(nn.Linear(1, 1, bias=False), "head"), Wrapper(nn.Linear(1, 1, bias=False), "head")) == [
        "head.weight",
        "head.weight@1",
    ]


def test_values_that_megatron_has_put_aside_are_found_there():
    chunk = Wrapper(Model())
    expected = {name: shard.local.clone() for name, shard in local_parameters([chunk]).items()}
    chunk.buffers, chunk.expert_parallel_buffers = [Buffer(chunk.module.layers[0])], [Buffer(chunk.module.layers[1])]
    for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers):
        buffer.put_aside()
    assert chunk.module.layers[0].linear.weight.untyped_storage().nbytes() == 0
    found = local_parameters([chunk])
    assert found.keys() == expected.keys() and all(torch.equal(found[n].local, expected[n]) for n in expected)


def test_values_that_are_nowhere_are_an_error():
    model = Model()
    model.layers[1].linear.weight.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="layers.1.linear.weight .*share_data_weight_change=off"):
        local_parameters([model])


def test_fsdp2(group):
    model = Model()
    expected = {name: p.detach().clone() for name, p in model.named_parameters()}
    for module in (*model.layers, model):
        fully_shard(module, mesh=dist.device_mesh.init_device_mesh("cpu", (1,)))
    shards = local_parameters([model])
    assert shards.keys() == expected.keys()
    assert all(torch.equal(shards[n].local, expected[n].flatten()) and shards[n].whole_elements == 6 for n in expected)


@pytest.mark.parametrize("original", [False, True])
def test_fsdp(group, original):
    """Flat parameters go by the name of their unit."""
    model = Model()
    expected = [p.detach().flatten().clone() for p in model.parameters()]
    for index, layer in enumerate(model.layers):
        wrapped = FullyShardedDataParallel(layer, device_id=torch.device("cpu"), use_orig_params=original)
        model.layers[index] = wrapped
    shards = local_parameters([model])
    name = "linear.weight" if original else "_flat_param"
    assert list(shards) == [f"layers.0.{name}", f"layers.1.{name}"]
    assert [shard.whole_elements for shard in shards.values()] == ([None] * 2 if original else [6] * 2)
    assert all(torch.equal(s.local[:6], e) for s, e in zip(shards.values(), expected, strict=True))
