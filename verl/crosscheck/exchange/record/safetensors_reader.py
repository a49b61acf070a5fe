# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The container of a record, read: checks size, digest and header of a file before any of it is used.

Reads a file once and checks the very bytes that it hands on, so nothing can change in between; a memory map would not
do, for whoever shortens the file under it kills the reader. See docs/format.md.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from verl.crosscheck.exchange.record.limits import MalformedError, checked_shape
from verl.crosscheck.exchange.record.safetensors_header import (
    DIGEST_AT,
    FIXED_BYTES,
    LENGTH_BYTES,
    about_of,
    check_fixed,
    open_file,
    parse_header,
    show,
)
from verl.crosscheck.exchange.record.types import CARRIER_OF_STORAGE, Carried, storage_itemsize


@dataclass(frozen=True)
class Container:
    """A file that was read whole and whose digest is right."""

    about: dict[str, Any]
    views: Mapping[str, Carried]
    """Carriers of each tensor by name; views of the one buffer that was checked."""
    storages: Mapping[str, str]
    """Safetensors type of each tensor."""
    size_bytes: int


def read_container(path: Path) -> Container:
    """Reads a file once, checks those bytes, and gives views of them; MalformedError says what is wrong."""
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        fixed = file.read(FIXED_BYTES)
        check_fixed(fixed, size)
        buffer = np.empty(size, np.uint8)
        file.seek(0)
        filled = _fill(file, buffer)
    if filled != size:
        raise MalformedError(f"the file changed while it was read: {size} bytes expected, {filled} found")
    expected = bytes(buffer[DIGEST_AT:FIXED_BYTES])
    buffer[DIGEST_AT:FIXED_BYTES] = ord("0")
    found = xxhash.xxh3_128_hexdigest(buffer.data).encode()
    if found != expected or bytes(buffer[:DIGEST_AT]) != fixed[:DIGEST_AT]:
        raise MalformedError(f"the content was altered: digest {show(expected)} expected, {show(found)} found")
    length = int.from_bytes(fixed[:LENGTH_BYTES], "little")
    header = parse_header(bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length]))
    about = about_of(header.pop("__metadata__"))
    views, storages = _views(header, buffer[LENGTH_BYTES + length :])
    return Container(about, views, storages, size)


def _fill(file: BinaryIO, buffer: npt.NDArray[np.uint8]) -> int:
    view, filled = buffer.data, 0
    while filled < len(view):
        count = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled


def _views(header: dict[str, Any], body: npt.NDArray[np.uint8]) -> tuple[dict[str, Carried], dict[str, str]]:
    """Views of the body by name; every byte must belong to exactly one tensor."""
    views: dict[str, Carried] = {}
    storages: dict[str, str] = {}
    at = 0
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise MalformedError(f"tensor {name!r}: dtype, shape and data_offsets expected, {entry!r} found")
        storage, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
        if not isinstance(storage, str) or storage not in CARRIER_OF_STORAGE:
            raise MalformedError(f"tensor {name!r}: unknown dtype {storage!r}")
        stop = at + math.prod(checked_shape(shape)) * storage_itemsize(storage)
        if offsets != [at, stop] or stop > body.size:
            raise MalformedError(f"tensor {name!r}: bytes {at} to {stop} of {body.size} expected, {offsets!r} found")
        views[name] = body[at:stop].view("<" + CARRIER_OF_STORAGE[storage]).reshape(shape)
        storages[name] = storage
        at = stop
    if at != body.size:
        raise MalformedError(f"a body of {at} bytes expected, {body.size} found")
    return views, storages
