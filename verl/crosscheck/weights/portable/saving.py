# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Writes a module's tensors.

On one host all ranks write together, each its own parts. On several hosts, some ranks gather and write whole tensors,
each into files of its own: hosts that write into one file may overwrite each other's parts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from verl.crosscheck.weights.naming import TensorKind
from verl.crosscheck.weights.portable.checksum import PartSum, part_of
from verl.crosscheck.weights.portable.files import dtype_name, require_storable
from verl.crosscheck.weights.portable.gathering import Gathering
from verl.crosscheck.weights.portable.manifest import TensorEntry
from verl.crosscheck.weights.portable.writing import FILE_BYTES, FolderWriter, OffsetWriter, plan
from verl.crosscheck.weights.tensors import LocalTensor, local_tensors

MAX_WRITERS = 16


@dataclass(frozen=True)
class SavedRank:
    """What one rank did to save a module."""

    entries: list[TensorEntry] = field(default_factory=list)
    """Tensors that it wrote, without checksums."""
    left_out: list[TensorEntry] = field(default_factory=list)
    """Frozen tensors under adapters, without checksums."""
    parts: list[PartSum] = field(default_factory=list)
    """Checksums of what it holds."""
    tied: dict[str, str] = field(default_factory=dict)


def save_module(module: nn.Module, folder: Path, file_bytes: int = FILE_BYTES) -> SavedRank:
    """Write a module into an existing folder, in files of this size; all ranks must call it together.

    Raises:
        UnsupportedError: a wrapper or tensor of an unknown kind; on every rank, before anything is gathered.
        OSError: the disk did not take it; on a rank that writes, after everything was gathered.
    """
    with torch.no_grad():
        return _save(local_tensors(module), folder, file_bytes)


def _save(own: list[LocalTensor], folder: Path, file_bytes: int) -> SavedRank:
    for each in own:
        require_storable(each.name, each.dtype)
    sent = [each for each in own if each.kind != "base"]
    bases = [each for each in own if each.kind == "base"]
    gathering = Gathering([*sent, *bases])
    entries, parts = (_place if gathering.one_host else _gather)(sent, gathering, folder, file_bytes)
    parts += [part_of(each) for i, each in enumerate(bases, len(sent)) if gathering.contributes(i)]
    return SavedRank(
        entries,
        [TensorEntry(each.name, each.kind, dtype_name(each.dtype), each.shape) for each in bases],
        parts,
        {alias: each.name for each in sent for alias in each.aliases},
    )


def _place(
    sent: list[LocalTensor], gathering: Gathering, folder: Path, file_bytes: int
) -> tuple[list[TensorEntry], list[PartSum]]:
    """Write this rank's parts. Return all tensors on rank 0 and none elsewhere, and this rank's checksums."""
    planned, parts = plan(sent, file_bytes), []
    with OffsetWriter(folder, planned) as writer:
        if gathering.rank == 0:
            writer.write_heads()
        for index, each in enumerate(sent):
            if gathering.contributes(index):
                writer.write(index, each)
                parts.append(part_of(each))
    return planned.entries if gathering.rank == 0 else [], parts


def _gather(
    sent: list[LocalTensor], gathering: Gathering, folder: Path, file_bytes: int
) -> tuple[list[TensorEntry], list[PartSum]]:
    """Gather whole tensors for the ranks that write. Return those that this rank wrote, and its checksums."""
    parts = []
    shares = shares_of([each.size_bytes for each in sent], file_bytes)
    with BehindWriter(folder, file_bytes) as writer:
        for step in range(max(map(len, shares.values()))):
            wanted = {rank: share[step] for rank, share in shares.items() if step < len(share)}
            whole = gathering.gather(wanted)
            if whole is not None:
                index = wanted[gathering.rank]
                writer.add(sent[index].name, sent[index].kind, whole)
                del whole
            parts += [part_of(sent[index]) for index in wanted.values() if gathering.contributes(index)]
    return writer.entries, parts


def shares_of(sizes: Sequence[int], file_bytes: int) -> dict[int, list[int]]:
    """Return which tensors each writing rank writes: neighbours, in shares of about the same size.

    There are as many writing ranks as files to write, at most `MAX_WRITERS`.

    Args:
        sizes: bytes of each tensor.
        file_bytes: size of a file.
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    writers = max(1, min(ranks, MAX_WRITERS, math.ceil(sum(sizes) / file_bytes)))
    shares: dict[int, list[int]] = {number * ranks // writers: [] for number in range(writers)}
    order, before = list(shares), 0
    for index, size in enumerate(sizes):
        middle = before + size / 2
        shares[order[min(writers - 1, int(middle * writers / max(1, sum(sizes))))]].append(index)
        before += size
    return shares


class BehindWriter:
    """Writes each tensor in a thread, while the next one is gathered.

    An error of the disk is raised at the end, so that no other rank waits for this one without end.
    """

    def __init__(self, folder: Path, file_bytes: int = FILE_BYTES) -> None:
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.entries: list[TensorEntry] = []
        self._writer = FolderWriter(folder, self.rank, file_bytes)
        self._thread = ThreadPoolExecutor(1)
        self._before: Future[None] | None = None
        self._error: BaseException | None = None

    def __enter__(self) -> BehindWriter:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._wait()
        self._thread.shutdown()
        if error is None and self._error is not None:
            raise self._error
        self.entries = self._writer.close()

    def add(self, name: str, kind: TensorKind, tensor: torch.Tensor) -> None:
        """Start to write a whole tensor, once the one before is written."""
        values = tensor.detach().to("cpu")
        self._wait()
        if self._error is None:
            self._before = self._thread.submit(self._writer.add, name, kind, values)

    def _wait(self) -> None:
        if self._before is not None:
            self._error = self._error or self._before.exception()
            self._before = None
