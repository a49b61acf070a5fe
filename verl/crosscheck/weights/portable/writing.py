# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Writes safetensors files in two ways.

`FolderWriter` writes whole tensors one after the other and keeps nothing in memory. It leaves room for the header at
the start of each file, and fills it in when the file is complete, padded with spaces as the format allows.

`OffsetWriter` writes the parts of one rank into files that all ranks write together, at the places of a `FilePlan`.
That is only for ranks on one host: the page caches of several hosts may overwrite each other's parts where these share
a page.

Both end a file when it is large enough, when its header is full, or when the next tensor would not be aligned.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import torch

from verl.crosscheck.exchange.record.container import LENGTH_BYTES, write_all
from verl.crosscheck.weights.naming import TensorKind
from verl.crosscheck.weights.portable.files import (
    OpenFiles,
    dtype_name,
    file_name,
    header_line,
    header_text,
    require_storable,
)
from verl.crosscheck.weights.portable.manifest import TensorEntry
from verl.crosscheck.weights.tensors import LocalTensor

MAX_HEADER_BYTES = 32 << 10
FILE_BYTES = 512 << 20
_METADATA_BYTES = 64
_WRITE_BYTES = 16 << 20
_PLACE_BYTES = 64 << 20


class FolderWriter:
    """Writes tensors into files of a folder, which have names of their own until `name_files`.

    Args:
        folder: an existing one.
        rank: of this process, for the files' names.
        file_bytes: a file is ended before a tensor that would make it larger.
    """

    def __init__(self, folder: Path, rank: int = 0, file_bytes: int = FILE_BYTES) -> None:
        self._folder = folder
        self._rank = rank
        self._file_bytes = file_bytes
        self._file: BinaryIO | None = None
        self._header: dict[str, Any] = {}
        self._header_bytes = self._at = self._files = 0
        self._entries: list[TensorEntry] = []

    def add(self, name: str, kind: TensorKind, tensor: torch.Tensor) -> None:
        """Write a whole tensor, from any device.

        Raises:
            UnsupportedError: its type cannot be exchanged.
            OSError: the disk did not take it.
        """
        data = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
        require_storable(name, tensor.dtype)
        needed = len(json.dumps({name: header_line(tensor.dtype, tensor.shape, self._at, data.numel())}))
        full = self._at and self._at + data.numel() > self._file_bytes
        if full or self._header_bytes + needed > MAX_HEADER_BYTES - _METADATA_BYTES or self._at % tensor.element_size():
            self._end_file()
        file = self._file or self._begin_file()
        self._header[name] = header_line(tensor.dtype, tensor.shape, self._at, data.numel())
        self._header_bytes += needed
        for block in data.split(_WRITE_BYTES):
            write_all(file, memoryview(block.numpy()))
        self._at += data.numel()
        shape = tuple(tensor.shape)
        self._entries.append(TensorEntry(name, kind, dtype_name(tensor.dtype), shape, file=Path(file.name).name))

    def close(self) -> list[TensorEntry]:
        """End the last file; return the tensors that were written, without checksums."""
        self._end_file()
        return self._entries

    def _begin_file(self) -> BinaryIO:
        self._files += 1
        self._file = (self._folder / f"part-{self._rank:05}-{self._files:05}").open("xb", buffering=0)
        self._file.seek(LENGTH_BYTES + MAX_HEADER_BYTES)
        return self._file

    def _end_file(self) -> None:
        if self._file is not None:
            self._file.seek(0)
            head = MAX_HEADER_BYTES.to_bytes(LENGTH_BYTES, "little") + header_text(self._header).ljust(MAX_HEADER_BYTES)
            write_all(self._file, memoryview(head))
            self._file.close()
        self._file, self._header, self._header_bytes, self._at = None, {}, 0, 0


def name_files(folder: Path, entries: Sequence[TensorEntry]) -> list[TensorEntry]:
    """Give the files that all ranks wrote their names, in the order of their tensors; return the tensors with these.

    Files that were written at offsets have them already.
    """
    files = list(dict.fromkeys(entry.file for entry in entries))
    final = {file: file_name(number, len(files)) for number, file in enumerate(files, 1)}
    for file, name in final.items():
        if file != name:
            (folder / file).rename(folder / name)
    return [msgspec.structs.replace(entry, file=final[entry.file]) for entry in entries]


@dataclass(frozen=True)
class FilePlan:
    """Where everything will lie; the same on every rank."""

    entries: list[TensorEntry]
    """The tensors, without checksums."""
    starts: list[int]
    """Start of each tensor in its file, in bytes."""
    heads: dict[str, bytes]
    """Length and header of each file."""
    sizes: dict[str, int]
    """Bytes of each file."""


def plan(tensors: Sequence[LocalTensor], file_bytes: int) -> FilePlan:
    """Return where tensors will lie in files of about this size."""
    headers: list[dict[str, Any]] = []
    spots: list[tuple[int, int]] = []
    at = header_bytes = 0
    for each in tensors:
        size = each.size_bytes
        line = header_line(each.dtype, each.shape, at, size)
        needed = len(json.dumps({each.name: line}))
        full = at and at + size > file_bytes
        if not headers or full or at % each.dtype.itemsize or header_bytes + needed > MAX_HEADER_BYTES:
            headers.append({})
            at = header_bytes = 0
        headers[-1][each.name] = header_line(each.dtype, each.shape, at, size)
        spots.append((len(headers), at))
        at, header_bytes = at + size, header_bytes + needed
    heads, sizes = {}, {}
    for number, header in enumerate(headers, 1):
        text, name = header_text(header), file_name(number, len(headers))
        heads[name] = len(text).to_bytes(LENGTH_BYTES, "little") + text
        sizes[name] = len(heads[name]) + max(line["data_offsets"][1] for line in header.values())
    places = [(file_name(number, len(headers)), start) for number, start in spots]
    entries = [
        TensorEntry(each.name, each.kind, dtype_name(each.dtype), each.shape, file=file)
        for each, (file, _) in zip(tensors, places, strict=True)
    ]
    return FilePlan(entries, [len(heads[file]) + start for file, start in places], heads, sizes)


class OffsetWriter:
    """Writes this rank's parts at their places.

    Args:
        folder: an existing one.
        planned: what will lie where.
    """

    def __init__(self, folder: Path, planned: FilePlan) -> None:
        self._folder = folder
        self._plan = planned
        self._files = OpenFiles(self._open)
        self._made: set[str] = set()

    def __enter__(self) -> OffsetWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def write_heads(self) -> None:
        """Write all headers and set the files' sizes; for one rank."""
        for name, head in self._plan.heads.items():
            number = self._files[name].fileno()
            write_at(number, memoryview(head), 0)
            os.ftruncate(number, self._plan.sizes[name])

    def write(self, index: int, tensor: LocalTensor) -> None:
        """Write this rank's part of a tensor."""
        if not tensor.local.numel():
            return
        file = self._files[self._plan.entries[index].file].fileno()
        data = memoryview(tensor.local.to("cpu").view(torch.uint8).numpy())
        at, itemsize = 0, tensor.dtype.itemsize
        for first, count in tensor.region.runs():
            size = count * itemsize
            write_at(file, data[at : at + size], self._plan.starts[index] + first * itemsize)
            at += size

    def _open(self, name: str) -> FileIO:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
        if name not in self._made:  # another rank may have made it
            flags |= os.O_CREAT
            self._made.add(name)
        return FileIO(os.open(self._folder / name, flags, 0o666), "wb")


def write_at(file: int, data: memoryview, offset: int) -> None:
    """Write all of `data`, whatever the system takes at once."""
    while data:
        count = os.pwrite(file, data[:_PLACE_BYTES], offset)
        data, offset = data[count:], offset + count
