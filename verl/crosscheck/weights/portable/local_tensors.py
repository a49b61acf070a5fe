# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The tensors of a module that one rank holds, found without communication."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from verl.crosscheck.weights.portable import regions
from verl.crosscheck.weights.portable.naming import Kind, Naming, UnsupportedError, clean


@dataclass(frozen=True, eq=False)
class LocalTensor:
    """One tensor of the module, and this rank's part of it."""

    name: str
    kind: Kind
    shape: tuple[int, ...]
    local: torch.Tensor
    """[E], this rank's elements; shares memory with the parameter."""
    region: regions.Region
    """Which elements those are."""
    replica: int
    """Ranks with the same number hold the whole tensor together, each element once."""
    trainable: bool = True
    aliases: tuple[str, ...] = ()
    """Other names of the same memory."""

    @property
    def dtype(self) -> torch.dtype:
        return self.local.dtype


def local_tensors(module: nn.Module) -> list[LocalTensor]:
    """All parameters and persistent buffers of a module, in the same order on every rank, under portable names.

    Frees unsharded copies that FSDP keeps after a forward pass.

    Raises:
        UnsupportedError: a wrapper or a tensor of an unknown kind; says which.
    """
    inner = module.module if isinstance(module, nn.parallel.DistributedDataParallel) else module
    if any(isinstance(each, FullyShardedDataParallel) for each in inner.modules()):
        from verl.crosscheck.weights.portable.fsdp1 import flat_tensors, is_flat

        found, skipped = list(flat_tensors(inner)), is_flat(inner)
    else:
        for each in inner.modules():
            if isinstance(each, FSDPModule):
                each.reshard()
        found, skipped = [], lambda name, parameter: False
    found += _parameters(inner, skipped)
    found += _buffers(inner)
    return _named(inner, found)


def _named(inner: nn.Module, found: list[LocalTensor]) -> list[LocalTensor]:
    naming = Naming(getattr(inner, "_fsdp_wrapped_module", inner))
    named: dict[str, LocalTensor] = {}
    for held in found:
        name, kind = naming(held.name, held.trainable, held.kind)
        aliases = tuple(naming(alias, held.trainable, held.kind)[0] for alias in held.aliases)
        if name in named:
            raise UnsupportedError(f"two tensors with the name {name}")
        named[name] = replace(held, name=name, kind=kind, aliases=tuple(a for a in aliases if a != name))
    return list(named.values())


def _parameters(module: nn.Module, skipped: Callable[[str, nn.Parameter], bool]) -> Iterator[LocalTensor]:
    names: dict[int, list[str]] = {}
    parameters: dict[int, nn.Parameter] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if not skipped(clean(name), parameter):
            parameters[id(parameter)] = parameter
            names.setdefault(id(parameter), []).append(clean(name))
    for key, parameter in parameters.items():
        first, *aliases = names[key]
        build = _sharded if isinstance(parameter, DTensor) else plain
        yield replace(build(first, "parameter", parameter), trainable=parameter.requires_grad, aliases=tuple(aliases))


def _buffers(module: nn.Module) -> Iterator[LocalTensor]:
    seen: set[int] = set()
    for prefix, owner in module.named_modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and name not in owner._non_persistent_buffers_set and id(buffer) not in seen:
                seen.add(id(buffer))
                yield plain(clean(f"{prefix}.{name}" if prefix else name), "buffer", buffer)


def plain(name: str, kind: Kind, tensor: torch.Tensor) -> LocalTensor:
    """A tensor that every rank holds whole."""
    if type(tensor) not in (torch.Tensor, nn.Parameter) or hasattr(tensor, "ds_id"):
        raise UnsupportedError(f"{kind} {name} is a {type(tensor).__name__} of a kind that is not known here")
    values = tensor.detach()
    rank = dist.get_rank() if dist.is_initialized() else 0
    return LocalTensor(name, kind, tuple(values.shape), flat(name, values), regions.whole(values.shape), rank)


def _sharded(name: str, kind: Kind, parameter: Any) -> LocalTensor:
    mesh, placements = parameter.device_mesh, parameter.placements
    coordinate = mesh.get_coordinate()
    known = all(type(placement) in (Shard, Replicate) for placement in placements)
    if not known or coordinate is None:
        raise UnsupportedError(f"parameter {name} is laid out over the ranks as {placements}")
    size, offset = compute_local_shape_and_global_offset(parameter.shape, mesh, placements)
    replica = 0
    for index, extent, placement in zip(coordinate, mesh.shape, placements, strict=True):
        replica = replica * extent + index if isinstance(placement, Replicate) else replica
    values = parameter.detach()

    local = flat(name, values.to_local())
    return LocalTensor(name, kind, tuple(values.shape), local, regions.box(values.shape, offset, size), replica)


def flat(name: str, values: torch.Tensor) -> torch.Tensor:
    """The same memory as [E]."""
    if values.device.type == "meta":
        raise UnsupportedError(f"{name} has no values (it is on the meta device)")
    if not values.is_contiguous():
        raise UnsupportedError(f"{name} does not lie in one piece in memory")
    return values.view(-1)
