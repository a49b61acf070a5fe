# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Small JSON files of the exchange: each names its schema and version, and is refused unless it is what it says.

Whoever can write in the directory could write anything, so nothing is taken from a file before it was checked.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import DamagedError, UnreadableError

MAX_SIZE_BYTES = 16 * 1024 * 1024
"""A manifest has about 100 bytes a file, a card some ten thousand in all; a larger file is not ours and not read."""

SAME_VERSION = "Run the same version of verl-crosscheck on both sides"

MAX_DEPTH = 64
"""Levels of nesting; a configuration has about ten."""

MAX_NUMBER = 2**63 - 1

Fields = Mapping[str, tuple[type, ...]]
"""Fields that must be there, by name, with the types that their values may have. A bool is no int here; numbers are
counts, sizes and times, never below 0."""


_TRIES = 4
"""On network file systems a file that is replaced while it is read has to be opened again."""


class NotADocumentError(Exception):
    """Why a file is not the document it should be; becomes a DamagedError by whoever knows what it is for."""


class _CannotReadError(NotADocumentError):
    """The file system failed."""


def read_document(path: Path, schema: str, version: int, fields: Fields) -> dict[str, Any]:
    """The JSON object in `path`. Fields that are not named in `fields` are kept as they are.

    Raises:
        FileNotFoundError: there is none.
        UnreadableError: the file system failed.
        DamagedError: it is not JSON, of another schema or version, not this user's, or a field is missing or of another
            type. Names the path, what was expected and what was found.
    """
    try:
        return parse_document(path, schema, version, fields)
    except _CannotReadError as e:
        raise UnreadableError(f"{path} {e}. Nothing of it was used") from None
    except NotADocumentError as e:
        raise DamagedError(f"{path} {e}. Nothing of it was used") from None


def parse_document(path: Path, schema: str, version: int, fields: Fields) -> dict[str, Any]:
    """As `read_document`, for callers that word the error themselves.

    Raises:
        FileNotFoundError: there is none.
        NotADocumentError: see `read_document`.
    """
    content = _content(path)
    data = _parsed(content)
    if not isinstance(data, dict) or data.get("schema") != schema:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise NotADocumentError(f"is not of the schema {schema!r} (found {found!r})")
    found = data.get("schema_version")
    if type(found) is not int or found != version:
        raise NotADocumentError(f"has schema version {found!r}, expected {version}. {SAME_VERSION}")
    for name, types in fields.items():
        if name not in data:
            raise NotADocumentError(f"has no field {name!r}")
        if not fits(data[name], types):
            expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
            below = " of at least 0" if {int, float}.intersection(types) else ""
            raise NotADocumentError(f"has {data[name]!r:.100} in field {name!r}, expected {expected}{below}")
    return data


def fits(value: Any, types: tuple[type, ...]) -> bool:
    """Whether a field, see `Fields`, may have the value."""
    if type(value) not in types:
        return False
    return isinstance(value, bool) or not isinstance(value, int | float) or 0 <= value <= MAX_NUMBER


def _parsed(content: bytes) -> Any:
    """JSON as the standard has it, which Python's parser takes more than."""
    try:
        text = content.decode("utf-8")
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode("utf-8")  # halves of letters could not even be printed
    except (ValueError, RecursionError) as e:
        raise NotADocumentError(f"is not JSON ({_reason(e)})") from None
    level = [data]
    for _ in range(MAX_DEPTH):
        containers = [each for each in level if isinstance(each, dict | list)]
        if not containers:
            return data
        level = [part for each in containers for part in (each.values() if isinstance(each, dict) else each)]
    raise NotADocumentError(f"is not used (it nests deeper than {MAX_DEPTH} levels)")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found


def _no_number(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _no_number(text)


def _content(path: Path) -> bytes:
    for _ in range(_TRIES - 1):
        with suppress(_StaleError):
            return _content_once(path)
    try:
        return _content_once(path)
    except _StaleError as e:
        raise _CannotReadError(str(e)) from None


class _StaleError(Exception):
    """What was opened is no longer what has the name."""


def _content_once(path: Path) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not block us
    except FileNotFoundError:
        raise
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENXIO, errno.ENOTDIR, errno.EACCES, errno.EPERM):
            raise NotADocumentError(f"cannot be read ({e.strerror}; a symbolic link is never followed)") from None
        raise _unreadable(e) from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_SIZE_BYTES:
            raise NotADocumentError(f"is not a regular file of at most {MAX_SIZE_BYTES} bytes")
        if found.st_uid != os.geteuid():
            raise NotADocumentError(f"belongs to user {found.st_uid}, expected user {os.geteuid()}")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read(MAX_SIZE_BYTES + 1)
    except OSError as e:
        raise _unreadable(e) from None
    finally:
        os.close(descriptor)


def _unreadable(error: OSError) -> Exception:
    text = f"cannot be read ({error.strerror})"
    return _StaleError(text) if error.errno == errno.ESTALE else _CannotReadError(text)


def _reason(error: Exception) -> str:
    return "it nests too deep" if isinstance(error, RecursionError) else str(error)
