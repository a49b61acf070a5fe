# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors inside the flat parameters of FSDP (the first one), whether or not it keeps the original parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel

from verl.crosscheck.weights.portable import regions
from verl.crosscheck.weights.portable.local_tensors import LocalTensor
from verl.crosscheck.weights.portable.naming import clean


def flat_tensors(root: nn.Module) -> Iterator[LocalTensor]:
    """The tensors of all flat parameters, in the order of modules; frees unsharded copies."""
    for prefix, module, handle in _handles(root):
        local = _sharded_values(handle)
        flat = handle.flat_param
        aliases = _aliases(flat)
        for number, (fqn, shape) in enumerate(zip(flat._fqns, flat._shapes, strict=True)):
            name = _join(prefix, fqn)
            info = flat._shard_param_infos[number]
            first, count, at = 0, 0, 0
            if info.in_shard:
                first, count, at = info.intra_param_start_idx, info.numel_in_shard, info.offset_in_shard
            yield LocalTensor(
                name,
                "parameter",
                tuple(shape),
                local[at : at + count],
                regions.flat_range(shape, first, count),
                _replica(module, handle),
                trainable=_trainable(flat, number),
                aliases=tuple(_join(prefix, alias) for alias in aliases.get(fqn, [])),
            )


def is_flat(root: nn.Module) -> Callable[[str, nn.Parameter], bool]:
    """Whether a parameter is a flat one, or lies in one."""
    inside, flats = set(), set()
    for prefix, _, handle in _handles(root):
        flats.add(id(handle.flat_param))
        for fqn in [*handle.flat_param._fqns, *(each for each, _ in _shared(handle.flat_param))]:
            inside.add(_join(prefix, fqn))
    return lambda name, parameter: id(parameter) in flats or name in inside


def _handles(root: nn.Module) -> Iterator[tuple[str, Any, Any]]:
    for name, module in root.named_modules():
        handle = getattr(module, "_handle", None)
        if isinstance(module, FullyShardedDataParallel) and handle is not None:
            yield clean(name), module, handle


def _join(prefix: str, name: str) -> str:
    return clean(f"{prefix}.{name}" if prefix else name)


def _sharded_values(handle: Any) -> torch.Tensor:
    """This rank's part of a flat parameter [S], padding included, in the type in which training holds it."""
    flat = handle.flat_param
    local = getattr(flat, "_local_shard", None)  # absent before the first forward pass
    if local is None:
        return flat.detach()
    if handle.uses_sharded_strategy:  # the unsharded copy may be kept, and used again, while `flat` is sharded
        handle.reshard(True)
        handle.post_reshard()
    return local.detach()


def _trainable(flat: Any, number: int) -> bool:
    originals = flat._params
    return bool(flat.requires_grad if originals is None else originals[number].requires_grad)


def _shared(flat: Any) -> Iterator[tuple[str, str]]:
    """Other names of shared tensors, each with the first name."""
    for info in flat._shared_param_infos:
        first = f"{info.prim_module_name}.{info.prim_param_name}" if info.prim_module_name else info.prim_param_name
        yield (f"{info.module_name}.{info.param_name}" if info.module_name else info.param_name), first


def _aliases(flat: Any) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for alias, first in _shared(flat):
        found.setdefault(first, []).append(alias)
    return found


def _replica(module: Any, handle: Any) -> int:
    if not handle.uses_sharded_strategy:
        return int(dist.get_rank())
    between = getattr(module, "_inter_node_pg", None)
    return 0 if between is None else int(dist.get_rank(between))
