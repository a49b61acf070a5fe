# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Not a test: several ranks in gloo that save and load tiny models, started by `test_ranks_on_cpu.py`.

    python ranks.py FOLDER     # jobs from FOLDER/jobs.json, what came of them into FOLDER/out

A job has `world` (number of ranks) and `steps`. A step has `do` (save or load), `layout`, `model` (a variant), `seed`,
`path` (a folder of weights), and `name`. Each save writes the values that it had into `out/NAME.pt`, each load those
that it has afterwards, gathered by torch's own means; what was told on a rank goes into `out/NAME.RANK.json`, whatever
went wrong into `out/NAME.RANK.txt`.
"""

import json
import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp import MixedPrecision, MixedPrecisionPolicy, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor, Shard
from transformers import Qwen2Config, Qwen2ForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from verl.crosscheck.weights.portable import gathering, loading, saving, transfer
from verl.crosscheck.weights.portable.writing import FILE_BYTES

REAL_HOST = gathering._host


def build(variant, seed):
    """A tiny model; sizes that no number of ranks divides."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=129,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=variant == "tied",
        attn_implementation="eager",
    )
    model = Qwen2ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():  # also those that all start as ones or zeros
            parameter.normal_()
    if variant == "bf16":
        model.to(torch.bfloat16)
    if variant == "mixed":
        model.model.norm.to(torch.bfloat16)
        model.model.layers[0].mlp.to(torch.float64)
    if variant == "frozen":
        model.model.embed_tokens.requires_grad_(False)
    if variant == "buffers":
        model.model.register_buffer("steps", torch.tensor(seed * 1000))
        model.model.layers[1].register_buffer("scale", torch.randn(5, dtype=torch.float64))
        model.model.register_buffer("scratch", torch.randn(3), persistent=False)
    return lora(model, variant, seed) if variant.startswith("lora") else model


def lora(model, variant, seed):
    """The same base, whatever the seed, unless another one is wanted."""
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
        if variant == "lora-other-base":
            model.model.layers[1].mlp.up_proj.weight[3, 5] += 1
    config = LoraConfig(r=3, target_modules=["q_proj", "up_proj"])
    model = get_peft_model(model, config)
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.normal_()
    return model


def wrap(model, layout):
    """As upstream's workers wrap an actor."""
    world = dist.get_world_size()
    if layout == "plain":
        return model
    if layout == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if layout.startswith("fsdp2"):
        replicas = (world, 1) if "replicas" in layout else (world,)
        mesh = init_device_mesh("cpu", replicas, mesh_dim_names=("replica", "shard")[-len(replicas) :])
        kind = {"mesh": mesh, "reshard_after_forward": "keep" not in layout}
        if "low" in layout:
            kind["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
        if "columns" in layout:
            kind["shard_placement_fn"] = lambda p: Shard(p.dim() - 1 if p.shape[-1] % world == 0 else 0)
        for module in model.modules():
            if isinstance(module, Qwen2DecoderLayer):
                fully_shard(module, **kind)
        return fully_shard(model, **kind)
    strategy, mesh = ShardingStrategy.FULL_SHARD, None
    if "whole" in layout:
        strategy = ShardingStrategy.NO_SHARD
    if "replicas" in layout:
        strategy = ShardingStrategy.HYBRID_SHARD
        mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("replica", "shard"))
    return FSDP(
        model,
        device_mesh=mesh,
        auto_wrap_policy=ModuleWrapPolicy({Qwen2DecoderLayer}),
        sharding_strategy=strategy,
        use_orig_params="orig" in layout,
        mixed_precision=MixedPrecision(param_dtype=torch.bfloat16) if "low" in layout else None,
        device_id=torch.device("cpu"),
    )


def values(module):
    """All values of parameters and buffers, by clean name, gathered by torch's own means; without the rotary ones."""
    if isinstance(module, FSDP):
        with FSDP.summon_full_params(module, writeback=False):
            return clean(module)
    return clean(module)


def clean(module):
    found = {}
    for name, value in [*module.named_parameters(), *module.named_buffers()]:
        if "rotary_emb" in name:
            continue
        full = value.full_tensor() if isinstance(value, DTensor) else value
        found[name.replace("_fsdp_wrapped_module.", "").removeprefix("module.")] = full.detach().clone()
    return found


def step(each, out):
    torch.manual_seed(0)
    module = wrap(build(each["model"], each["seed"]), each["layout"])
    tokens = torch.arange(6).reshape(1, 6)
    if each.get("forward"):  # FSDP then keeps the root unsharded
        with torch.no_grad():
            module(input_ids=tokens)
    folder = Path(each["path"])
    gathering._host = dist.get_rank if "hosts" in each["name"] else REAL_HOST
    try:
        told = (
            save(module, folder, each.get("file_bytes", FILE_BYTES)) if each["do"] == "save" else load(module, folder)
        )
        (out / f"{each['name']}.{dist.get_rank()}.json").write_text(json.dumps(told))
    except Exception as error:
        (out / f"{each['name']}.{dist.get_rank()}.txt").write_text(f"{type(error).__name__}: {error}")
    found = values(module)
    if each.get("forward"):
        with torch.no_grad():
            found["logits"] = module(input_ids=tokens).logits
    if dist.get_rank() == 0:
        torch.save(found, out / f"{each['name']}.pt")
    dist.barrier()


def save(module, folder, file_bytes):
    ranks = gathered(saving.save_module(module, folder, file_bytes))
    saved = transfer.finish(folder, ranks) if dist.get_rank() == 0 else None
    dist.barrier()
    return saved and vars(saved)


def load(module, folder):
    prepared = gathered(loading.prepare_module(module, folder))
    transfer.require_same_bases(folder, prepared)
    return vars(transfer.summary(folder, prepared, gathered(loading.load_module(module, folder))))


def gathered(result):
    results = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    return results


def rank_of(rank, world, number, folder, steps):
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / f"store-{number}"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
    for each in steps:
        step(each, folder / "out")
    dist.destroy_process_group()


def main(folder):
    """Ranks are forked, so that the libraries are imported once."""
    fork = multiprocessing.get_context("fork")
    for number, job in enumerate(json.loads((folder / "jobs.json").read_text())):
        arguments = (job["world"], number, folder, job["steps"])
        ranks = [fork.Process(target=rank_of, args=(rank, *arguments)) for rank in range(job["world"])]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
        if any(rank.exitcode for rank in ranks):
            sys.exit(f"exit codes of the ranks of job {number}: {[rank.exitcode for rank in ranks]}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
