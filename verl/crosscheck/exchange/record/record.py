# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A record: tensors, numpy arrays and plain values, as one safetensors file that anyone can read and nobody executes.

It knows nothing of RL. `publish` hands it an open file; readers hand it a path. What comes back equals what went in
bit by bit, on the CPU and contiguous, with the order of all keys. The format is described in docs/format.md.

Torch is imported only by `read_record`; `read_stored` reads without it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import EncodingError
from verl.crosscheck.exchange.record.columns import Description, plan_columns, restore_arrays, restore_tensors
from verl.crosscheck.exchange.record.container import (
    MAX_ABOUT_BYTES,
    Budget,
    Container,
    FilePart,
    MalformedError,
    damaged,
    memory_limit_bytes,
    read_container,
    write_parts,
)
from verl.crosscheck.exchange.record.types import (
    ByteSource,
    RefusedError,
    StoredTensor,
    array_source,
    is_tensor,
    tensor_source,
    tensor_type,
)
from verl.crosscheck.exchange.record.values import Decoder, Encoder

if TYPE_CHECKING:
    import torch

_VALUES = "values.json"
_T = TypeVar("_T")
# What parsing a well-formed container of hostile content can raise, besides MalformedError.
_PARSE_ERRORS = (MalformedError, LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)


@dataclass(frozen=True, eq=False)
class StoredRecord:
    """The content of a file, without torch."""

    tensors: Mapping[str, StoredTensor]
    arrays: Mapping[str, npt.NDArray[Any]]
    meta: Mapping[str, Any]
    """A tensor in it is a `StoredTensor`."""
    about: Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Record:
    """The content of a file. The keys of all mappings are str, and keep their order."""

    tensors: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """Dense tensors of any shape and device; they come back on the CPU, contiguous."""
    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    """numpy arrays: bool, numbers, text, bytes, or objects (see `values` for what a cell may be)."""
    meta: Mapping[str, Any] = field(default_factory=dict)
    """Values of the same language as object cells."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """A small plain-JSON description that `read_about` gives without reading the body."""


def write_record(file: BinaryIO, record: Record) -> int:
    """Write a record at the position of an open binary file that can seek; return the bytes written.

    Needs about two blocks (8 MiB) of memory on top of the record. Raises EncodingError, before anything is written,
    for what has no representation, with the path to it; OSError from the file.
    """
    about = _about_text(record.about)
    encoder = Encoder()
    document: dict[str, Any] = {}
    tensors = _sources(record.tensors)
    arrays, objects = _split_arrays(record.arrays, encoder)
    document["meta"] = _meta(record.meta, encoder)
    for compact in (True, False):
        tensor_columns, parts = plan_columns("tensors", tensors, compact=compact)
        array_columns, array_parts = plan_columns("arrays", arrays, compact=compact)
        document["tensors"] = [
            [name, {"type": tensor_type(tensor), "shape": list(tensor.shape), **tensor_columns[name]}]
            for name, tensor in record.tensors.items()
        ]
        document["arrays"] = [
            [name, {"type": array.dtype.str, "shape": list(array.shape), **array_columns[name]}]
            if name in arrays
            else [name, objects[name]]
            for name, array in record.arrays.items()
        ]
        parts += [*array_parts, *encoder.parts(), json_part(_VALUES, document)]
        if _restorable([*tensors.values(), *arrays.values()], encoder, parts):
            break
    return write_parts(file, parts, about)


def read_record(path: Path) -> Record:
    """Read a record that `write_record` wrote.

    DamagedError, with the path and what was expected and found, for a file that was cut off, altered in any bit, or is
    not a record; FileNotFoundError when there is none. Nothing outside the file is read and nothing in it is executed.
    """
    return _read(path, lambda container: _record(_decode(container, StoredTensor.torch)))


def read_stored(path: Path) -> StoredRecord:
    """Do as `read_record`, without importing torch."""
    return _read(path, lambda container: _decode(container, lambda tensor: tensor))


def _record(found: StoredRecord) -> Record:
    tensors = {name: tensor.torch() for name, tensor in found.tensors.items()}
    return Record(tensors, found.arrays, found.meta, found.about)


def _read(path: Path, decode: Callable[[Container], _T]) -> _T:
    try:
        return decode(read_container(path))
    except (*_PARSE_ERRORS, RecursionError) as error:
        problem = error if isinstance(error, MalformedError) else f"its content has no meaning ({error!r})"
        raise damaged(path, problem) from None


def _about_text(about: Mapping[str, Any]) -> str:
    plain = dict(about)
    try:
        text = json.dumps(plain, allow_nan=False, separators=(",", ":"))
        same = json.loads(text) == plain
    except (TypeError, ValueError, RecursionError) as error:
        raise EncodingError(f"about: not plain JSON ({error}); use str, int, finite float, bool, None") from None
    if not same or len(text) > MAX_ABOUT_BYTES:
        raise EncodingError(
            f"about: plain JSON of at most {MAX_ABOUT_BYTES} characters expected; tuples and keys that are not str do "
            f"not come back from JSON as they were, and bulk belongs in meta"
        )
    return text


def _sources(tensors: Mapping[str, torch.Tensor]) -> dict[str, ByteSource]:
    sources = {}
    for name, tensor in tensors.items():
        _check_name("tensors", name)
        try:
            if not is_tensor(tensor):
                raise RefusedError(
                    f"a torch tensor expected, {type(tensor).__name__} found; store it in arrays or meta"
                )
            sources[name] = tensor_source(tensor)
        except RefusedError as refused:
            raise refused.at(f"tensors[{name!r}]") from None
    return sources


def _split_arrays(
    arrays: Mapping[str, npt.NDArray[Any]], encoder: Encoder
) -> tuple[dict[str, ByteSource], dict[str, Description]]:
    """Return numeric arrays as sources, and object arrays as descriptions."""
    sources: dict[str, ByteSource] = {}
    objects: dict[str, Description] = {}
    for name, array in arrays.items():
        _check_name("arrays", name)
        try:
            if not isinstance(array, np.ndarray):
                raise RefusedError(f"a numpy array expected, {type(array).__name__} found; store it in tensors or meta")
            if array.dtype == object:
                objects[name] = {"type": "object", **encoder.cells(array)}
            else:
                sources[name] = array_source(array)
        except RefusedError as refused:
            raise refused.at(f"arrays[{name!r}]") from None
    return sources, objects


def _meta(meta: Mapping[str, Any], encoder: Encoder) -> list[list[Any]]:
    pairs = []
    for name, value in meta.items():
        _check_name("meta", name)
        try:
            pairs.append([name, encoder.encode(value)])
        except RefusedError as refused:
            raise refused.at(f"meta[{name!r}]") from None
    return pairs


def _check_name(group: str, name: object) -> None:
    if type(name) is not str or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise EncodingError(f"{group}[{name!r}]: a str without surrogates expected as key; rename it")


def _restorable(sources: list[ByteSource], encoder: Encoder, parts: list[FilePart]) -> bool:
    """Return whether a reader's budget allows to restore the record from a file of this size."""
    restored = encoder.restored_bytes + sum(source.form.size_bytes(tuple(source.data.shape)) for source in sources)
    return restored <= memory_limit_bytes(sum(part.size_bytes for part in parts))


def _decode(container: Container, tensor_of: Callable[[StoredTensor], Any]) -> StoredRecord:
    budget = Budget(container.size_bytes)
    decoder = Decoder(container, budget, tensor_of)
    text = container.views[_VALUES].tobytes()
    document = json.loads(text, object_hook=decoder.hook, parse_constant=_refuse_constant)
    return StoredRecord(
        tensors=restore_tensors(_named(document["tensors"]), container, budget),
        arrays=restore_arrays(_named(document["arrays"]), container, budget),
        meta=_named(document["meta"]),
        about=container.about,
    )


def _named(pairs: list[list[Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs) or not all(type(name) is str for name in found):
        raise MalformedError("names that are str and differ expected")
    return found


def _refuse_constant(text: str) -> float:
    raise MalformedError(f"{text} is not JSON")


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
_SPLIT_LEVELS = 5  # document, group, column, its description, its cells
_CELLS_PER_PIECE = 256


def json_part(name: str, document: dict[str, Any]) -> FilePart:
    """Return the document as UTF-8 bytes. The text is made twice, once for its size, and is never whole in memory."""
    size = sum(len(piece) for piece in _pieces(document, _SPLIT_LEVELS))
    chunks = (np.frombuffer(piece, np.uint8) for piece in _pieces(document, _SPLIT_LEVELS))
    return FilePart(name, "U8", (size,), lambda: chunks)


def _pieces(tree: Any, levels: int) -> Iterator[bytes]:
    """Yield the text of a tree. Objects and lists are split down to `levels`, the last ones into runs of cells."""
    if not tree or not levels or not isinstance(tree, dict | list):
        yield _JSON.encode(tree).encode()
    elif isinstance(tree, dict):
        for number, (key, value) in enumerate(tree.items()):
            yield (b"," if number else b"{") + _JSON.encode(key).encode() + b":"
            yield from _pieces(value, levels - 1)
        yield b"}"
    elif levels > 1:
        for number, value in enumerate(tree):
            yield b"," if number else b"["
            yield from _pieces(value, levels - 1)
        yield b"]"
    else:
        for start in range(0, len(tree), _CELLS_PER_PIECE):
            text = _JSON.encode(tree[start : start + _CELLS_PER_PIECE])
            yield (b"," if start else b"[") + text[1:-1].encode()
        yield b"]"
