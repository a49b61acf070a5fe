# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Writing a module's tensors: all ranks gather them one by one, and global rank 0 writes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from verl.crosscheck.portable.checksum import checksum
from verl.crosscheck.portable.held import Held, held_tensors
from verl.crosscheck.portable.manifest import Entry, dtype_name
from verl.crosscheck.portable.naming import Kind
from verl.crosscheck.portable.sums import PartSum
from verl.crosscheck.portable.writing import FolderWriter, storage_of

Whole = Callable[[], torch.Tensor]


@dataclass(frozen=True)
class SavedRank:
    """What one rank did."""

    entries: list[Entry] = field(default_factory=list)
    """Tensors that it wrote; none but on rank 0."""
    left_out: list[Entry] = field(default_factory=list)
    """Frozen tensors under adapters, without checksums."""
    parts: list[PartSum] = field(default_factory=list)
    """Its parts of their checksums."""
    tied: dict[str, str] = field(default_factory=dict)


def save_module(module: nn.Module, folder: Path) -> SavedRank:
    """Write a module into an existing folder; all ranks must call it together.

    Raises:
        UnsupportedError: a wrapper or tensor of an unknown kind; on every rank, before anything is gathered.
        OSError: on rank 0, after everything was gathered: the disk did not take it.
    """
    with torch.no_grad():
        return _save(held_tensors(module), folder)


def _save(own: list[Held], folder: Path) -> SavedRank:
    for each in own:
        storage_of(each.name, each.dtype)
    sent = [each for each in own if each.kind != "base"]
    bases = [each for each in own if each.kind == "base"]
    entries = write_tensors(((each.name, each.kind, each.whole) for each in sent), folder)
    return SavedRank(
        entries,
        [Entry(each.name, each.kind, dtype_name(each.dtype), each.shape, 0) for each in bases],
        [part_of(each) for each in bases],
        {alias: each.name for each in sent for alias in each.aliases},
    )


def write_tensors(tensors: Iterable[tuple[str, Kind, Whole]], folder: Path) -> list[Entry]:
    """Gather tensors in turn, and on rank 0 write each while the next one is gathered.

    An error of rank 0's disk is raised at the end, so that no other rank is left waiting for it.
    """
    if dist.is_initialized() and dist.get_rank() != 0:
        for _, _, whole in tensors:
            whole()
        return []
    writer = FolderWriter(folder)
    with ThreadPoolExecutor(1) as thread:
        before: Future[None] | None = None
        error: BaseException | None = None
        for name, kind, whole in tensors:
            tensor = whole().detach().to("cpu")
            error = error or (before.exception() if before else None)
            before = None if error else thread.submit(writer.add, name, kind, tensor)
            del tensor
        error = error or (before.exception() if before else None)
    if error:
        raise error
    return writer.close()


def part_of(held: Held) -> PartSum:
    """A rank's part of a tensor's checksum."""
    return PartSum(held.name, held.replica, held.region.elements, checksum(held.local, held.region))
