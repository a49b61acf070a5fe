# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One tensor or numeric array of a record, from how `columns.py` stored it.

Every number is checked before it is used: a file may be hostile.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.exchange.record.decoding import object_array, stored_view, widened
from verl.crosscheck.exchange.record.limits import Budget, MalformedError, checked_shape
from verl.crosscheck.exchange.record.safetensors_reader import Container
from verl.crosscheck.exchange.record.types import (
    Carried,
    Form,
    array_form,
    array_type,
    as_array,
    as_tensor,
    tensor_form,
)

Description = dict[str, Any]
"""What the JSON says of one column; see `columns.py`."""


@dataclass(frozen=True)
class StoredColumn:
    """A column to restore."""

    form: Form
    shape: tuple[int, ...]
    description: Description

    @property
    def carried_shape(self) -> tuple[int, ...]:
        """Shape of the carriers."""
        return self.form.carried_shape(self.shape)


def restore_tensors(
    described: Mapping[str, Description], container: Container, budget: Budget
) -> dict[str, torch.Tensor]:
    """The tensors by name; the budget is claimed before anything is allocated."""
    columns = {}
    for name, description in described.items():
        form = tensor_form(description["type"])
        if form is None:
            raise MalformedError(f"column {name!r}: unknown type {description['type']!r}")
        columns[name] = StoredColumn(form, checked_shape(description["shape"]), description)
    restored = _restore_all(columns, container, budget)
    return {name: as_tensor(restored[name], description["type"]) for name, description in described.items()}


def restore_arrays(
    described: Mapping[str, Description], container: Container, budget: Budget
) -> dict[str, npt.NDArray[Any]]:
    """The numpy arrays by name, object arrays among them; the budget is claimed before anything is allocated."""
    columns, types = {}, {}
    for name, description in described.items():
        if description["type"] != "object":
            types[name] = array_type(description["type"])
            form = array_form(types[name])
            assert form is not None, "array_type gives only types that have a form"
            columns[name] = StoredColumn(form, checked_shape(description["shape"]), description)
    restored = _restore_all(columns, container, budget)
    return {
        name: as_array(restored[name], types[name], columns[name].shape)
        if name in columns
        else object_array(description)
        for name, description in described.items()
    }


def _restore_all(columns: Mapping[str, StoredColumn], container: Container, budget: Budget) -> dict[str, Carried]:
    for column in columns.values():
        budget.take(column.form.size_bytes(column.shape))
    return {name: _restore(name, columns, container) for name in columns}


def _restore(name: str, columns: Mapping[str, StoredColumn], container: Container) -> Carried:
    column = columns[name]
    description, form = column.description, column.form
    if "fill" in description:
        fill, limits = description["fill"], np.iinfo(form.carrier)
        highest = 1 if form.storage == "BOOL" else limits.max
        if type(fill) is not int or not limits.min <= fill <= highest:
            raise MalformedError(f"column {name!r}: {fill!r} is not a value of its type")
        return np.full(column.carried_shape, fill, form.carrier)
    if "positions" in description:
        return _scatter(name, column, container)
    stored = _sliced(name, columns, container) if "slice" in description else None
    if stored is None:
        stored = stored_view(description["in"], form, container)
    if stored.shape != column.carried_shape:
        raise MalformedError(f"column {name!r}: shape {column.carried_shape} expected, {stored.shape} found")
    return widened(stored, form)


def _sliced(name: str, columns: Mapping[str, StoredColumn], container: Container) -> Carried:
    column = columns[name]
    base, start = column.description["slice"]
    if columns[base].form != column.form or type(start) is not int or start < 0 or not column.shape:
        raise MalformedError(f"column {name!r} cannot be columns {start!r} of {base!r}")
    return stored_view(columns[base].description["in"], column.form, container)[..., start : start + column.shape[-1]]


def _scatter(name: str, column: StoredColumn, container: Container) -> Carried:
    positions = container.views[column.description["positions"]]
    values = stored_view(column.description["in"], column.form, container)
    if positions.dtype.kind not in "ui" or positions.ndim != 1 or positions.shape != values.shape:
        raise MalformedError(f"column {name!r}: one position per value expected")
    if positions.size and not 0 <= int(positions.min()) <= int(positions.max()) < math.prod(column.carried_shape):
        raise MalformedError(f"column {name!r}: a position lies outside of it")
    restored = np.zeros(column.carried_shape, column.form.carrier)
    restored.reshape(-1)[positions.astype(np.int64)] = values
    return restored
