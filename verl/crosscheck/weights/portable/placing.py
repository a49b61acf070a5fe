# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Files that all ranks write together, each its own parts at their places. Nothing is sent or kept.

Only for ranks on one host: page caches of several hosts may overwrite each other's parts where these share a page.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import torch

from verl.crosscheck.weights.portable.local_tensors import LocalTensor
from verl.crosscheck.weights.portable.manifest import Entry, dtype_name
from verl.crosscheck.weights.portable.open_files import OpenFiles
from verl.crosscheck.weights.portable.writing import LENGTH_BYTES, MAX_HEADER_BYTES, header_line, header_text

_WRITE_BYTES = 64 << 20


@dataclass(frozen=True)
class FilePlan:
    """Where everything will lie; the same on every rank."""

    entries: list[Entry]
    """The tensors, without checksums."""
    starts: list[int]
    """Of each tensor in its file, in bytes."""
    heads: dict[str, bytes]
    """Length and header of each file."""
    sizes: dict[str, int]
    """Bytes of each file."""


def plan(sent: Sequence[LocalTensor], file_bytes: int) -> FilePlan:
    """A file ends before a tensor that would make it larger than this, or would not be aligned."""
    files: list[dict[str, Any]] = []
    spots: list[tuple[int, int]] = []
    at = header_bytes = 0
    for held in sent:
        size = held.region.whole_elements * held.dtype.itemsize
        line = header_line(held.dtype, held.shape, at, size)
        needed = len(json.dumps({held.name: line}))
        full = at and at + size > file_bytes
        if not files or full or at % held.dtype.itemsize or header_bytes + needed > MAX_HEADER_BYTES:
            files.append({})
            at = header_bytes = 0
        files[-1][held.name] = header_line(held.dtype, held.shape, at, size)
        spots.append((len(files), at))
        at, header_bytes = at + size, header_bytes + needed
    names = [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    heads, sizes = {}, {}
    for name, header in zip(names, files, strict=True):
        text = header_text(header)
        heads[name] = len(text).to_bytes(LENGTH_BYTES, "little") + text
        sizes[name] = len(heads[name]) + max(line["data_offsets"][1] for line in header.values())
    places = [(names[number - 1], start) for number, start in spots]
    entries = [
        Entry(each.name, each.kind, dtype_name(each.dtype), each.shape, 0, file)
        for each, (file, _) in zip(sent, places, strict=True)
    ]
    return FilePlan(entries, [len(heads[file]) + start for file, start in places], heads, sizes)


class OffsetWriter:
    """Writes parts at their places.

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
        """Headers, and the files' sizes; for one rank."""
        for name, head in self._plan.heads.items():
            number = self._files[name].fileno()
            write_at(number, memoryview(head), 0)
            os.ftruncate(number, self._plan.sizes[name])

    def write(self, index: int, held: LocalTensor) -> None:
        """This rank's part of a tensor."""
        if not held.local.numel():
            return
        file = self._files[self._plan.entries[index].file].fileno()
        data = memoryview(held.local.to("cpu").view(torch.uint8).numpy())
        at, itemsize = 0, held.dtype.itemsize
        for first, count in held.region.runs():
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
    """All of it, whatever the system takes at once."""
    while data:
        count = os.pwrite(file, data[:_WRITE_BYTES], offset)
        data, offset = data[count:], offset + count
