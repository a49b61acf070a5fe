# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files, written tensor by tensor as they come; nothing is kept in memory.

Room for the header is left at the start of each file and filled in when the file is complete, padded with spaces as
the format allows. A file ends when it is large enough, when its header is full, or when the next tensor would not be
aligned.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch

from verl.crosscheck.weights.portable.manifest import STORAGE, Entry, dtype_name
from verl.crosscheck.weights.portable.naming import Kind, UnsupportedError

MAX_HEADER_BYTES = 32 << 10
FILE_BYTES = 512 << 20
LENGTH_BYTES = 8
_METADATA_BYTES = 64
_WRITE_BYTES = 16 << 20


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
        self._entries: list[Entry] = []

    def add(self, name: str, kind: Kind, tensor: torch.Tensor) -> None:
        """Write a whole tensor, from any device.

        Raises:
            UnsupportedError: its type cannot be exchanged.
            OSError: the disk did not take it.
        """
        data = tensor.detach().to("cpu").contiguous().view(-1).view(torch.uint8)
        storage_of(name, tensor.dtype)
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
        self._entries.append(Entry(name, kind, dtype_name(tensor.dtype), shape, 0, Path(file.name).name))

    def close(self) -> list[Entry]:
        """End the last file; the tensors that were written, without checksums."""
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


def header_line(dtype: torch.dtype, shape: Sequence[int], start: int, size: int) -> dict[str, Any]:
    """What a header says of a tensor of `size` bytes that starts at byte `start` after the header."""
    return {"dtype": STORAGE[dtype_name(dtype)], "shape": list(shape), "data_offsets": [start, start + size]}


def header_text(lines: Mapping[str, Any]) -> bytes:
    """A header, a multiple of 8 bytes long."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **lines}, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)


def storage_of(name: str, dtype: torch.dtype) -> str:
    """Safetensors' name of a type.

    Raises:
        UnsupportedError: the type cannot be exchanged.
    """
    storage = STORAGE.get(dtype_name(dtype))
    if storage is None:
        raise UnsupportedError(f"{name} is of type {dtype}, which portable weights cannot hold")
    return storage


def write_all(file: BinaryIO, data: memoryview) -> None:
    """All of it: a raw file may take less than offered."""
    while data:
        data = data[file.write(data) :]


def name_files(folder: Path, entries: Sequence[Entry]) -> list[Entry]:
    """Give the files that all ranks wrote their names, in the order of their tensors; the tensors with these.

    Files that were placed have them already.
    """
    files = list(dict.fromkeys(entry.file for entry in entries))
    final = {file: f"model-{i:05}-of-{len(files):05}.safetensors" for i, file in enumerate(files, 1)}
    for file, name in final.items():
        if file != name:
            (folder / file).rename(folder / name)
    return [replace(entry, file=final[entry.file]) for entry in entries]
