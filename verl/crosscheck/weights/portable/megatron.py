# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Saves and loads Megatron's weights through the bridge that upstream uses between them and Hugging Face's.

The bridge gathers and splits whole tensors; a rank's slices are not read here. Megatron itself is not imported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights import regions
from verl.crosscheck.weights.calls import model_of
from verl.crosscheck.weights.naming import UnsupportedError
from verl.crosscheck.weights.portable.checksum import PartSum, bits, checksum
from verl.crosscheck.weights.portable.folder import PortableFolder
from verl.crosscheck.weights.portable.loading import LoadedRank, ModuleTensor, match
from verl.crosscheck.weights.portable.manifest import TensorEntry
from verl.crosscheck.weights.portable.saving import BehindWriter, SavedRank


def require_supported(owner: Any) -> None:
    """Raise UnsupportedError with the reason if this legacy worker or engine cannot be exchanged."""
    if getattr(owner, "bridge", None) is None:
        raise UnsupportedError("Megatron without a bridge; set actor_rollout_ref.actor.megatron.use_mbridge=True")
    if getattr(owner, "peft_cls", None) is not None:
        raise UnsupportedError("LoRA with Megatron")
    optimizer = _optimizer(owner)
    if optimizer is not None and not hasattr(optimizer, "reload_model_params"):
        raise UnsupportedError(
            f"Megatron's {type(optimizer).__name__}, which cannot take loaded weights over into its own copies"
        )


def save(owner: Any, folder: Path) -> SavedRank:
    """Do as `saving.save_module`."""
    require_supported(owner)
    with _on_device(owner), torch.no_grad():
        if not _is_first():
            for _ in _export(owner):
                pass
            return SavedRank()
        parts = []
        with BehindWriter(folder) as writer:
            for name, tensor in _export(owner):
                writer.add(name, "parameter", tensor)
                parts.append(PartSum(name, 0, tensor.numel(), checksum(tensor, regions.whole(tensor.shape))))
        return SavedRank(writer.entries, parts=parts)


def prepare(owner: Any, path: Path) -> LoadedRank:
    """Do as `loading.prepare_module`. Exports the weights once, to learn their names and shapes."""
    require_supported(owner)
    with PortableFolder(path) as folder, _on_device(owner), torch.no_grad():
        own = [ModuleTensor(name, "parameter", tensor.dtype, tuple(tensor.shape)) for name, tensor in _export(owner)]
        match(own, folder.manifest, path)
    return LoadedRank({}, [])


def load(owner: Any, path: Path) -> LoadedRank:
    """Do as `loading.load_module`; what was loaded is exported again, and rank 0 compares."""
    require_supported(owner)
    with PortableFolder(path) as folder, _on_device(owner), torch.no_grad():
        bridge = owner.bridge
        into = bridge.load_weights if getattr(owner, "vanilla_bridge", True) else bridge.load_hf_weights
        into(model_of(owner), str(path))
        _refresh_optimizer(owner)
        return _compare(owner, folder)


def _compare(owner: Any, folder: PortableFolder) -> LoadedRank:
    done = LoadedRank({}, [])
    for name, tensor in _export(owner):
        known = ModuleTensor(name, "parameter", tensor.dtype, tuple(tensor.shape))
        entry = folder.manifest.tensors[folder.manifest.tied.get(name, name)]
        done.expected[name] = entry
        if known.dtype != entry.torch_dtype:
            done.converted.append(name)
            if torch.promote_types(known.dtype, entry.torch_dtype) != known.dtype:
                done.rounded.append(name)
        if _is_first():
            done.parts.append(_part(known, tensor, entry, folder))
    return done


def _part(known: ModuleTensor, tensor: torch.Tensor, entry: TensorEntry, folder: PortableFolder) -> PartSum:
    everything = regions.whole(known.shape)
    if known.dtype == entry.torch_dtype:
        return PartSum(known.name, 0, tensor.numel(), checksum(tensor, everything))
    read = torch.empty(entry.elements, dtype=entry.torch_dtype)
    folder.read(entry, everything.runs(), read.view(torch.uint8).numpy())
    if not np.array_equal(bits(read.to(known.dtype)), bits(tensor)):
        raise DamagedError(f"{known.name}: Megatron does not hold what the bridge loaded from {folder.path}")
    return PartSum(known.name, 0, entry.elements, checksum(read, everything))


def _is_first() -> bool:
    return not dist.is_initialized() or int(dist.get_rank()) == 0


def _export(owner: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield whole tensors under Hugging Face names; all ranks must go through it together."""
    bridge = owner.bridge
    export = bridge.export_weights if getattr(owner, "vanilla_bridge", True) else bridge.export_hf_weights
    yield from export(model_of(owner))


def _optimizer(owner: Any) -> Any:
    return getattr(owner, "actor_optimizer", None) or getattr(owner, "optimizer", None)


@contextmanager
def _on_device(owner: Any) -> Iterator[None]:
    """Keep the parameters on the device meanwhile, if upstream has put them aside in main memory."""
    if not getattr(owner, "_is_offload_param", False):
        yield
        return
    from verl.utils.megatron_utils import load_megatron_model_to_gpu, offload_megatron_model_to_cpu

    load_megatron_model_to_gpu(model_of(owner), load_grad=False)
    try:
        yield
    finally:
        offload_megatron_model_to_cpu(model_of(owner))


def _refresh_optimizer(owner: Any) -> None:
    """Give the optimizer the loaded weights: it keeps copies, from which the next step would restore the old ones."""
    optimizer = _optimizer(owner)
    if optimizer is None:
        return
    if not getattr(owner, "_is_offload_optimizer", False):
        optimizer.reload_model_params()
        return
    from verl.utils.megatron_utils import load_megatron_optimizer, offload_megatron_optimizer

    load_megatron_optimizer(optimizer)
    optimizer.reload_model_params()
    offload_megatron_optimizer(optimizer)
