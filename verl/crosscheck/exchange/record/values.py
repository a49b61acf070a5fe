# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Values that are not columns, as JSON and back: what a cell of an object array or an entry of `meta` may be.

None, bool, int, finite float, str, list and dict with str keys are themselves. Everything else is a JSON object with
the key `$`, which names its kind; a dict that has that key is written as pairs, so `$` is never a user's. Tensors,
arrays and bytes inside values go to pools, one per storage type, and the JSON says where. Nothing is ever pickled.

On the way back every number is checked before it is used: a file may be hostile. What fails there is a MalformedError
or one of the ordinary errors of parsing, which `record` turns into a DamagedError.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from verl.crosscheck.exchange.record.columns import narrowest, object_array, stored_chunks, stored_view, widened
from verl.crosscheck.exchange.record.container import Budget, Container, FilePart, MalformedError, checked_shape
from verl.crosscheck.exchange.record.types import (
    ByteSource,
    Carried,
    Form,
    RefusedError,
    StoredTensor,
    array_form,
    array_source,
    array_type,
    as_array,
    is_tensor,
    tensor_form,
    tensor_source,
    tensor_type,
)

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")

MAX_DEPTH = 64
_INT64 = 1 << 63

_ADVICE = {
    "datetime": "store value.isoformat()",
    "date": "store value.isoformat()",
    "timedelta": "store value.total_seconds()",
    "set": "store sorted(value)",
    "frozenset": "store sorted(value)",
    "Decimal": "store str(value)",
    "PurePath": "store str(value)",
    "Enum": "store value.value",
    "UUID": "store str(value)",
    "Image": "store numpy.asarray(value), or leave out the column: the reader has its own images",
    "DictConfig": "store OmegaConf.to_container(value)",
    "ListConfig": "store OmegaConf.to_container(value)",
    "dict": "store dict(value)",
    "list": "store list(value)",
    "tuple": "store tuple(value)",
    "str": "store str(value)",
    "object": "convert it to None, bool, int, float, str, bytes, list, tuple, dict, a numpy array or a torch tensor",
}


class Encoder:
    """Turns values into JSON trees; keeps the tensors, arrays and bytes it met for the pools."""

    def __init__(self) -> None:
        self._depth = 0
        self._pools: dict[str, list[ByteSource]] = {}
        self._lengths: dict[str, int] = {}
        self._met: dict[int, dict[str, Any]] = {}
        self._alive: list[object] = []  # `_met` is keyed by id, which holds only while the object lives
        self.restored_bytes = 0
        """Memory the pooled values take once restored."""
        self._containers: dict[type, Callable[[Any], Any]] = {
            list: self._list,
            tuple: lambda value: {"$": "tuple", "of": self._list(value)},
            dict: self._dict,
            np.ndarray: self._array,
            bytes: self._bytes,
        }
        if "torch" in sys.modules:  # else no value is a tensor
            self._containers[sys.modules["torch"].Tensor] = self._tensor

    def encode(self, value: Any) -> Any:
        """Return the JSON tree of a value; RefusedError for what has none."""
        kind = type(value)
        if kind is str:
            return value if value.isascii() else _text(value)
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -_INT64 <= value < _INT64 else {"$": "int", "hex": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"$": "float", "hex": struct.pack(">d", value).hex()}
        container = self._containers.get(kind)
        if container is None:
            return self._rare(value)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise RefusedError(f"nested deeper than {MAX_DEPTH} levels, or contains itself; flatten it")
        try:
            return container(value)
        finally:
            self._depth -= 1

    def cells(self, array: npt.NDArray[Any]) -> dict[str, Any]:
        """Encode an object array of any shape; a container that several cells share is written once."""
        if type(array) is not np.ndarray:
            raise RefusedError(f"numpy {type(array).__name__} is not representable; store numpy.asarray(value)")
        trees: list[Any] = []
        rows: list[int] = []
        met: dict[int, int] = {}
        for value in array.reshape(-1):
            shared = type(value) in self._containers
            row = met.get(id(value)) if shared else None
            if row is None:
                row = len(trees)
                trees.append(self._cell(value, len(rows), array.shape))
                if shared:
                    met[id(value)] = row
            rows.append(row)
        found: dict[str, Any] = {"shape": list(array.shape), "of": trees}
        return found if len(trees) == len(rows) else {**found, "rows": rows}

    def parts(self) -> list[FilePart]:
        """Return the pools as parts to write."""
        return [
            FilePart(f"cells/{storage}", storage, (self._lengths[storage],), partial(self._chunks, storage))
            for storage in self._pools
        ]

    def _cell(self, value: Any, number: int, shape: tuple[int, ...]) -> Any:
        try:
            return self.encode(value)
        except RefusedError as refused:
            refused.trail.append("".join(f"[{i}]" for i in np.unravel_index(number, shape)))
            raise

    def _list(self, values: list[Any] | tuple[Any, ...]) -> list[Any]:
        trees: list[Any] = []
        try:
            for value in values:
                trees.append(self.encode(value))
        except RefusedError as refused:
            refused.trail.append(f"[{len(trees)}]")
            raise
        return trees

    def _dict(self, values: dict[Any, Any]) -> dict[str, Any]:
        trees: list[Any] = []
        keys = list(values)
        try:
            for value in values.values():
                trees.append(self.encode(value))
        except RefusedError as refused:
            refused.trail.append(f"[{keys[len(trees)]!r}]")
            raise
        if "$" not in values and all(type(key) is str and _is_unicode(key) for key in keys):
            return dict(zip(keys, trees, strict=True))
        return {"$": "dict", "of": [[self._key(key), tree] for key, tree in zip(keys, trees, strict=True)]}

    def _key(self, key: Any) -> Any:
        if key is None or isinstance(key, bool | int | float | str | bytes | tuple | np.generic):
            return self.encode(key)
        raise RefusedError(f"a dict key of type {type(key).__name__} is not representable; use a str")

    def _tensor(self, tensor: torch.Tensor) -> dict[str, Any]:
        return self._pooled(tensor, tensor_source(tensor), {"$": "tensor", "type": tensor_type(tensor)})

    def _array(self, array: npt.NDArray[Any]) -> dict[str, Any]:
        if array.dtype == object:
            return {"$": "objects", **self.cells(array)}
        return self._pooled(array, array_source(array), {"$": "array", "type": array.dtype.str})

    def _bytes(self, value: bytes, kind: str = "bytes") -> dict[str, Any]:
        return self._pooled(value, ByteSource(np.frombuffer(value, np.uint8), Form("U8")), {"$": kind})

    def _pooled(self, value: Any, source: ByteSource, tree: dict[str, Any]) -> dict[str, Any]:
        if id(value) in self._met:
            return self._met[id(value)]
        storage, _ = narrowest(source)
        at = self._lengths.get(storage, 0)
        self._pools.setdefault(storage, []).append(source)
        self._lengths[storage] = at + math.prod(source.shape)
        self.restored_bytes += math.prod(source.shape) * source.form.carrier.itemsize
        self._met[id(value)] = {**tree, "shape": list(source.data.shape), "in": f"cells/{storage}", "at": at}
        self._alive.append(value)
        return self._met[id(value)]

    def _chunks(self, storage: str) -> Iterator[Carried]:
        for source in self._pools[storage]:
            yield from stored_chunks(source, storage)

    def _rare(self, value: Any) -> Any:
        kind = type(value)
        if kind is np.str_:
            return {"$": "np.str", "of": self.encode(str.__str__(value))}  # str() strips NULs
        if kind is np.bytes_:
            return self._bytes(bytes(value), "np.bytes")
        if isinstance(value, np.generic) and array_form(value.dtype) is not None:
            return {"$": "scalar", "type": value.dtype.str, "hex": value.tobytes().hex()}
        if is_tensor(value):
            tensor_source(value)
        if isinstance(value, np.ndarray):
            array_source(value)
        advice = next((_ADVICE[base.__name__] for base in kind.__mro__ if base.__name__ in _ADVICE), _ADVICE["object"])
        raise RefusedError(f"{kind.__name__} is not representable; {advice}, or drop the key")


def _text(value: str) -> Any:
    return value if _is_unicode(value) else {"$": "str", "hex": value.encode("utf-8", "surrogatepass").hex()}


def _is_unicode(value: str) -> bool:
    """Return False with surrogates: UTF-8 and JSON cannot distinguish a pair of them from the character it makes."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


class Decoder:
    """Turns parsed JSON back into values; `hook` is for `json.loads(object_hook=...)`, which calls it inside out.

    Args:
        tensor_of: makes what stands for a tensor.
    """

    def __init__(self, container: Container, budget: Budget, tensor_of: Callable[[StoredTensor], Any]) -> None:
        self._container = container
        self._budget = budget
        self._tensor_of = tensor_of
        self._met: dict[tuple[Any, ...], Any] = {}
        self._kinds: dict[str, Callable[[dict[str, Any]], Any]] = {
            "tuple": lambda tree: tuple(tree["of"]),
            "dict": _pairs,
            "int": lambda tree: int(tree["hex"], 16),
            "float": lambda tree: _float(bytes.fromhex(tree["hex"])),
            "str": lambda tree: bytes.fromhex(tree["hex"]).decode("utf-8", "surrogatepass"),
            "scalar": lambda tree: np.frombuffer(bytes.fromhex(tree["hex"]), array_type(tree["type"]))[0],
            "np.str": lambda tree: np.str_(tree["of"]),
            "np.bytes": lambda tree: np.bytes_(self._bytes(tree)),
            "bytes": self._bytes,
            "tensor": self._tensor,
            "array": self._array,
            "objects": object_array,
        }

    def hook(self, tree: dict[str, Any]) -> Any:
        """Decode a JSON object whose members are decoded already."""
        if "$" not in tree:
            return tree
        decode = self._kinds.get(tree["$"])
        if decode is None:
            raise MalformedError(f"unknown kind of value {tree['$']!r}")
        return decode(tree)

    def _bytes(self, tree: dict[str, Any]) -> bytes:
        return self._carriers(tree, Form("U8")).tobytes()

    def _tensor(self, tree: dict[str, Any]) -> Any:
        form = tensor_form(tree["type"])
        if form is None:
            raise MalformedError(f"unknown tensor type {tree['type']!r}")
        return self._shared(tree, lambda: self._tensor_of(StoredTensor(tree["type"], self._carriers(tree, form))))

    def _array(self, tree: dict[str, Any]) -> npt.NDArray[Any]:
        dtype = array_type(tree["type"])
        form = array_form(dtype)
        assert form is not None
        shape = checked_shape(tree["shape"])
        return self._shared(tree, lambda: as_array(self._carriers(tree, form), dtype, shape))

    def _shared(self, tree: dict[str, Any], make: Callable[[], _T]) -> _T:
        """Return one object per stored range, as it was one object when it was saved."""
        key = (tree["$"], tree["type"], tree["in"], tree["at"], tuple(tree["shape"]))
        if 0 in tree["shape"]:
            return make()
        if key not in self._met:
            self._met[key] = make()
        shared: _T = self._met[key]
        return shared

    def _carriers(self, tree: dict[str, Any], form: Form) -> Carried:
        name, at = tree["in"], tree["at"]
        shape = form.carried_shape(checked_shape(tree["shape"]))
        pool = stored_view(name, form, self._container)
        count = math.prod(shape)
        if type(at) is not int or at < 0 or pool.ndim != 1 or at + count > pool.size:
            raise MalformedError(f"elements {at!r} to {at!r} + {count} lie outside pool {name!r}")
        self._budget.take(count * form.carrier.itemsize)
        return widened(pool[at : at + count].reshape(shape), form)


def _float(data: bytes) -> float:
    if len(data) != struct.calcsize(">d"):
        raise MalformedError(f"a float of {len(data)} bytes")
    value: float = struct.unpack(">d", data)[0]
    return value


def _pairs(tree: dict[str, Any]) -> dict[Any, Any]:
    found = dict(tree["of"])
    if len(found) != len(tree["of"]):
        raise MalformedError("a dict has a key twice")
    return found
