# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The parameters that one rank holds, under names that mean the same on every rank. Never communicates.

Serves FSDP2 (and whatever else makes `DTensor`s), FSDP with flat parameters or with original ones, Megatron's lists of
model chunks, and plain modules; with parameters on a device or put aside in main memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor

_WRAPPERS = frozenset({"_fsdp_wrapped_module", "_orig_mod", "_checkpoint_wrapped_module"})
_LAYER = re.compile(r"(?P<list>.*?\blayers)\.\d+(?=\.|$)")


@dataclass(frozen=True, eq=False)
class Shard:
    """One rank's part of one parameter."""

    local: torch.Tensor
    """[E], its elements, wherever they are; shares memory with the parameter where that is possible."""
    whole: int | None
    """Elements of the whole parameter; None where this rank cannot tell."""


def local_shards(chunks: Sequence[torch.nn.Module]) -> dict[str, Shard]:
    """This rank's shards of the trainable parameters of a model's chunks, by name.

    Wrappers leave no trace in the names. Layers of Megatron's pipeline stages are counted through the whole model, as
    the layers themselves do. What is the same name on two ranks is the same tensor, with one exception: Megatron counts
    the experts of a rank from 0, so experts share their names across expert-parallel ranks.

    Raises:
        ValueError: a parameter's memory has been given up, and its copy is not where Megatron's would be.
    """
    shards: dict[str, Shard] = {}
    for number, chunk in enumerate(chunks):
        aside = _put_aside(chunk)
        layers = _layer_names(chunk)
        for name, parameter in chunk.named_parameters():
            if parameter.requires_grad:
                clean = _clean(_global_layer(name, layers))
                shards[clean if clean not in shards else f"{clean}@{number}"] = _shard(name, parameter, aside)
    return shards


def _shard(name: str, parameter: torch.Tensor, aside: Mapping[int, tuple[torch.Tensor, int]]) -> Shard:
    whole = parameter.numel() if isinstance(parameter, DTensor) else _flat_size(parameter)
    local = (parameter.to_local() if isinstance(parameter, DTensor) else parameter).detach()
    storage = local.untyped_storage()
    if local.numel() and storage.nbytes() == 0:
        if storage._cdata not in aside:
            raise ValueError(
                f"the memory of parameter {name} has been given up, and where its values are is not known here. Set "
                "trainer.share_data_weight_change=off, or keep the parameters on the device (param_offload=False)"
            )
        copy, starts_at = aside[storage._cdata]
        local = copy.as_strided(local.size(), local.stride(), local.storage_offset() - starts_at)
    return Shard(local.reshape(-1), whole)


def _flat_size(parameter: torch.Tensor) -> int | None:
    """Elements of a whole flat parameter of FSDP, without padding; None for any other tensor."""
    size = getattr(parameter, "_unpadded_unsharded_size", None)
    return None if size is None else int(size.numel())


def _put_aside(chunk: torch.nn.Module) -> dict[int, tuple[torch.Tensor, int]]:
    """Copies in main memory of a Megatron chunk's parameter buffers whose own memory upstream has given up, by storage.

    Parameters stay views of such a buffer's storage, and say by offset and stride which part of it they are. With each
    copy comes the offset at which the buffer starts in it.
    """
    buffers = [*getattr(chunk, "buffers", ()), *getattr(chunk, "expert_parallel_buffers", ())] if _is_ddp(chunk) else []
    found = {}
    for buffer in buffers:
        data = buffer.param_data
        if data is not None and data.untyped_storage().nbytes() == 0 and hasattr(data, "cpu_data"):
            found[data.untyped_storage()._cdata] = data.cpu_data.reshape(-1), data.storage_offset()
    return found


def _is_ddp(chunk: torch.nn.Module) -> bool:
    """Whether a chunk is wrapped by Megatron's own DDP, where `buffers` is a list and not torch's method."""
    return isinstance(getattr(chunk, "buffers", None), list)


def _layer_names(chunk: torch.nn.Module) -> dict[str, str]:
    """Megatron's layers: the name within this chunk and the one that counts through the whole model."""
    return {name: renamed for name, renamed in _numbered(chunk) if name != renamed}


def _numbered(chunk: torch.nn.Module) -> Iterator[tuple[str, str]]:
    for name, module in chunk.named_modules():
        number = getattr(module, "layer_number", None)
        match = _LAYER.fullmatch(name)
        if match and isinstance(number, int):
            yield name, f"{match['list']}.{number - 1}"


def _global_layer(name: str, layers: Mapping[str, str]) -> str:
    match = _LAYER.match(name)
    if match is None or match[0] not in layers:
        return name
    return layers[match[0]] + name[match.end() :]


def _clean(name: str) -> str:
    parts = [part for part in name.split(".") if part not in _WRAPPERS]
    while len(parts) > 1 and parts[0] == "module":  # Megatron's wrappers, of which there may be several
        del parts[0]
    return ".".join(parts)
