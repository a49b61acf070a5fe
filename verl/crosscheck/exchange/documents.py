# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Small JSON files of the exchange: typed, validated, each with its schema and version in it.

A document type is a subclass of `Document`; its fields are the keys of the file:

    class Session(Document, frozen=True):
        SCHEMA: ClassVar[str] = "verl-crosscheck/session"
        id: str
        number: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
        base_step: Count = 0                                    # may be missing in old files
        reported_unix_s: Seconds = msgspec.field(name="told")   # another name on disk

    publish_document(path, Session(...), replace=False)         # of `publish`
    session = read_document(path, Session)

A field may have any type that msgspec validates, other structs (plain `msgspec.Struct`, frozen) and enums included, and
`Number` below. Keys of the file that the type does not name are ignored, so that a later version may add some. The
JSON Schemas in docs/schema are made from these types by scripts/schemas.

A file may be hostile or torn, so nothing is taken from it before it was checked: owner, kind and size of the file, the
encoding, duplicate keys, the depth, and then each value.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

import msgspec

from verl.crosscheck.errors import DamagedError, UnreadableError

MAX_SIZE_BYTES = 16 * 1024 * 1024
"""Largest file that is read. A manifest has about 100 bytes a file, a card some ten thousand in all."""

SAME_VERSION = "Run the same version of verl-crosscheck on both sides"

MAX_DEPTH = 64
"""Levels of nesting; a configuration has about ten."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A count, an index or a size."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=2**63 - 1)]
"""A duration, or a wall-clock time since 1970."""

if TYPE_CHECKING:
    Number = float
else:

    class Number(float):
        """A float that may be infinite or not a number, for which the file has `NOT_FINITE`."""


NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""JSON has no such numbers: they are written as these strings, where a field is a `Number`."""

_TRIES = 4
"""How often a file is opened: on network file systems one that is replaced during a read must be opened again."""


class Document(msgspec.Struct, frozen=True):
    """Base of all document types; see above how to define one."""

    SCHEMA: ClassVar[str]
    SCHEMA_VERSION: ClassVar[int] = 1
    COMPLETE: ClassVar[bool] = False
    """Whether a file without one of the keys is damaged, though the type has a default for it. A struct inside a
    document may say the same of itself."""


D = TypeVar("D", bound=Document)
S = TypeVar("S", bound=msgspec.Struct)


class NotADocumentError(Exception):
    """A file is not the document it should be; becomes a DamagedError where it is known what it is for."""


class _CannotReadError(NotADocumentError):
    """The file system failed."""


def read_document(path: Path, kind: type[D]) -> D:
    """Return the document in `path`.

    Raises:
        FileNotFoundError: there is none.
        UnreadableError: the file system failed.
        DamagedError: it is not JSON, of another schema or version, not this user's, or a field is missing or of another
            type. Names the path, the field, what was expected and what was found.
    """
    with _naming(path):
        return parse_document(path, kind)


def read_json(path: Path) -> Any:
    """Return what a JSON file without a schema in it holds: a comparison that 0.1.0 wrote. Else as `read_document`."""
    with _naming(path):
        return _parsed(_content(path))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    try:
        yield
    except _CannotReadError as e:
        raise UnreadableError(f"{path} {e}. Nothing of it was used") from None
    except NotADocumentError as e:
        raise DamagedError(f"{path} {e}. Nothing of it was used") from None


def parse_document(path: Path, kind: type[D]) -> D:
    """Do as `read_document`, for callers that word the error themselves.

    Raises:
        FileNotFoundError: there is none.
        NotADocumentError: see `read_document`.
    """
    data = _parsed(_content(path))
    if not isinstance(data, dict) or data.get("schema") != kind.SCHEMA:
        found = data.get("schema") if isinstance(data, dict) else type(data).__name__
        raise NotADocumentError(f"is not of the schema {kind.SCHEMA!r} (found {found!r})")
    version = data.get("schema_version")
    if type(version) is not int or version != kind.SCHEMA_VERSION:
        raise NotADocumentError(f"has schema version {version!r}, expected {kind.SCHEMA_VERSION}. {SAME_VERSION}")
    return struct_of(data, kind)


def struct_of(data: Any, kind: type[S]) -> S:
    """Return parsed JSON as the struct that it should be.

    Raises:
        NotADocumentError: a field is missing or of another type; reads well behind the name of what holds it.
    """
    try:
        found = msgspec.convert(data, kind, dec_hook=_number)
    except msgspec.ValidationError as e:
        raise NotADocumentError(_complaint(str(e), data, kind)) from None
    _require_complete(data, kind, "")
    return found


def plain(struct: msgspec.Struct) -> dict[str, Any]:
    """Return a struct as strict JSON: dicts, lists, text, numbers, null; a document with its schema and version."""
    content: dict[str, Any] = _strict(msgspec.to_builtins(struct, enc_hook=float))
    if not isinstance(struct, Document):
        return content
    return {"schema": struct.SCHEMA, "schema_version": struct.SCHEMA_VERSION, **content}


def _require_complete(data: Mapping[str, Any], kind: type[msgspec.Struct], at: str) -> None:
    """Raise unless every key is there that a type with `COMPLETE` names, whatever default it has for who makes one."""
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        if getattr(kind, "COMPLETE", False) and name not in data:
            raise NotADocumentError(f"has no field {at + name!r}")
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct) and name in data:
            _require_complete(data[name], field.type, f"{at}{name}.")


def _number(kind: type, value: Any) -> Any:
    if kind is not Number or isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError("Expected `number`")
    if isinstance(value, str) and value not in NOT_FINITE:
        raise ValueError("Expected `number`")
    return Number(NOT_FINITE[value] if isinstance(value, str) else value)


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


_COMPLAINT = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`[$](?P<at>[^`]*)`)?", re.DOTALL)
_OUR_WORDS = {"`object": "`dict", "`array": "`list", " | ": " or ", "`": ""}


def _complaint(message: str, data: Any, kind: type) -> str:
    """Return what msgspec found wrong, with the value and the allowed ones, neither of which it names."""
    match = _COMPLAINT.fullmatch(message)
    assert match is not None  # the expression takes any text
    what, at = match["what"], match["at"] or ""
    if missing := re.fullmatch(r"Object missing required field `(.*)`", what):
        return f"has no field {(at + '.' + missing[1]).lstrip('.')!r}"
    expected = re.sub(r", got `.*`$", "", what).removeprefix("Expected ")
    for theirs, ours in _OUR_WORDS.items():
        expected = expected.replace(theirs, ours)
    expected = re.sub(r"((?:int|float).*) >= 0(?:[.]0)?$", r"\1 of at least 0", expected)
    found, allowed = _follow(data, msgspec.inspect.type_info(kind), at)
    if what.startswith("Invalid enum value") and allowed:
        expected = f"one of {', '.join(map(str, allowed))}"
    each = " as each value" if at.endswith("[...]") else ""
    return f"has {found!r:.100} in field {at.lstrip('.').removesuffix('[...]')!r}, expected {expected}{each}"


def _follow(data: Any, info: Any, at: str) -> tuple[Any, list[Any]]:
    """Return the value at a path of msgspec's, or the dict that holds it, and the values of its type if they are few.

    For a value of a dict msgspec writes `[...]` in place of the key.
    """
    for name, index in re.findall(r"[.]([^.[]+)|\[([^]]*)\]", at):
        for each in getattr(info, "types", (info,)):
            parts = {field.encode_name: field.type for field in getattr(each, "fields", ())}
            parts[index] = getattr(each, "item_type", None) or getattr(each, "value_type", None)
            info = parts.get(name or index) or info
        if index == "...":
            break
        data = data[name] if name else data[int(index)]
    for each in getattr(info, "types", (info,)):
        if isinstance(each, msgspec.inspect.EnumType):
            return data, [member.value for member in each.cls]
        if isinstance(each, msgspec.inspect.LiteralType):
            return data, list(each.values)
    return data, []


def _parsed(content: bytes) -> Any:
    """Parse strict JSON. msgspec's own parser takes duplicate keys, Python's takes NaN and more beside."""
    try:
        text = content.decode("utf-8")
        data = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_number, parse_float=_finite)
        if "\\u" in text:
            json.dumps(data, ensure_ascii=False).encode("utf-8")  # a lone surrogate could not even be printed
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
    """The file that was opened is no longer the one of that name."""


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
