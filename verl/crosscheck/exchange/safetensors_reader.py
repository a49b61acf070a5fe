# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The container of a record, read: checks size, digest and header of a file before any of it is used.

Reads a file once and checks the very bytes that it hands on, so nothing can change in between; a memory map would not
do, for whoever shortens the file under it kills the reader. See docs/format.md.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import xxhash

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.dtypes import CARRIER_OF_STORAGE, Carried, storage_itemsize
from verl.crosscheck.exchange.limits import MAX_HEADER_BYTES, MalformedError, checked_shape
from verl.crosscheck.exchange.safetensors_file import (
    BEFORE_SIZE,
    DIGEST_AT,
    DIGEST_DIGITS,
    FIXED_BYTES,
    LENGTH_BYTES,
    OPENING,
    SCHEMA,
    SIZE_AT,
    SIZE_DIGITS,
    VERSION,
)


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
    with _open(path) as file:
        size = os.fstat(file.fileno()).st_size
        fixed = file.read(FIXED_BYTES)
        _check_fixed(fixed, size)
        buffer = np.empty(size, np.uint8)
        file.seek(0)
        filled = _fill(file, buffer)
    if filled != size:
        raise MalformedError(f"the file changed while it was read: {size} bytes expected, {filled} found")
    expected = bytes(buffer[DIGEST_AT:FIXED_BYTES])
    buffer[DIGEST_AT:FIXED_BYTES] = ord("0")
    found = xxhash.xxh3_128_hexdigest(buffer.data).encode()
    if found != expected or bytes(buffer[:DIGEST_AT]) != fixed[:DIGEST_AT]:
        raise MalformedError(f"the content was altered: digest {_show(expected)} expected, {_show(found)} found")
    length = int.from_bytes(fixed[:LENGTH_BYTES], "little")
    header = _parse_header(bytes(buffer[LENGTH_BYTES : LENGTH_BYTES + length]))
    about = _about(header.pop("__metadata__"))
    views, storages = _views(header, buffer[LENGTH_BYTES + length :])
    return Container(about, views, storages, size)


def read_container_about(path: Path) -> dict[str, Any]:
    """The description in the header; the body's digest is not checked, only the size of the file."""
    with _open(path) as file:
        fixed = file.read(FIXED_BYTES)
        _check_fixed(fixed, os.fstat(file.fileno()).st_size)
        file.seek(LENGTH_BYTES)
        header = _parse_header(file.read(int.from_bytes(fixed[:LENGTH_BYTES], "little")))
    return _about(header["__metadata__"])


def damaged(path: Path, problem: object) -> DamagedError:
    """The error for the user: which file, what is wrong with it, what to do."""
    return DamagedError(
        f"{path}: not a usable record: {problem}. Nothing of it was used. If you do not need it, type rm {str(path)!r}"
    )


def _open(path: Path) -> BinaryIO:
    """Opens a regular file; neither follows a link at the path nor blocks on a pipe."""
    if path.is_symlink():
        raise MalformedError("a regular file expected, a symbolic link found")
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise MalformedError("a regular file expected, something else found")
    return os.fdopen(number, "rb", buffering=0)


def _fill(file: BinaryIO, buffer: npt.NDArray[np.uint8]) -> int:
    view, filled = buffer.data, 0
    while filled < len(view):
        count = file.readinto(view[filled:])  # type: ignore[attr-defined]
        if not count:
            break
        filled += count
    return filled


def _check_fixed(fixed: bytes, size: int) -> None:
    """Checks what stands at fixed places: kind of file, version, size, length of the header."""
    if not fixed.startswith(OPENING, LENGTH_BYTES):
        raise MalformedError(_foreign(fixed, size))
    if not fixed.startswith(BEFORE_SIZE, LENGTH_BYTES):
        found = fixed[LENGTH_BYTES + len(OPENING) :].split(b'"')[0]
        raise MalformedError(
            f"format version {VERSION} expected, {_show(found)} found; both runs need the same release"
        )
    digits = fixed[SIZE_AT : SIZE_AT + SIZE_DIGITS]
    if len(fixed) < FIXED_BYTES or not digits.isdigit():
        raise MalformedError(f"the header is cut off or altered; the file has {size} bytes")
    if int(digits) != size:
        raise MalformedError(f"{int(digits)} bytes expected, {size} found")
    length = int.from_bytes(fixed[:LENGTH_BYTES], "little")
    if length > MAX_HEADER_BYTES or length > size - LENGTH_BYTES:
        raise MalformedError(
            f"a header of at most {MAX_HEADER_BYTES} bytes inside the file expected, {length} announced"
        )


def _foreign(fixed: bytes, size: int) -> str:
    if size < FIXED_BYTES:
        return f"at least {FIXED_BYTES} bytes expected, {size} found"
    if fixed[:1] == b"\x80" or fixed[:2] == b"PK":
        return "a record expected, a Python pickle or torch.save file found; such files are never opened here"
    if fixed[LENGTH_BYTES : LENGTH_BYTES + 1] == b"{":
        return f"schema {SCHEMA}{VERSION} expected, a safetensors file without it found"
    return f"a safetensors file expected, one that starts with {_show(fixed[:16])} found"


def _show(data: bytes) -> str:
    return repr(data[:DIGEST_DIGITS])[1:]


def _parse_header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the header is not JSON: {error}") from None
    metadata = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(metadata, dict) or not isinstance(metadata.get("about"), str):
        raise MalformedError("the header has no description")
    return dict(header)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _about(metadata: dict[str, str]) -> dict[str, Any]:
    try:
        about = json.loads(metadata["about"])
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the description is not JSON: {error}") from None
    if not isinstance(about, dict):
        raise MalformedError("the description is not a JSON object")
    return about


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
