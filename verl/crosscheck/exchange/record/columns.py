# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How one tensor or numeric array of a record is stored: narrow, as a fill value, sparse, or as a slice of another.

Each way is lossless by bits. `plan_columns` looks at the data once and decides; the chunks of the parts look at it a
second time, block by block, when the file is written. `restoring.py` is the way back. See docs/format.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from verl.crosscheck.exchange.record.safetensors_file import FilePart
from verl.crosscheck.exchange.record.sources import ByteSource, Index
from verl.crosscheck.exchange.record.types import (
    CARRIER_OF_STORAGE,
    INTEGER_STORAGES,
    Carried,
    Form,
    storage_itemsize,
)

Description = dict[str, Any]
"""What the JSON says of one column: `type`, `shape`, and one of `in`, `fill`, `slice`; with `in` maybe `positions`."""

SPARSE_SHARE = 16
"""A float column is stored sparse when at most one of so many elements differs from +0.0 in any bit."""


def narrowest(source: ByteSource) -> tuple[str, int | None]:
    """Storage type of the source, and the one carrier value that all elements have, if they do."""
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
    """The source as contiguous blocks of the storage type."""
    for index in source.blocks():
        yield stored_block(source, storage, index)


def stored_block(source: ByteSource, storage: str, index: Index) -> Carried:
    """One block as a contiguous array of the storage type."""
    block = source.block(index)
    return np.ascontiguousarray(block, dtype="<" + CARRIER_OF_STORAGE[storage])


def plan_columns(
    group: str, sources: Mapping[str, ByteSource], *, compact: bool = True
) -> tuple[dict[str, Description], list[FilePart]]:
    """Decides how each column of `group` is stored.

    With `compact=False` every column is stored in full, only narrowed.
    Returns the descriptions (without `type` and `shape`) in the order of `sources`, and the parts to write.
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
    """A candidate whose leading or trailing columns equal the source bit by bit, and the first of those columns."""
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
    """Flat positions and carriers of the elements that are not +0.0, if they are few."""
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
