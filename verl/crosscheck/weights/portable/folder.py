# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of portable weights, opened for reading. Nothing in it is trusted: every size and name is checked first.

Bytes are read with `pread`, straight into the memory that they are for. A memory map would kill the process if the
file were shortened under it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.record.container import (
    LENGTH_BYTES,
    MAX_HEADER_BYTES,
    MalformedError,
    json_object,
    open_file,
)
from verl.crosscheck.weights.portable.files import OpenFiles, header_line
from verl.crosscheck.weights.portable.manifest import PortableManifest, TensorEntry, read_manifest

_READ_BYTES = 64 << 20


class PortableFolder:
    """An open folder of portable weights.

    Raises:
        DamagedError: it is not what was written; says which file, and what is wrong.
        FileNotFoundError: a file is missing.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = OpenFiles(self._open)
        self._checked: dict[str, tuple[int, int, int]] = {}
        self._starts: dict[str, int] = {}
        try:
            self.manifest: PortableManifest = read_manifest(path)
            for name in dict.fromkeys(entry.file for entry in self.manifest.tensors.values()):
                self._check(name)
        except MalformedError as error:
            self._files.close()
            raise self._damaged(error) from None
        except BaseException:
            self._files.close()
            raise

    def __enter__(self) -> PortableFolder:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._files.close()

    def read(self, entry: TensorEntry, runs: Iterable[tuple[int, int]], into: npt.NDArray[np.uint8]) -> None:
        """Read parts of a tensor, one after the other.

        Args:
            entry: the tensor.
            runs: first element and number of elements of each part.
            into: as many bytes as they have together.
        """
        file, start = self._files[entry.file], self._starts[entry.name]
        itemsize = entry.torch_dtype.itemsize
        view, at = memoryview(into.data), 0
        for first, count in runs:
            at = self._read_run(file, start + first * itemsize, view, at, at + count * itemsize, entry)
        if at != len(view):
            raise ValueError(f"{entry.name}: {len(view)} bytes wanted and {at} read")

    def _read_run(self, file: BinaryIO, offset: int, view: memoryview, at: int, end: int, entry: TensorEntry) -> int:
        while at < end:
            found = os.preadv(file.fileno(), [view[at : min(end, at + _READ_BYTES)]], offset)
            if not found:
                raise self._damaged(f"{entry.file} was shortened while tensor {entry.name!r} was read")
            at, offset = at + found, offset + found
        return end

    def _open(self, name: str) -> BinaryIO:
        try:
            file = open_file(self.path / name)
        except MalformedError as error:
            raise self._damaged(f"{name}: {error}") from None
        found = os.fstat(file.fileno())
        identity = found.st_dev, found.st_ino, found.st_size
        if self._checked.setdefault(name, identity) != identity:
            file.close()
            raise self._damaged(f"{name} was replaced while it was read")
        return file

    def _check(self, name: str) -> None:
        file = self._files[name]
        size = os.fstat(file.fileno()).st_size
        length = int.from_bytes(file.read(LENGTH_BYTES), "little")
        if length > min(MAX_HEADER_BYTES, size - LENGTH_BYTES):
            raise MalformedError(f"{name}: a header inside its {size} bytes expected, one of {length} announced")
        header = json_object(file.read(length), f"{name}: the header")
        header.pop("__metadata__", None)
        at = 0
        for tensor, line in header.items():
            entry = self.manifest.tensors.get(tensor)
            expected = None
            if entry is not None and entry.file == name:
                expected = header_line(entry.torch_dtype, entry.shape, at, entry.size_bytes)
            if entry is None or line != expected:
                raise MalformedError(f"{name}: tensor {tensor[:200]!r}: {expected} expected, {str(line)[:200]} found")
            self._starts[tensor] = LENGTH_BYTES + length + at
            at += entry.size_bytes
        if LENGTH_BYTES + length + at != size:
            raise MalformedError(f"{name}: {LENGTH_BYTES + length + at} bytes expected, {size} found")
        for entry in self.manifest.tensors.values():
            if entry.file == name and entry.name not in header:
                raise MalformedError(f"{name}: tensor {entry.name!r} is not there")

    def _damaged(self, problem: object) -> DamagedError:
        return DamagedError(f"{self.path}: not usable as portable weights: {problem}")
