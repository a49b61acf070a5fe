# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The container of a record: one safetensors file with its size and a digest at fixed places of its header.

Knows bytes only; what the tensors in it mean is known to `record`. The stock library reads these files; it is not used
to write them because it wants all bytes at once, nor to read them: size, digest and header are checked before any of a
file is used. A file is read once, and the very bytes that were checked are handed on, so nothing can change in between;
a memory map would not do, for a file that is shortened under it kills the reader. See docs/format.md.

numpy and xxhash are imported only where a body is read or written: a header is read without them.
"""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from verl.crosscheck.errors import DamagedError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

SCHEMA = "verl-crosscheck.record/"
VERSION = "1"
MAX_ABOUT_BYTES = 1 << 20
MAX_HEADER_BYTES = 16 << 20
MAX_DIMENSIONS = 32
EXPANSION_FLOOR_BYTES = 64 << 20
EXPANSION_FACTOR = 64
"""A file may restore to this many times its size in memory, and to the floor in any case."""

CARRIER_OF_STORAGE = {
    "BOOL": "u1",
    "U8": "u1",
    "I8": "i1",
    "U16": "u2",
    "I16": "i2",
    "U32": "u4",
    "I32": "i4",
    "U64": "u8",
    "I64": "i8",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "F16": "i2",
    "BF16": "i2",
    "F32": "i4",
    "F64": "i8",
}
"""The safetensors types a record uses: every reader since safetensors 0.4 knows them, and none is below a byte."""

LENGTH_BYTES = 8
SIZE_DIGITS = 16
DIGEST_DIGITS = 32
# The header starts with these bytes, so that size and digest can be checked before anything is parsed.
OPENING = b'{"__metadata__":{"schema":"' + SCHEMA.encode()
BEFORE_SIZE = OPENING + VERSION.encode() + b'","size":"'
BEFORE_DIGEST = b'","xxh3_128":"'
SIZE_AT = LENGTH_BYTES + len(BEFORE_SIZE)
DIGEST_AT = SIZE_AT + SIZE_DIGITS + len(BEFORE_DIGEST)
FIXED_BYTES = DIGEST_AT + DIGEST_DIGITS


class MalformedError(Exception):
    """Content that breaks the format; becomes a DamagedError where the path is known."""


class ForeignError(MalformedError):
    """The file is of another format, so no advice to delete it is given."""


def read_about(path: Path) -> dict[str, Any]:
    """Return the `about` of a record from its header alone; damage of the body is not noticed.

    Raises:
        DamagedError: not a record, or its header or size is not as it was written.
        FileNotFoundError: there is none.
    """
    try:
        with open_file(path) as file:
            fixed = file.read(FIXED_BYTES)
            check_fixed(fixed, os.fstat(file.fileno()).st_size)
            file.seek(LENGTH_BYTES)
            header = parse_header(file.read(int.from_bytes(fixed[:LENGTH_BYTES], "little")))
        return about_of(header["__metadata__"])
    except MalformedError as error:
        raise damaged(path, error) from None


def damaged(path: Path, problem: object) -> DamagedError:
    """Return the error for the user: which file, what is wrong with it, what to do."""
    advice = "" if isinstance(problem, ForeignError) else f" If you do not need it, type rm {str(path)!r}"
    return DamagedError(f"{path}: not a usable record: {problem}. Nothing of it was used.{advice}")


def open_file(path: Path) -> BinaryIO:
    """Open a regular file, without following a link at the path or blocking on a pipe."""
    if path.is_symlink():
        raise MalformedError("a regular file expected, a symbolic link found")
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise MalformedError("a regular file expected, something else found")
    return os.fdopen(number, "rb", buffering=0)


def check_fixed(fixed: bytes, size: int) -> None:
    """Check what has a fixed place: kind of file, version, size, length of the header."""
    if not fixed.startswith(OPENING, LENGTH_BYTES):
        raise ForeignError(_foreign(fixed, size))
    if not fixed.startswith(BEFORE_SIZE, LENGTH_BYTES):
        found = fixed[LENGTH_BYTES + len(OPENING) :].split(b'"')[0]
        raise MalformedError(f"format version {VERSION} expected, {show(found)} found; both runs need the same release")
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
    return f"a safetensors file expected, one that starts with {show(fixed[:16])} found"


def show(data: bytes) -> str:
    """Return a few bytes of a file as text for a message."""
    return repr(data[:DIGEST_DIGITS])[1:]


def json_object(text: bytes | str, what: str) -> dict[str, Any]:
    """Return a JSON object from untrusted text. Raise MalformedError, which names `what`, unless it is one."""
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{what} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise MalformedError(f"{what} is not a JSON object")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def parse_header(text: bytes) -> dict[str, Any]:
    """Return the entries of the header by name, the description included."""
    header = json_object(text, "the header")
    metadata = header.get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("about"), str):
        raise MalformedError("the header has no description")
    return header


def about_of(metadata: dict[str, str]) -> dict[str, Any]:
    """Return the description from the header's own entry."""
    return json_object(metadata["about"], "the description")


def storage_itemsize(storage: str) -> int:
    """Return the bytes of one element of a safetensors type."""
    return int(CARRIER_OF_STORAGE[storage][1:])


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return the shape if it is a list of at most MAX_DIMENSIONS sizes that an array can have."""
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    ):
        raise MalformedError(f"{str(shape)[:80]} is not a shape")
    return tuple(shape)


def memory_limit_bytes(file_bytes: int) -> int:
    """Return the memory that a file of this size may restore to; the writer stores in full what would need more."""
    return EXPANSION_FLOOR_BYTES + EXPANSION_FACTOR * file_bytes


class Budget:
    """Counts what restoring allocates, so that a small hostile file cannot ask for a huge array."""

    def __init__(self, file_bytes: int) -> None:
        self._left = memory_limit_bytes(file_bytes)

    def take(self, size_bytes: int) -> None:
        """Claim memory; raise MalformedError if the file is too small to ask for so much."""
        self._left -= size_bytes
        if self._left < 0:
            raise MalformedError(f"it asks for more memory than a file of its size may ({size_bytes} bytes at once)")


@dataclass(frozen=True)
class Container:
    """A file that was read whole and whose digest is right."""

    about: dict[str, Any]
    views: Mapping[str, npt.NDArray[Any]]
    """Carriers of each tensor by name; views of the one buffer that was checked."""
    storages: Mapping[str, str]
    """Safetensors type of each tensor."""
    size_bytes: int


def read_container(path: Path) -> Container:
    """Read a file once, check its bytes, and return views of them; raise MalformedError with what is wrong."""
    import numpy as np
    import xxhash

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


def _views(header: dict[str, Any], body: npt.NDArray[np.uint8]) -> tuple[dict[str, npt.NDArray[Any]], dict[str, str]]:
    """Return views of the body by name; every byte must belong to exactly one tensor."""
    views: dict[str, npt.NDArray[Any]] = {}
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


@dataclass(frozen=True)
class FilePart:
    """One tensor of the file, as it will be written."""

    name: str
    storage: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterable[npt.NDArray[Any]]]
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
    """Write the container at the position of a file that can seek, and return its size in bytes."""
    import numpy as np
    import xxhash

    base = file.tell()
    ordered = sorted(parts, key=lambda part: -part.itemsize)  # keeps each tensor aligned, without holes
    head = _header(ordered, about)
    size = len(head) + sum(part.size_bytes for part in ordered)
    head[SIZE_AT : SIZE_AT + SIZE_DIGITS] = b"%016d" % size
    digest = xxhash.xxh3_128()
    digest.update(head)
    write_all(file, head)
    for part in ordered:
        written = 0
        for chunk in part.chunks():
            flat = chunk.reshape(-1).view(np.uint8).data
            digest.update(flat)
            write_all(file, flat)
            written += flat.nbytes
        if written != part.size_bytes:
            raise RuntimeError(f"{part.name}: announced {part.size_bytes} bytes and produced {written}")
    file.seek(base + DIGEST_AT)
    write_all(file, digest.hexdigest().encode())
    file.seek(base + size)
    return size


def _header(parts: Sequence[FilePart], about: str) -> bytearray:
    """Return length and header, padded to 8 bytes, with zeros for the size and the digest."""
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


def write_all(file: BinaryIO, data: bytes | bytearray | memoryview) -> None:
    """Write all of `data`: a raw file may take less than offered."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
