# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How one tensor or numeric array of a record is stored: narrow, as a fill value, sparse, or as a slice of another.

Each way is lossless by bits. `plan_columns` looks at the data once and decides; the chunks of the parts look at it a
second time, block by block, when the file is written. `restore_tensors` and `restore_arrays` are the way back; they
check every number before it is used, since a file may be hostile. See docs/format.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.exchange.record.container import (
    CARRIER_OF_STORAGE,
    Budget,
    Container,
    FilePart,
    MalformedError,
    checked_shape,
    storage_itemsize,
)
from verl.crosscheck.exchange.record.types import (
    INTEGER_STORAGES,
    ByteSource,
    Carried,
    Form,
    StoredTensor,
    array_form,
    array_type,
    as_array,
    tensor_form,
)

Description = dict[str, Any]
"""What the JSON says of one column: `type`, `shape`, and one of `in`, `fill`, `slice`; with `in` maybe `positions`."""

SPARSE_SHARE = 16
"""A float column is stored sparse when at most one of so many elements differs from +0.0 in any bit."""


def narrowest(source: ByteSource) -> tuple[str, int | None]:
    """Return the storage type of the source, and the carrier value that all elements have, if they are equal."""
    low, high = None, None
    for index in source.blocks():
        block = source.block(index)
        if block.size:
            low = int(block.min()) if low is None else min(low, int(block.min()))
            high = int(block.max()) if high is None else max(high, int(block.max()))
    if low is None or high is None:
        return source.form.storage, None
    fill = low if low == high else None
    if not source.form.narrowable:
        return source.form.storage, fill
    own_bytes = source.form.carrier.itemsize
    for storage in INTEGER_STORAGES:
        limits = np.iinfo(CARRIER_OF_STORAGE[storage])
        if storage_itemsize(storage) < own_bytes and limits.min <= low and high <= limits.max:
            return storage, fill
    return source.form.storage, fill


def stored_chunks(source: ByteSource, storage: str) -> Iterator[Carried]:
    """Yield the source as contiguous blocks of the storage type."""
    for index in source.blocks():
        yield np.ascontiguousarray(source.block(index), dtype="<" + CARRIER_OF_STORAGE[storage])


def plan_columns(
    group: str, sources: Mapping[str, ByteSource], *, compact: bool = True
) -> tuple[dict[str, Description], list[FilePart]]:
    """Decide how each column of `group` is stored.

    With `compact=False` every column is stored in full, only narrowed.
    Return the descriptions (without `type` and `shape`) in the order of `sources`, and the parts to write.
    """
    found: dict[str, Description] = {}
    parts: list[FilePart] = []
    whole: list[str] = []  # columns stored in full: what a slice may refer to
    for name in sorted(sources, key=lambda key: -_width(sources[key])):
        source = sources[name]
        storage, fill = narrowest(source)
        if compact and fill is not None and source.form.lanes is None:
            found[name] = {"fill": fill}
            continue
        base = _find_slice(source, {key: sources[key] for key in whole}) if compact else None
        if base is not None:
            found[name] = {"slice": list(base)}
            continue
        stored = f"{group}/{name}"
        sparse = _nonzero(source) if compact else None
        if sparse is None:
            found[name] = {"in": stored}
            whole.append(name)
            parts.append(FilePart(stored, storage, source.shape, partial(stored_chunks, source, storage)))
        else:
            found[name] = {"in": stored, "positions": f"positions/{stored}"}
            parts += _sparse_parts(found[name], source.form, *sparse)
    return {name: found[name] for name in sources}, parts


def _width(source: ByteSource) -> int:
    return source.shape[-1] if source.shape else 1


def _find_slice(source: ByteSource, candidates: Mapping[str, ByteSource]) -> tuple[str, int] | None:
    """Find a candidate whose leading or trailing columns equal the source by bits, and the first of those columns."""
    if len(source.shape) < 2 or source.form.lanes is not None:
        return None
    for name, other in candidates.items():
        if other.form != source.form or other.shape[:-1] != source.shape[:-1]:
            continue
        for start in dict.fromkeys((0, _width(other) - _width(source))):
            if _is_slice(source, other, start):
                return name, start
    return None


def _is_slice(source: ByteSource, other: ByteSource, start: int) -> bool:
    columns = slice(start, start + _width(source))
    for index in source.blocks():
        # Blocks may cut the last axis too, in arrays of few and very long rows.
        last = index[-1] if len(index) == len(source.shape) else slice(None)
        own = slice(*last.indices(_width(source))) if isinstance(last, slice) else slice(last, last + 1)
        where = (*index, *([slice(None)] * (len(source.shape) - len(index))))[:-1]
        wanted = slice(columns.start + own.start, columns.start + own.stop)
        if not np.array_equal(source.block((*where, own)), other.block((*where, wanted))):
            return False
    return True


def _nonzero(source: ByteSource) -> tuple[Carried, Carried] | None:
    """Return flat positions and carriers of the elements that are not +0.0, if they are few."""
    if source.form.narrowable or source.form.lanes is not None or source.form.storage == "BOOL":
        return None
    limit = math.prod(source.shape) // SPARSE_SHARE
    positions: list[Carried] = []
    values: list[Carried] = []
    passed = count = 0
    for index in source.blocks():
        block = source.block(index).reshape(-1)
        at = np.flatnonzero(block)
        count += at.size
        if count > limit:
            return None
        positions.append(at + passed)
        values.append(block[at])
        passed += block.size
    return (np.concatenate(positions), np.concatenate(values)) if positions else None


def _sparse_parts(description: Description, form: Form, positions: Carried, values: Carried) -> list[FilePart]:
    where = ByteSource(positions, Form("I64", narrowable=True))
    storage, _ = narrowest(where)
    return [
        FilePart(description["in"], form.storage, values.shape, lambda: iter([values])),
        FilePart(description["positions"], storage, positions.shape, partial(stored_chunks, where, storage)),
    ]


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
) -> dict[str, StoredTensor]:
    """Return the tensors by name; the budget is claimed before anything is allocated."""
    columns = {}
    for name, description in described.items():
        form = tensor_form(description["type"])
        if form is None:
            raise MalformedError(f"column {name!r}: unknown type {description['type']!r}")
        columns[name] = StoredColumn(form, checked_shape(description["shape"]), description)
    restored = _restore_all(columns, container, budget)
    return {name: StoredTensor(description["type"], restored[name]) for name, description in described.items()}


def restore_arrays(
    described: Mapping[str, Description], container: Container, budget: Budget
) -> dict[str, npt.NDArray[Any]]:
    """Return the numpy arrays by name, object arrays included; the budget is claimed before anything is allocated."""
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


def object_array(tree: dict[str, Any]) -> npt.NDArray[Any]:
    """Return an object array from its shape and decoded cells."""
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
    """Return the stored tensor `name` if this form may be stored as its type."""
    storage = container.storages[name]
    if storage != form.storage and not (form.narrowable and storage in INTEGER_STORAGES):
        raise MalformedError(f"tensor {name!r}: dtype {form.storage} expected, {storage} found")
    return container.views[name]


def widened(stored: Carried, form: Form) -> Carried:
    """Return the stored elements as carriers of the form, in memory of their own."""
    # numpy asks the kernel for huge pages, torch does not: restoring into numpy's memory is several times as fast.
    restored = np.empty(stored.shape, form.carrier)
    if form.storage == "BOOL":
        np.not_equal(stored, 0, out=restored.view(np.bool_))
    else:
        np.copyto(restored, stored, casting="unsafe")
    return restored
