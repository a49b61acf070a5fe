# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Reading a folder into a module: each rank for itself, its own slices only, without communication."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import increment_version

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights.portable.checksum import bits, checksum
from verl.crosscheck.weights.portable.folder import Folder
from verl.crosscheck.weights.portable.local_tensors import LocalTensor, local_tensors
from verl.crosscheck.weights.portable.manifest import Entry
from verl.crosscheck.weights.portable.matching import Known, match
from verl.crosscheck.weights.portable.saving import part_of
from verl.crosscheck.weights.portable.sums import PartSum


@dataclass(frozen=True)
class LoadedRank:
    """What one rank did."""

    expected: dict[str, Entry]
    """What each tensor should be, by its name in the module."""
    parts: list[PartSum]
    """Checksums of what it holds."""
    converted: list[str] = field(default_factory=list)
    """Tensors that are of another type here."""
    rounded: list[str] = field(default_factory=list)
    """Those of them whose type here cannot hold every value."""
    not_compared: list[str] = field(default_factory=list)
    """Frozen tensors under adapters whose type here is narrower than the other run's."""


def prepare_module(module: nn.Module, path: Path) -> LoadedRank:
    """Whether a folder can be loaded; changes nothing. `parts` are the frozen tensors under adapters.

    Raises:
        DamagedError, MismatchError, FileNotFoundError, UnsupportedError: it cannot.
    """
    with torch.no_grad():
        return _prepare(local_tensors(module), path)


def _prepare(own: list[LocalTensor], path: Path) -> LoadedRank:
    with Folder(path) as folder:
        expected = match([_known(each) for each in own], folder.manifest, path)
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
    with Folder(path) as folder:
        expected = match([_known(each) for each in own], folder.manifest, path)
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


def _load(held: LocalTensor, entry: Entry, folder: Folder, thread: ThreadPoolExecutor) -> Callable[[], PartSum]:
    local, dtype = held.local, entry.torch_dtype
    direct = local.device.type == "cpu" and local.dtype == dtype
    values = local if direct else torch.empty(local.numel(), dtype=dtype)
    if local.numel():
        target = values.view(torch.uint8).numpy()
        folder.read(entry, held.region.runs(), target)
    if direct:
        increment_version(local)
        return thread.submit(part_of, held).result
    local.copy_(values)
    part = _part_of_copy(held, values, folder)
    return lambda: part


def _part_of_copy(held: LocalTensor, values: torch.Tensor, folder: Folder) -> PartSum:
    """The part's checksum in the type of the file, once it is sure that the values arrived."""
    if held.dtype == values.dtype:
        return part_of(held)
    if not np.array_equal(bits(held.local), bits(values.to(held.dtype))):
        raise DamagedError(f"{held.name}: this rank's memory does not hold what was read from {folder.path}")
    return PartSum(held.name, held.replica, held.region.elements, checksum(values, held.region))


def _known(held: LocalTensor) -> Known:
    return Known(held.name, held.kind, held.dtype, held.shape, held.aliases)


def _as(held: LocalTensor, dtype: torch.dtype) -> LocalTensor:
    return held if held.dtype == dtype else replace(held, local=held.local.to(dtype))


def _rounds(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether the target type cannot hold every value of the source type."""
    return bool(torch.promote_types(source, target) != target)
