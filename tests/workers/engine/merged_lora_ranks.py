# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Not a test: a rank of FSDP2 whose engine sends merged LoRA weights, started by `test_merged_lora_on_cpu.py`.

python merged_lora_ranks.py RANK STORE_FILE
"""

import copy
import sys
from types import SimpleNamespace

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from tiny_models import tiny_qwen2
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from verl.workers.engine.fsdp.cpu_impl import CpuEngineWithLMHead


def adapted():
    torch.manual_seed(0)
    model = get_peft_model(tiny_qwen2(), LoraConfig(r=2, target_modules="all-linear"))
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zeros, which merge to nothing
            torch.nn.init.normal_(parameter, std=0.1)
    return model


def engine_of(model):
    engine = object.__new__(CpuEngineWithLMHead)
    engine.module = model
    engine._is_lora, engine._qat_enabled = True, False
    engine.model_config = SimpleNamespace(lora={"merge": True})
    engine.engine_config = SimpleNamespace(dtype="float32")
    return engine


def main(rank, ranks, store):
    dist.init_process_group("gloo", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    model = adapted()
    expected = {k: v.clone() for k, v in copy.deepcopy(model).merge_and_unload().state_dict().items()}
    before = {name: value.clone() for name, value in model.state_dict().items()}
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model.base_model.model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    sent, configuration = engine_of(model).get_per_tensor_param()
    found = dict(sent)  # all of them, and only then looked at, as a bucket is
    assert configuration is None
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == torch.float32
        torch.testing.assert_close(found[name], tensor, rtol=1e-6, atol=1e-7)
    moved = [name for name in expected if not torch.equal(tensor_before(before, name), expected[name])]
    assert len(moved) == 7 * len(model.base_model.model.model.layers)  # the adapters do change something
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor.full_tensor(), before[name]), name
    dist.destroy_process_group()


def tensor_before(before, name):
    key = f"base_model.model.{name}"
    return before.get(
        key, before.get(key.replace(".weight", ".base_layer.weight").replace(".bias", ".base_layer.bias"))
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
