# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Values that are not tensors, from the JSON that `encoding.py` made of them.

Every number is checked before it is used: a file may be hostile. What fails here is a MalformedError or one of the
ordinary errors of parsing, which `record.py` turns into a DamagedError.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.exchange.record.limits import Budget, MalformedError, checked_shape
from verl.crosscheck.exchange.record.safetensors_reader import Container
from verl.crosscheck.exchange.record.types import (
    INTEGER_STORAGES,
    Carried,
    Form,
    array_form,
    array_type,
    as_array,
    as_tensor,
    tensor_form,
)

_T = TypeVar("_T")


class Decoder:
    """Turns parsed JSON back into values; `hook` is for `json.loads(object_hook=...)`, which calls it inside out."""

    def __init__(self, container: Container, budget: Budget) -> None:
        self._container = container
        self._budget = budget
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
        """A JSON object whose members are decoded already."""
        if "$" not in tree:
            return tree
        decode = self._kinds.get(tree["$"])
        if decode is None:
            raise MalformedError(f"unknown kind of value {tree['$']!r}")
        return decode(tree)

    def _bytes(self, tree: dict[str, Any]) -> bytes:
        return self._carriers(tree, Form("U8")).tobytes()

    def _tensor(self, tree: dict[str, Any]) -> torch.Tensor:
        form = tensor_form(tree["type"])
        if form is None:
            raise MalformedError(f"unknown tensor type {tree['type']!r}")
        return self._shared(tree, lambda: as_tensor(self._carriers(tree, form), tree["type"]))

    def _array(self, tree: dict[str, Any]) -> npt.NDArray[Any]:
        dtype = array_type(tree["type"])
        form = array_form(dtype)
        assert form is not None
        shape = checked_shape(tree["shape"])
        return self._shared(tree, lambda: as_array(self._carriers(tree, form), dtype, shape))

    def _shared(self, tree: dict[str, Any], make: Callable[[], _T]) -> _T:
        """One object per stored range, as it was one object when it was saved."""
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


def object_array(tree: dict[str, Any]) -> npt.NDArray[Any]:
    """An object array from its shape and decoded cells."""
    cells, shape = tree["of"], checked_shape(tree["shape"])
    if "rows" in tree:
        if not all(type(row) is int and row >= 0 for row in tree["rows"]):
            raise MalformedError("rows of an object array are not numbers")
        cells = [cells[row] for row in tree["rows"]]
    if not isinstance(cells, list) or math.prod(shape) != len(cells):
        raise MalformedError(f"an object array of shape {shape} has {len(cells)} cells")
    array = np.empty(len(cells), object)
    for row, cell in enumerate(cells):  # a slice assignment would unpack cells that are lists
        array[row] = cell
    return array.reshape(shape)


def stored_view(name: str, form: Form, container: Container) -> Carried:
    """The stored tensor `name`, if its type is one that this form may be stored as."""
    storage = container.storages[name]
    if storage != form.storage and not (form.narrowable and storage in INTEGER_STORAGES):
        raise MalformedError(f"tensor {name!r}: dtype {form.storage} expected, {storage} found")
    return container.views[name]


def widened(stored: Carried, form: Form) -> Carried:
    """The stored elements as carriers of the form, in memory of their own."""
    # numpy asks the kernel for huge pages, torch does not: restoring into numpy's memory is several times as fast.
    restored = np.empty(stored.shape, form.carrier)
    if form.storage == "BOOL":
        np.not_equal(stored, 0, out=restored.view(np.bool_))
    else:
        np.copyto(restored, stored, casting="unsafe")
    return restored
