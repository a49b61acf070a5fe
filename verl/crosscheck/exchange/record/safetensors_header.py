# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The head of a record's file: what stands at fixed places, and how it is read and checked.

Imports neither torch nor numpy, so that whoever only wants to know what a file is need not wait for them.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.record.limits import MAX_HEADER_BYTES, ForeignError, MalformedError

SCHEMA = "verl-crosscheck.record/"
VERSION = "1"
MAX_ABOUT_BYTES = 1 << 20

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


def read_about(path: Path) -> dict[str, Any]:
    """The `about` of a record, from the header alone: damage of the body is not seen.

    Raises:
        DamagedError: not a record, or its header or size is not as it was written.
        FileNotFoundError: there is none.
    """
    try:
        return _read_about(path)
    except MalformedError as error:
        raise damaged(path, error) from None


def _read_about(path: Path) -> dict[str, Any]:
    """The description in the header; the body's digest is not checked, only the size of the file."""
    with open_file(path) as file:
        fixed = file.read(FIXED_BYTES)
        check_fixed(fixed, os.fstat(file.fileno()).st_size)
        file.seek(LENGTH_BYTES)
        header = parse_header(file.read(int.from_bytes(fixed[:LENGTH_BYTES], "little")))
    return about_of(header["__metadata__"])


def damaged(path: Path, problem: object) -> DamagedError:
    """The error for the user: which file, what is wrong with it, what to do."""
    advice = "" if isinstance(problem, ForeignError) else f" If you do not need it, type rm {str(path)!r}"
    return DamagedError(f"{path}: not a usable record: {problem}. Nothing of it was used.{advice}")


def open_file(path: Path) -> BinaryIO:
    """Opens a regular file; neither follows a link at the path nor blocks on a pipe."""
    if path.is_symlink():
        raise MalformedError("a regular file expected, a symbolic link found")
    number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise MalformedError("a regular file expected, something else found")
    return os.fdopen(number, "rb", buffering=0)


def check_fixed(fixed: bytes, size: int) -> None:
    """Checks what stands at fixed places: kind of file, version, size, length of the header."""
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
    """A few bytes of a file, for a message."""
    return repr(data[:DIGEST_DIGITS])[1:]


def parse_header(text: bytes) -> dict[str, Any]:
    """The header's entries by name, that of the description among them."""
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


def about_of(metadata: dict[str, str]) -> dict[str, Any]:
    """The description in the header's own entry."""
    try:
        about = json.loads(metadata["about"])
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"the description is not JSON: {error}") from None
    if not isinstance(about, dict):
        raise MalformedError("the description is not a JSON object")
    return about
