# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a model that one rank holds, found without communication.

One walk serves both uses:

    local_tensors      everything that a checkpoint holds, under portable names (`portable`)
    local_parameters   the trainable parameters, under names that mean the same on every rank (`change`)

It knows plain modules, FSDP1 with flat or with original parameters, FSDP2 (and whatever else makes `DTensor`s), and
Megatron's lists of model chunks, with values on a device or put aside in main memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from verl.crosscheck.weights import regions
from verl.crosscheck.weights.naming import PortableNames, TensorKind, UnsupportedError, clean

_FLAT = "_flat_param"
_LAYER = re.compile(r"(?P<list>.*?\blayers)\.\d+(?=\.|$)")


@dataclass(frozen=True, eq=False)
class LocalTensor:
    """One tensor of a model, and the part of it that this rank holds."""

    name: str
    kind: TensorKind
    shape: tuple[int, ...]
    """Of the whole tensor. Of one of Megatron's, it is that of this rank's slice."""
    local: torch.Tensor
    """[E], this rank's elements; shares memory with the parameter, in any shape if that does not lie in one piece."""
    layout: regions.Region | str
    """Which elements those are, or why that is not known."""
    replica: int = 0
    """Ranks with the same number hold the whole tensor together, each element once."""
    whole_elements: int | None = None
    """Elements of the whole tensor, if the layout tells it: a plain parameter can be a slice that Megatron made."""
    trainable: bool = True
    aliases: tuple[str, ...] = ()
    """Other names of the same memory."""

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype

    @property
    def region(self) -> regions.Region:
        """Raise UnsupportedError if it is not known which elements this rank holds."""
        if isinstance(self.layout, str):
            raise UnsupportedError(self.layout)
        return self.layout

    @property
    def size_bytes(self) -> int:
        """Size of the whole tensor."""
        return self.region.whole_elements * int(self.dtype.itemsize)


def local_tensors(module: nn.Module) -> list[LocalTensor]:
    """Return all parameters and persistent buffers of a module, in the same order on every rank, under portable names.

    Frees unsharded copies that FSDP keeps after a forward pass.

    Raises:
        UnsupportedError: a wrapper or a tensor of an unknown kind; says which.
    """
    inner = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
    names = PortableNames(getattr(inner, "_fsdp_wrapped_module", inner))
    named: dict[str, LocalTensor] = {}
    for each in [*_parameters(inner, split_flat=True), *_buffers(inner)]:
        _ = each.region
        name, kind = names(each.name, each.trainable, each.kind)
        aliases = tuple(names(alias, each.trainable, each.kind)[0] for alias in each.aliases)
        if name in named:
            raise UnsupportedError(f"two tensors with the name {name}")
        named[name] = replace(each, name=name, kind=kind, aliases=tuple(a for a in aliases if a != name))
    return list(named.values())


def local_parameters(chunks: Sequence[nn.Module]) -> dict[str, LocalTensor]:
    """Return this rank's parts of the trainable parameters of a model's chunks, by name; of FSDP1's flat parameters as
    a whole.

    Names are without wrappers. Layers of Megatron's pipeline stages are counted through the whole model, as the layers
    themselves do. The same name on two ranks means the same tensor, with one exception: Megatron counts the experts of
    a rank from 0, so experts share their names across expert-parallel ranks.

    Frees unsharded copies that FSDP keeps after a forward pass.

    Raises:
        ValueError: a parameter's memory has been given up, and its copy is not where Megatron's would be.
    """
    found: dict[str, LocalTensor] = {}
    for number, chunk in enumerate(chunks):
        aside, layers = _put_aside(chunk), _layer_names(chunk)
        for each in _parameters(chunk, split_flat=False):
            if each.trainable:
                name = _without_module(_global_layer(each.name, layers))
                found[name if name not in found else f"{name}@{number}"] = replace(each, local=_values(each, aside))
    return found


def _parameters(root: nn.Module, split_flat: bool) -> Iterator[LocalTensor]:
    """Yield parameters under clean names: first those inside FSDP1's flat ones, then all others."""
    for each in root.modules():
        if isinstance(each, FSDPModule):
            each.reshard()
    inside: set[str] = set()
    for prefix, module, handle in _flat_handles(root):
        yield from _flat_parameter(prefix, module, handle, split_flat)
        inside |= {_join(prefix, name) for name in (_FLAT, *handle.flat_param._fqns, *_shared(handle.flat_param))}
    names: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        if clean(name) not in inside:
            parameters[id(parameter)] = parameter
            names.setdefault(id(parameter), []).append(clean(name))
    for key, parameter in parameters.items():
        first, *aliases = names[key]
        build = _sharded if isinstance(parameter, DTensor) else _plain
        yield replace(build(first, "parameter", parameter), trainable=parameter.requires_grad, aliases=tuple(aliases))


def _buffers(module: nn.Module) -> Iterator[LocalTensor]:
    """Yield persistent buffers under clean names."""
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._non_persistent_buffers_set and id(buffer) not in seen:
                seen.add(id(buffer))
                yield _plain(_join(prefix, name), "buffer", buffer)


def _join(prefix: str, name: str) -> str:
    return clean(f"{prefix}.{name}" if prefix else name)


# Plain modules and FSDP2


def _plain(name: str, kind: TensorKind, tensor: torch.Tensor) -> LocalTensor:
    """Return a tensor that every rank holds whole."""
    values = tensor.detach()
    rank = dist.get_rank() if dist.is_initialized() else 0
    shape, (local, layout) = tuple(values.shape), _flattened(name, values, regions.whole(values.shape))
    if type(tensor) not in (torch.Tensor, nn.Parameter) or hasattr(tensor, "ds_id"):
        layout = f"{kind} {name} is a {type(tensor).__name__} of a kind that is not known here"
    return LocalTensor(name, kind, shape, local, layout, rank)


def _sharded(name: str, kind: TensorKind, parameter: Any) -> LocalTensor:
    """Return this rank's part of a `DTensor`."""
    mesh, placements = parameter.device_mesh, parameter.placements
    values = parameter.detach()
    shape, whole = tuple(values.shape), int(values.numel())
    coordinate = mesh.get_coordinate()
    if coordinate is None or not all(type(placement) in (Shard, Replicate) for placement in placements):
        layout = f"parameter {name} is laid out over the ranks as {placements}"
        return LocalTensor(name, kind, shape, values.to_local(), layout, whole_elements=whole)
    size, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    replica = 0
    for index, extent, placement in zip(coordinate, mesh.shape, placements, strict=True):
        replica = replica * extent + index if isinstance(placement, Replicate) else replica
    local, region = _flattened(name, values.to_local(), regions.box(shape, offset, size))
    return LocalTensor(name, kind, shape, local, region, replica, whole)


def _flattened(name: str, values: torch.Tensor, region: regions.Region) -> tuple[torch.Tensor, regions.Region | str]:
    """Return the same memory as [E], and the region; values as they are with the reason if that is not possible."""
    if not values.is_contiguous():
        return values, f"{name} does not lie in one piece in memory"
    if values.device.type == "meta":
        return values, f"{name} has no values (it is on the meta device)"
    return values.view(-1), region


# FSDP1


def _flat_handles(root: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, module and handle of each flat parameter, in the order of modules."""
    for name, module in root.named_modules():
        handle = getattr(module, "_handle", None)
        if isinstance(module, FullyShardedDataParallel) and handle is not None:
            yield clean(name), module, handle


def _flat_parameter(prefix: str, module: Any, handle: Any, split: bool) -> Iterator[LocalTensor]:
    """Yield the tensors in a flat parameter; without `split` the flat one itself, unless FSDP shows original ones."""
    flat, local = handle.flat_param, _sharded_values(handle)
    replica = _replica(module, handle)
    if not split and flat._params is None:
        whole = int(flat._unpadded_unsharded_size.numel())
        layout = f"{_join(prefix, _FLAT)} holds several tensors, and padding"
        name, trainable = _join(prefix, _FLAT), flat.requires_grad
        yield LocalTensor(name, "parameter", (whole,), local, layout, replica, whole, trainable)
        return
    shared = _shared(flat)
    for number, (fqn, shape) in enumerate(zip(flat._fqns, flat._shapes, strict=True)):
        info = flat._shard_param_infos[number]
        first, count, at = 0, 0, 0
        if info.in_shard:
            first, count, at = info.intra_param_start_idx, info.numel_in_shard, info.offset_in_shard
        yield LocalTensor(
            _join(prefix, fqn),
            "parameter",
            tuple(shape),
            local[at : at + count],
            regions.flat_range(shape, first, count),
            replica,
            trainable=bool((flat if flat._params is None else flat._params[number]).requires_grad),
            aliases=tuple(_join(prefix, alias) for alias, name in shared.items() if name == fqn),
        )


def _sharded_values(handle: Any) -> torch.Tensor:
    """Return this rank's part of a flat parameter [S], with padding, in the type in which training holds it."""
    flat = handle.flat_param
    local = getattr(flat, "_local_shard", None)  # absent before the first forward pass
    values: torch.Tensor = flat if local is None else local
    if local is not None and handle.uses_sharded_strategy:
        # FSDP may keep the unsharded copy and use it again, while `flat` is sharded.
        handle.reshard(True)
        handle.post_reshard()
    return values.detach()


def _shared(flat: Any) -> dict[str, str]:
    """Return other names of shared tensors, each with the first name."""
    return {
        ".".join(filter(None, [info.module_name, info.param_name])): ".".join(
            filter(None, [info.prim_module_name, info.prim_param_name])
        )
        for info in flat._shared_param_infos
    }


def _replica(module: Any, handle: Any) -> int:
    if not handle.uses_sharded_strategy:
        return int(dist.get_rank())
    between = getattr(module, "_inter_node_pg", None)
    return 0 if between is None else int(dist.get_rank(between))


# Megatron


def _values(each: LocalTensor, aside: Mapping[int, tuple[torch.Tensor, int]]) -> torch.Tensor:
    """Return a part's values [E], from where they were put aside if they were."""
    local = each.local
    storage = local.untyped_storage()
    if local.numel() and storage.nbytes() == 0:
        if storage._cdata not in aside:
            raise ValueError(
                f"the memory of parameter {each.name} has been given up, and where its values are is not known here. "
                "Set trainer.share_data_weight_change=off, or keep the parameters on the device (param_offload=False)"
            )
        copy, starts_at = aside[storage._cdata]
        local = copy.as_strided(local.size(), local.stride(), int(local.storage_offset()) - starts_at)
    return local.reshape(-1)


def _put_aside(chunk: nn.Module) -> dict[int, tuple[torch.Tensor, int]]:
    """Return copies in main memory of a Megatron chunk's parameter buffers whose own memory upstream has given up, by
    storage.

    Parameters stay views of such a buffer's storage, and their offset and stride say which part of it they are. With
    each copy comes the offset at which the buffer starts in it.
    """
    buffers: Any = getattr(chunk, "buffers", None)
    if not isinstance(buffers, list):  # torch's method, so the chunk is not wrapped by Megatron's own DDP
        return {}
    found = {}
    for buffer in (*buffers, *getattr(chunk, "expert_parallel_buffers", ())):
        data = buffer.param_data
        if data is not None and data.untyped_storage().nbytes() == 0 and hasattr(data, "cpu_data"):
            found[data.untyped_storage()._cdata] = data.cpu_data.reshape(-1), data.storage_offset()
    return found


def _layer_names(chunk: nn.Module) -> dict[str, str]:
    """Return for each of Megatron's layers the name within this chunk and the one that counts through the model."""
    names = {}
    for name, module in chunk.named_modules():
        number, match = getattr(module, "layer_number", None), _LAYER.fullmatch(clean(name))
        if match and isinstance(number, int):
            names[match[0]] = f"{match['list']}.{number - 1}"
    return names


def _global_layer(name: str, layers: Mapping[str, str]) -> str:
    match = _LAYER.match(name)
    return name if match is None else layers.get(match[0], match[0]) + name[match.end() :]


def _without_module(name: str) -> str:
    """Return a name without Megatron's wrappers, of which there may be several."""
    while name.startswith("module."):
        name = name.removeprefix("module.")
    return name
