# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Both ways through the bridge with which upstream takes Megatron's weights to Hugging Face names and back.

Not the slices of a rank but whole tensors: the bridge gathers and splits them. Megatron itself is not imported here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights.portable import regions
from verl.crosscheck.weights.portable.checksum import bits, checksum
from verl.crosscheck.weights.portable.folder import Folder
from verl.crosscheck.weights.portable.loading import LoadedRank
from verl.crosscheck.weights.portable.manifest import Entry
from verl.crosscheck.weights.portable.matching import Known, match
from verl.crosscheck.weights.portable.naming import UnsupportedError
from verl.crosscheck.weights.portable.saving import BehindWriter, SavedRank
from verl.crosscheck.weights.portable.sums import PartSum


def is_megatron(owner: Any) -> bool:
    """Whether a legacy worker or an engine trains with Megatron."""
    return _chunks(owner) is not None


def require_supported(owner: Any) -> None:
    """Raises UnsupportedError with the reason if it cannot be exchanged."""
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
    """As `saving.save_module`."""
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
    """As `loading.prepare_module`. Exports the weights once, to learn their names and shapes."""
    require_supported(owner)
    with Folder(path) as folder, _on_device(owner), torch.no_grad():
        own = [Known(name, "parameter", tensor.dtype, tuple(tensor.shape)) for name, tensor in _export(owner)]
        match(own, folder.manifest, path)
    return LoadedRank({}, [])


def load(owner: Any, path: Path) -> LoadedRank:
    """As `loading.load_module`; what was loaded is exported again, and rank 0 compares."""
    require_supported(owner)
    with Folder(path) as folder, _on_device(owner), torch.no_grad():
        bridge = owner.bridge
        into = bridge.load_weights if getattr(owner, "vanilla_bridge", True) else bridge.load_hf_weights
        into(_chunks(owner), str(path))
        _refresh_optimizer(owner)
        return _compare(owner, folder)


def _compare(owner: Any, folder: Folder) -> LoadedRank:
    done = LoadedRank({}, [])
    for name, tensor in _export(owner):
        known = Known(name, "parameter", tensor.dtype, tuple(tensor.shape))
        entry = folder.manifest.tensors[folder.manifest.tied.get(name, name)]
        done.expected[name] = entry
        if known.dtype != entry.torch_dtype:
            done.converted.append(name)
            if torch.promote_types(known.dtype, entry.torch_dtype) != known.dtype:
                done.rounded.append(name)
        if _is_first():
            done.parts.append(_part(known, tensor, entry, folder))
    return done


def _part(known: Known, tensor: torch.Tensor, entry: Entry, folder: Folder) -> PartSum:
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
    """Whole tensors under Hugging Face names; all ranks must go through it together."""
    bridge = owner.bridge
    export = bridge.export_weights if getattr(owner, "vanilla_bridge", True) else bridge.export_hf_weights
    yield from export(_chunks(owner))


def _chunks(owner: Any) -> Sequence[Any] | None:
    """The model's chunks, one for each virtual pipeline stage; None if this is not Megatron."""
    for name in ("actor_module", "module"):
        chunks = getattr(owner, name, None)
        if isinstance(chunks, list | tuple | torch.nn.ModuleList):
            return chunks
    return None


def _optimizer(owner: Any) -> Any:
    return getattr(owner, "actor_optimizer", None) or getattr(owner, "optimizer", None)


@contextmanager
def _on_device(owner: Any) -> Iterator[None]:
    """With the parameters on the device, if upstream has put them aside in main memory."""
    if not getattr(owner, "_is_offload_param", False):
        yield
        return
    from verl.utils.megatron_utils import load_megatron_model_to_gpu, offload_megatron_model_to_cpu

    load_megatron_model_to_gpu(_chunks(owner), load_grad=False)
    try:
        yield
    finally:
        offload_megatron_model_to_cpu(_chunks(owner))


def _refresh_optimizer(owner: Any) -> None:
    """Megatron's optimizer keeps its own copies of the weights, from which the next step would restore the old ones."""
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
