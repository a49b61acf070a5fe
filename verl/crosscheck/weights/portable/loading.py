# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Reads a folder into a module. Each rank reads its own slices, without communication.

Before the first byte is loaded, the folder's tensors are matched with those of the module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import increment_version

from verl.crosscheck.errors import DamagedError, MismatchError
from verl.crosscheck.weights.naming import TensorKind
from verl.crosscheck.weights.portable.checksum import PartSum, bits, checksum, part_of
from verl.crosscheck.weights.portable.files import dtype_name
from verl.crosscheck.weights.portable.folder import PortableFolder
from verl.crosscheck.weights.portable.manifest import PortableManifest, TensorEntry
from verl.crosscheck.weights.tensors import LocalTensor, local_tensors


@dataclass(frozen=True)
class LoadedRank:
    """What one rank did to load a folder."""

    expected: dict[str, TensorEntry]
    """What each tensor should be, by its name in the module."""
    parts: list[PartSum]
    """Checksums of what the rank holds."""
    converted: list[str] = field(default_factory=list)
    """Tensors that are of another type here."""
    rounded: list[str] = field(default_factory=list)
    """Those of them whose type here cannot hold every value."""
    not_compared: list[str] = field(default_factory=list)
    """Frozen tensors under adapters whose type here is narrower than the other run's."""


@dataclass(frozen=True)
class ModuleTensor:
    """What a module says of one of its tensors."""

    name: str
    kind: TensorKind
    dtype: torch.dtype
    shape: tuple[int, ...]
    aliases: tuple[str, ...] = ()


def prepare_module(module: nn.Module, path: Path) -> LoadedRank:
    """Find out whether a folder can be loaded; change nothing. `parts` are the frozen tensors under adapters.

    Raises:
        DamagedError, MismatchError, FileNotFoundError, UnsupportedError: it cannot.
    """
    with torch.no_grad():
        return _prepare(local_tensors(module), path)


def _prepare(own: list[LocalTensor], path: Path) -> LoadedRank:
    with PortableFolder(path) as folder:
        expected = match([_description(each) for each in own], folder.manifest, path)
    bases = [each for each in own if each.kind == "base"]
    comparable = [each for each in bases if not _rounds(expected[each.name].torch_dtype, each.dtype)]
    return LoadedRank(
        {each.name: expected[each.name] for each in comparable},
        [part_of(_as(each, expected[each.name].torch_dtype)) for each in comparable],
        not_compared=[each.name for each in bases if each not in comparable],
    )


def load_module(module: nn.Module, path: Path) -> LoadedRank:
    """Load a folder's tensors over the module's.

    Raises:
        DamagedError, MismatchError, FileNotFoundError, UnsupportedError: as `prepare_module`, before anything is
            changed; DamagedError also if a file is shortened meanwhile or the memory does not take what was read.
    """
    with torch.no_grad():
        return _load_all(local_tensors(module), path)


def _load_all(own: list[LocalTensor], path: Path) -> LoadedRank:
    with PortableFolder(path) as folder:
        expected = match([_description(each) for each in own], folder.manifest, path)
        own = [each for each in own if each.kind != "base"]
        with ThreadPoolExecutor(1) as thread:  # one tensor's checksum is computed while the next one is read
            parts = [part() for part in [_load(each, expected[each.name], folder, thread) for each in own]]
    converted = [each for each in own if each.dtype != expected[each.name].torch_dtype]
    return LoadedRank(
        {each.name: expected[each.name] for each in own},
        parts,
        [each.name for each in converted],
        [each.name for each in converted if _rounds(expected[each.name].torch_dtype, each.dtype)],
    )


def _load(
    own: LocalTensor, entry: TensorEntry, folder: PortableFolder, thread: ThreadPoolExecutor
) -> Callable[[], PartSum]:
    """Read one tensor's slice; return what gives its checksum."""
    local, dtype = own.local, entry.torch_dtype
    direct = local.device.type == "cpu" and local.dtype == dtype
    values = local if direct else torch.empty(local.numel(), dtype=dtype)
    if local.numel():
        target = values.view(torch.uint8).numpy()
        folder.read(entry, own.region.runs(), target)
    if direct:
        increment_version(local)
        return thread.submit(part_of, own).result
    local.copy_(values)
    part = _part_of_copy(own, values, folder)
    return lambda: part


def _part_of_copy(own: LocalTensor, values: torch.Tensor, folder: PortableFolder) -> PartSum:
    """Return the part's checksum in the type of the file, after a check that the values arrived."""
    if own.dtype == values.dtype:
        return part_of(own)
    if not np.array_equal(bits(own.local), bits(values.to(own.dtype))):
        raise DamagedError(f"{own.name}: this rank's memory does not hold what was read from {folder.path}")
    return PartSum(own.name, own.replica, own.region.elements, checksum(values, own.region))


def _description(own: LocalTensor) -> ModuleTensor:
    return ModuleTensor(own.name, own.kind, own.dtype, own.shape, own.aliases)


def _as(own: LocalTensor, dtype: torch.dtype) -> LocalTensor:
    return own if own.dtype == dtype else replace(own, local=own.local.to(dtype))


def _rounds(source: torch.dtype, target: torch.dtype) -> bool:
    """Return whether the target type cannot hold every value of the source type."""
    return bool(torch.promote_types(source, target) != target)


def match(own: Sequence[ModuleTensor], manifest: PortableManifest, path: Path) -> dict[str, TensorEntry]:
    """Return the folder's tensor for each of the module's, by the module's name; frozen bases included.

    Raises:
        MismatchError: they are not the same tensors; names the first one of each kind of difference.
    """
    exchanged = [each for each in own if each.kind != "base"]
    found = {each.name: _entries_of(each, manifest) for each in exchanged}
    used = {entry.name for entries in found.values() for entry in entries}
    problems = [
        _list("the folder lacks {} of this run's tensors", [name for name, entries in found.items() if not entries]),
        _list("this run's actor lacks {} of the folder's tensors", [n for n in manifest.tensors if n not in used]),
        _differences(each for each in exchanged if found[each.name] and _differ(each, found[each.name])),
        *_base_problems(own, manifest.left_out),
    ]
    for each in exchanged:
        if not any(problems) and (problem := _wrong(each, found[each.name][0])):
            problems.append(problem)
    if any(problems):
        raise MismatchError(
            f"the weights in {path} are not those of this run's actor, and nothing of them was loaded: "
            + "; ".join(filter(None, problems))
            + _advice(exchanged, manifest)
        )
    bases = {each.name: manifest.left_out[each.name] for each in own if each.kind == "base"}
    return {name: entries[0] for name, entries in found.items()} | bases


def _entries_of(each: ModuleTensor, manifest: PortableManifest) -> list[TensorEntry]:
    """Return the folder's tensors under any of the names that one of the module's has."""
    names = dict.fromkeys(manifest.tied.get(name, name) for name in (each.name, *each.aliases))
    return [manifest.tensors[name] for name in names if name in manifest.tensors]


def _differ(each: ModuleTensor, entries: Sequence[TensorEntry]) -> bool:
    return len({(entry.dtype, entry.shape, entry.checksum) for entry in entries}) > 1


def _differences(several: Iterable[ModuleTensor]) -> str:
    for each in several:
        return (
            f"{each.name} and {', '.join(each.aliases)} are one tensor in this run (tied) and have different values "
            "in the folder. Set tie_word_embeddings alike on both sides"
        )
    return ""


def _base_problems(own: Sequence[ModuleTensor], left_out: Mapping[str, TensorEntry]) -> list[str]:
    bases = {each.name: each for each in own if each.kind == "base"}
    text = "{} frozen tensors under adapters are only in "
    problems = [
        _list(text + "this run", [name for name in bases if name not in left_out]),
        _list(text + "the other run", [name for name in left_out if name not in bases]),
    ]
    if any(problems):
        return problems
    return [problem for name in bases if (problem := _wrong(bases[name], left_out[name]))][:1]


def _wrong(each: ModuleTensor, entry: TensorEntry) -> str:
    if each.shape != entry.shape:
        return f"{each.name} has shape {list(each.shape)} here, and {list(entry.shape)} in the folder"
    if each.dtype.is_floating_point != entry.torch_dtype.is_floating_point:
        return f"{each.name} is of type {dtype_name(each.dtype)} here, and {entry.dtype} in the folder"
    return ""


def _list(text: str, names: Sequence[str]) -> str:
    return f"{text.format(len(names))} (the first: {names[0]})" if names else ""


def _advice(own: Sequence[ModuleTensor], manifest: PortableManifest) -> str:
    here = any(each.kind == "adapter" for each in own)
    there = any(entry.kind == "adapter" for entry in manifest.tensors.values())
    if here == there:
        return ". Both runs need the same model"
    one, other = ("This run trains", "the other does not") if here else ("The other run trains", "this one does not")
    return f". {one} LoRA adapters and {other}: set actor_rollout_ref.model.lora_rank alike on both sides"
