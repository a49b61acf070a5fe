# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The container of a record, written: one safetensors file with its size and a digest at fixed places of its header.

Knows bytes only; what the parts mean is `record.py`'s business, and `safetensors_reader.py` is the way back. The stock
library reads these files; it is not used to write them because it wants all bytes at once. See docs/format.md.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import xxhash

from verl.crosscheck.exchange.record.safetensors_header import (
    DIGEST_AT,
    DIGEST_DIGITS,
    LENGTH_BYTES,
    SCHEMA,
    SIZE_AT,
    SIZE_DIGITS,
    VERSION,
)
from verl.crosscheck.exchange.record.types import Carried, storage_itemsize


@dataclass(frozen=True)
class FilePart:
    """One tensor of the file, as it will be written."""

    name: str
    storage: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[Carried]]
    """Yields the content as C-contiguous arrays, in order; called once."""

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return storage_itemsize(self.storage)

    @property
    def size_bytes(self) -> int:
        """Bytes of the content."""
        return math.prod(self.shape) * self.itemsize


def write_parts(file: BinaryIO, parts: Sequence[FilePart], about: str) -> int:
    """Writes the container at the file's position and returns its size in bytes; the file must be able to seek."""
    base = file.tell()
    ordered = sorted(parts, key=lambda part: -part.itemsize)  # keeps each tensor aligned, without holes
    head = _header(ordered, about)
    size = len(head) + sum(part.size_bytes for part in ordered)
    head[SIZE_AT : SIZE_AT + SIZE_DIGITS] = b"%016d" % size
    digest = xxhash.xxh3_128()
    digest.update(head)
    _write_all(file, head)
    for part in ordered:
        written = 0
        for chunk in part.chunks():
            flat = chunk.reshape(-1).view(np.uint8).data
            digest.update(flat)
            _write_all(file, flat)
            written += flat.nbytes
        if written != part.size_bytes:
            raise RuntimeError(f"{part.name}: announced {part.size_bytes} bytes and produced {written}")
    file.seek(base + DIGEST_AT)
    _write_all(file, digest.hexdigest().encode())
    file.seek(base + size)
    return size


def _header(parts: Sequence[FilePart], about: str) -> bytearray:
    """Length and header, padded to 8 bytes, with zeros for the size and the digest."""
    metadata = {
        "schema": SCHEMA + VERSION,
        "size": "0" * SIZE_DIGITS,
        "xxh3_128": "0" * DIGEST_DIGITS,
        "about": about,
    }
    header: dict[str, Any] = {"__metadata__": metadata}
    at = 0
    for part in parts:
        header[part.name] = {
            "dtype": part.storage,
            "shape": list(part.shape),
            "data_offsets": [at, at + part.size_bytes],
        }
        at += part.size_bytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return bytearray(len(text).to_bytes(LENGTH_BYTES, "little") + text)


def _write_all(file: BinaryIO, data: bytes | bytearray | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]  # a raw file may take less than offered
