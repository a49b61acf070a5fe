# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that Ray runs inside the training workers, to save, load and check the actor's weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from verl.crosscheck.weights.calls import actor_worker, model_of, model_owner
from verl.crosscheck.weights.naming import UnsupportedError
from verl.crosscheck.weights.portable import megatron
from verl.crosscheck.weights.portable.checksum import PartSum, part_of
from verl.crosscheck.weights.portable.files import dtype_name, require_storable
from verl.crosscheck.weights.portable.loading import LoadedRank, load_module, prepare_module
from verl.crosscheck.weights.portable.saving import SavedRank, save_module
from verl.crosscheck.weights.tensors import local_tensors

_FOREIGN_ENGINES = {"VeOmniEngine": "VeOmni", "TorchTitanEngine": "TorchTitan"}


def unsupported(worker: Any) -> str:
    """Return why this worker's actor cannot be exchanged by portable weights; empty if it can. Communicates nothing."""
    try:
        owner = model_owner(actor_worker(worker))
        _require_known(owner)
        model = model_of(owner)
        if isinstance(model, nn.Module):
            for each in local_tensors(model):
                require_storable(each.name, each.dtype)
        else:
            megatron.require_supported(owner)
    except (UnsupportedError, LookupError) as error:
        return str(error)
    return ""


def save_portable(worker: Any, folder: str) -> SavedRank:
    """Write the actor into an existing folder, except for `portable.json`; all ranks must run it together."""
    owner = model_owner(actor_worker(worker))
    model, path = model_of(owner), Path(folder)
    return save_module(model, path) if isinstance(model, nn.Module) else megatron.save(owner, path)


def prepare_portable(worker: Any, folder: str) -> LoadedRank:
    """See `prepare_module`."""
    owner = model_owner(actor_worker(worker))
    model, path = model_of(owner), Path(folder)
    return prepare_module(model, path) if isinstance(model, nn.Module) else megatron.prepare(owner, path)


def load_portable(worker: Any, folder: str) -> LoadedRank:
    """See `load_module`."""
    owner = model_owner(actor_worker(worker))
    model, path = model_of(owner), Path(folder)
    return load_module(model, path) if isinstance(model, nn.Module) else megatron.load(owner, path)


def adapter_sums(worker: Any) -> dict[str, list[PartSum]]:
    """Return checksums of this rank's parts of the LoRA adapters, by number format. Communicates nothing."""
    model = model_of(model_owner(actor_worker(worker)))
    if not isinstance(model, nn.Module):
        raise UnsupportedError("not possible with LoRA of Megatron")
    found: dict[str, list[PartSum]] = {}
    with torch.no_grad():
        for each in local_tensors(model):
            if each.kind == "adapter":
                found.setdefault(dtype_name(each.dtype), []).append(part_of(each))
    return found


def _require_known(owner: Any) -> None:
    for kind in type(owner).__mro__:
        if kind.__name__ in _FOREIGN_ENGINES:
            raise UnsupportedError(f"the training back end {_FOREIGN_ENGINES[kind.__name__]} ({type(owner).__name__})")
    if getattr(owner, "_qat_enabled", False):
        raise UnsupportedError("quantisation-aware training (actor.qat.enable=True), whose weights are not the model's")
