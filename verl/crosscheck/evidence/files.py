# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A step's evidence as a file: a record of the exchange (docs/format.md), about 6 bytes a response token, 8 with a
reference policy. Nothing in it is executed when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.evidence.old_reasons import read_reason
from verl.crosscheck.evidence.packing import pack_24_bits, pack_mask, unpack_24_bits, unpack_mask
from verl.crosscheck.evidence.step import MASK, REF, StepEvidence, TensorChange
from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record.record import Record, read_record, write_record
from verl.crosscheck.settings import Detail

KIND = "evidence"


def save(path: Path, evidence: StepEvidence) -> int:
    """Make the file `path`, or replace it: a step that is done again after a resume counts. Returns its size in bytes.

    Not flushed to the disk: what a node forgets that is lost within seconds, the report tells as missing.

    Raises:
        EncodingError: a value of `sampling` cannot be represented.
        OSError: the file system's own.
    """
    record = Record(
        arrays={
            "row_ids": evidence.row_ids,
            "lengths": evidence.lengths,
            **{f"rows/{name}": column for name, column in evidence.rows.items()},
            **{f"tokens/{name}": _packed(name, column) for name, column in evidence.tokens.items()},
        },
        meta={
            "metrics": dict(evidence.metrics),
            "sampling": dict(evidence.sampling),
            "weights": dict(evidence.weights),
            "changes": {name: asdict(change) for name, change in evidence.changes.items()},
            "timing_s": dict(evidence.timing_s),
            "missing": {name: reason.to_json() for name, reason in evidence.missing.items()},
        },
        about={
            "kind": KIND,
            "mode": evidence.mode,
            "run_id": evidence.run_id,
            "global_step": evidence.global_step,
            "update_index": evidence.update_index,
            "detail": evidence.detail.value,
            "batch_rows": evidence.batch_rows,
        },
    )
    return publish_file(path, lambda file: write_record(file, record), replace=True, durable=False)


def load(path: Path) -> StepEvidence:
    """The evidence in `path`.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: not evidence, or not as it was written.
    """
    record = read_record(path)
    try:
        return _evidence(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise DamagedError(f"{path} is a record but not the evidence of a step ({e!r})") from None


def _evidence(record: Record) -> StepEvidence:
    about, meta, arrays = record.about, record.meta, record.arrays
    if about["kind"] != KIND:
        raise ValueError(f"it is of kind {about['kind']!r}")
    ids, lengths = arrays["row_ids"], arrays["lengths"]
    rows = _group(arrays, "rows/")
    if ids.dtype != np.uint64 or lengths.dtype != np.int32 or (lengths < 0).any():
        raise ValueError(f"identities are {ids.dtype}, lengths {lengths.dtype}")
    for name, column in {"row_ids": ids, "lengths": lengths, **rows}.items():
        if column.shape != ids.shape or column.ndim != 1 or column.dtype.kind not in "biuf":
            raise ValueError(f"{name} is {column.dtype} {list(column.shape)} for {len(ids)} rows")
    count = int(lengths.sum(dtype=np.int64))
    return StepEvidence(
        mode=str(about["mode"]),
        run_id=str(about["run_id"]),
        global_step=int(about["global_step"]),
        update_index=int(about["update_index"]),
        detail=Detail(about["detail"]),
        batch_rows=int(about["batch_rows"]),
        row_ids=ids,
        lengths=lengths,
        rows=rows,
        tokens={name: _unpacked(name, column, count) for name, column in _group(arrays, "tokens/").items()},
        metrics=_floats(meta["metrics"]),
        sampling=dict(meta["sampling"]),
        weights={str(name): str(value) for name, value in meta["weights"].items()},
        changes={str(name): _change(**change) for name, change in meta["changes"].items()},
        timing_s=_floats(meta["timing_s"]),
        missing={str(name): read_reason(reason) for name, reason in meta["missing"].items()},
    )


def _packed(name: str, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if name == MASK:
        return pack_mask(column)
    return column.astype(np.float16) if name == REF else pack_24_bits(column)


def _unpacked(name: str, column: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    if name == MASK:
        return unpack_mask(column, count)
    values = column.astype(np.float32) if name == REF else unpack_24_bits(column)
    if values.shape != (count,):
        raise ValueError(f"{name} has {list(values.shape)} values for {count} tokens")
    return values


def _group(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    return {name.removeprefix(prefix): column for name, column in arrays.items() if name.startswith(prefix)}


def _change(own: Any, other: Any = None, apart: Any = None) -> TensorChange:
    """Norms are numbers: what compares them need not ask."""
    return TensorChange(float(own), None if other is None else float(other), None if apart is None else float(apart))


def _floats(values: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in values.items()}
