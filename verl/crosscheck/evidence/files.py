# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence of steps as files: how log-probs are packed, how a file is written and read, and where a session keeps it.

Log-probs that are compared closely take three bytes, those of the reference policy two, a mask one bit for each token.
Three bytes are the upper three of float32, rounded: sign, exponent and 15 bits of the significand, so a value keeps a
relative precision of 2**-16, or 1.5e-5. Engines that round to bfloat16 differ by a thousand times that. What is
recorded is what is compared: evidence in memory has been rounded already, and equal numbers stay equal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.evidence.old_reasons import read_reason
from verl.crosscheck.evidence.step import MASK, REF, StepEvidence, TensorChange
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record.record import Record, StoredRecord, read_stored, write_record
from verl.crosscheck.settings import Detail, ShareMode

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
            "noise": dict(evidence.noise),
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
    record = read_stored(path)
    try:
        return _evidence(record)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as e:
        raise DamagedError(f"{path} is a record but not the evidence of a step ({e!r})") from None


def _evidence(record: StoredRecord) -> StepEvidence:
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
        noise=_floats(meta.get("noise", {})),  # files of 0.1.0 have none
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


Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

_LOWEST_BYTE = np.uint32(0xFF)
_HALF = np.uint32(0x80)
_NAN = np.uint32(0x7FC00000)


def round_to_24_bits(values: Floats) -> Floats:
    """`values` (float32, any shape) with the precision that `pack_24_bits` keeps; NaN and infinities stay."""
    bits = values.view(np.uint32)
    rounded = (bits + _HALF) & ~_LOWEST_BYTE
    np.copyto(rounded, _NAN, where=np.isnan(values))
    return rounded.view(np.float32)


def pack_24_bits(rounded: Floats) -> Bytes:
    """[L] floats as `round_to_24_bits` gives them, as bytes [L, 3]."""
    little = np.ascontiguousarray(rounded).astype("<f4", copy=False)
    return np.ascontiguousarray(little.view(np.uint8).reshape(-1, 4)[:, 1:])


def unpack_24_bits(packed: Bytes) -> Floats:
    """Inverse of `pack_24_bits`.

    Raises:
        ValueError: not bytes [L, 3].
    """
    if packed.ndim != 2 or packed.shape[1] != 3 or packed.dtype != np.uint8:
        raise ValueError(f"packed log-probs are bytes [L, 3], found {packed.dtype} {list(packed.shape)}")
    padded = np.zeros((len(packed), 4), np.uint8)
    padded[:, 1:] = packed
    return padded.view("<f4").reshape(-1).astype(np.float32, copy=False)


def round_to_16_bits(values: Floats) -> Floats:
    """`values` as float16 holds them, a relative precision of 2**-11; what is beyond its range becomes the nearest that
    is in it, infinities and NaN stay."""
    limit = np.float32(np.finfo(np.float16).max)
    within = np.where(np.isfinite(values), np.clip(values, -limit, limit), values)
    return within.astype(np.float16).astype(np.float32)


def pack_mask(mask: npt.NDArray[np.bool_]) -> Bytes:
    """[L] bool as bits, 8 a byte."""
    return np.packbits(mask)


def unpack_mask(packed: Bytes, count: int) -> npt.NDArray[np.bool_]:
    """Inverse of `pack_mask` for `count` values.

    Raises:
        ValueError: not as many bytes as that takes.
    """
    if packed.dtype != np.uint8 or packed.shape != ((count + 7) // 8,):
        raise ValueError(f"a mask of {count} is uint8 [{(count + 7) // 8}], found {packed.dtype} {list(packed.shape)}")
    return np.unpackbits(packed, count=count).astype(np.bool_)


def runs_newest_first(session: Path, mode: ShareMode) -> Iterator[RunNames]:
    """The runs of `mode` in the folder of a session; a resumed run comes before the one whose place it took."""
    for number in reversed(layout.run_numbers(filesystem.active().names(layout.runs_folder(session)), mode)):
        yield RunNames(layout.run_folder(session, mode, number))


def load_of_step(session: Path, mode: ShareMode, global_step: int) -> StepEvidence:
    """The evidence of a step.

    Raises:
        FileNotFoundError: no run of `mode` recorded that step.
        DamagedError: it is somebody else's, or not as it was written.
        OSError: the file system's own.
    """
    for names in runs_newest_first(session, mode):
        path = names.evidence(global_step)
        if path.exists():
            require_own_file(path)
            return load(path)
    raise FileNotFoundError(f"no run of mode {mode} in {session} recorded step {global_step}")
