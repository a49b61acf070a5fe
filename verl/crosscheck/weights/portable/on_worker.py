# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that Ray runs inside the training workers' actors. Each gets the actor's own object first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from verl.crosscheck.weights.change.on_worker import actor_worker
from verl.crosscheck.weights.portable import megatron
from verl.crosscheck.weights.portable.loading import LoadedRank, load_module, prepare_module
from verl.crosscheck.weights.portable.local_tensors import local_tensors
from verl.crosscheck.weights.portable.manifest import dtype_name
from verl.crosscheck.weights.portable.naming import UnsupportedError
from verl.crosscheck.weights.portable.saving import SavedRank, part_of, save_module
from verl.crosscheck.weights.portable.sums import PartSum
from verl.crosscheck.weights.portable.writing import storage_of

_FOREIGN_ENGINES = {"VeOmniEngine": "VeOmni", "TorchTitanEngine": "TorchTitan"}


def unsupported(held: Any) -> str:
    """Why this worker's actor cannot be exchanged by portable weights; empty if it can. Communicates nothing."""
    try:
        owner = owner_of(actor_worker(held))
        _require_known(owner)
        if megatron.is_megatron(owner):
            megatron.require_supported(owner)
        else:
            for each in local_tensors(_module(owner)):
                storage_of(each.name, each.dtype)
    except (UnsupportedError, LookupError) as error:
        return str(error)
    return ""


def save_portable(held: Any, folder: str) -> SavedRank:
    """Write the actor into an existing folder, except for `portable.json`; all ranks must run it together."""
    owner = owner_of(actor_worker(held))
    if megatron.is_megatron(owner):
        return megatron.save(owner, Path(folder))
    return save_module(_module(owner), Path(folder))


def prepare_portable(held: Any, folder: str) -> LoadedRank:
    """See `prepare_module`."""
    owner = owner_of(actor_worker(held))
    if megatron.is_megatron(owner):
        return megatron.prepare(owner, Path(folder))
    return prepare_module(_module(owner), Path(folder))


def load_portable(held: Any, folder: str) -> LoadedRank:
    """See `load_module`."""
    owner = owner_of(actor_worker(held))
    if megatron.is_megatron(owner):
        return megatron.load(owner, Path(folder))
    return load_module(_module(owner), Path(folder))


def adapter_sums(held: Any) -> dict[str, list[PartSum]]:
    """Checksums of this rank's parts of the LoRA adapters, by number format. Communicates nothing."""
    owner = owner_of(actor_worker(held))
    if megatron.is_megatron(owner):
        raise UnsupportedError("not possible with LoRA of Megatron")
    found: dict[str, list[PartSum]] = {}
    with torch.no_grad():
        for each in local_tensors(_module(owner)):
            if each.kind == "adapter":
                found.setdefault(dtype_name(each.dtype), []).append(part_of(each))
    return found


def owner_of(actor: Any) -> Any:
    """What holds the model: the new worker's engine, or the legacy worker itself."""
    engine = getattr(getattr(actor, "actor", None), "engine", None)
    return actor if engine is None else engine


def _require_known(owner: Any) -> None:
    for kind in type(owner).__mro__:
        if kind.__name__ in _FOREIGN_ENGINES:
            raise UnsupportedError(f"the training back end {_FOREIGN_ENGINES[kind.__name__]} ({type(owner).__name__})")
    if getattr(owner, "_qat_enabled", False):
        raise UnsupportedError("quantisation-aware training (actor.qat.enable=True), whose weights are not the model's")


def _module(owner: Any) -> nn.Module:
    for name in ("actor_module_fsdp", "module"):
        module = getattr(owner, name, None)
        if isinstance(module, nn.Module):
            return module
    raise LookupError(
        f"{type(owner).__name__} holds its actor's model at none of the places that are known: module, "
        "actor_module_fsdp, and actor_module for Megatron"
    )
