# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts as files: from `DataProto` to a record and back, without loss, with the call that they answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from verl.crosscheck.errors import DamagedError, EncodingError, MismatchError
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record.record import Record, read_record, write_record
from verl.crosscheck.identity import Call, CallKind, Prompts, digest
from verl.protocol import DataProto

KIND = ArtefactKind.ROLLOUT.value


def identify_call(index: int, prompts: DataProto) -> Call:
    """Return the call that `prompts`, a batch of B rows as given to `generate_sequences`, makes."""
    fields: dict[str, Any] = dict(prompts.non_tensor_batch)
    if prompts.batch is not None:
        fields.update(prompts.batch.items())
    step = prompts.meta_info.get("global_steps")
    return Call(
        index, CallKind.of(prompts.meta_info), None if step is None else int(step), Prompts.of(fields, len(prompts))
    )


def save_rollout(
    path: Path,
    call: Call,
    prompts: DataProto,
    output: DataProto,
    *,
    stamp: Mapping[str, str] | None = None,
    replace: bool = False,
) -> int:
    """Publish `output`, what `call` returned for `prompts`, as the file `path`. Returns its size in bytes.

    With a colocated reward model, upstream's agent loop returns the columns it was given along with its own, images and
    the random `uid` included. Such echoes are saved by name only: the reader has the same columns, and takes its own.

    Args:
        stamp: who made it, in which session; kept in `about`.
        replace: whether a file already there may be replaced.

    Raises:
        EncodingError: `output` holds a value that the format cannot represent.
        PublishError: `path` is taken and `replace` is not set.
        OSError: the file system's own.
    """
    echoed = _echoed(prompts, output)
    record = Record(
        tensors=dict(output.batch.items()) if output.batch is not None else {},
        arrays={name: column for name, column in output.non_tensor_batch.items() if name not in echoed},
        meta={
            "call": call.to_json(),
            "columns": list(output.non_tensor_batch),
            "echoed": echoed,
            "meta_info": output.meta_info,
        },
        about={
            "kind": KIND,
            "index": call.index,
            "call": call.kind.value,
            "global_step": call.global_step,
            "rows": len(call.prompts.digests),
            "has_batch": output.batch is not None,
            **(stamp or {}),
        },
    )
    return publish_file(path, lambda file: write_record(file, record), replace=replace)


def load_rollout(
    path: Path, prompts: DataProto, advice: str, check: Callable[[Call], object] = lambda recorded: None
) -> DataProto:
    """Return the rollout in `path`, for a caller that has `prompts`.

    Args:
        advice: what to do if it cannot be used.
        check: is given the call that it answers, and raises if that is not the one that was made.

    Raises:
        DamagedError: not a rollout, or not as it was written.
        MismatchError: its echoed columns cannot be had from `prompts`; or what `check` raises.
    """
    try:
        record = read_record(path)
    except OSError as e:
        raise DamagedError(f"{path} cannot be read ({e.strerror}). {advice}") from None
    try:
        recorded = Call.from_json(record.meta["call"])
        columns, echoed = list(record.meta["columns"]), set(record.meta["echoed"])
        meta_info = dict(record.meta["meta_info"])
        has_batch = bool(record.about["has_batch"])
        complete = set(columns) == echoed | record.arrays.keys()
    except (KeyError, TypeError, ValueError) as e:
        raise _not_a_rollout(path, repr(e)) from None
    if not complete:
        raise _not_a_rollout(path, f"its columns are {sorted(record.arrays)}, expected {columns}")
    check(recorded)
    rows = len(recorded.prompts.digests)
    if echoed and (echoed - prompts.non_tensor_batch.keys() or len(prompts) != rows):
        raise MismatchError(
            f"{path} takes the columns {sorted(echoed)} of {rows} rows from the batch that asks, which has "
            f"{sorted(prompts.non_tensor_batch)} of {len(prompts)} rows. {advice}"
        )
    arrays = {name: prompts.non_tensor_batch[name] if name in echoed else record.arrays[name] for name in columns}
    try:
        batch = TensorDict(dict(record.tensors), batch_size=[_batch_size(record, rows)]) if has_batch else None
        return DataProto(batch=batch, non_tensor_batch=arrays, meta_info=meta_info)
    except (AssertionError, IndexError, RuntimeError, ValueError) as e:
        raise _not_a_rollout(path, f"its columns do not make a batch: {e}") from None


def _echoed(prompts: DataProto, output: DataProto) -> list[str]:
    """Return the names of the columns that `output` has from `prompts`, unchanged by their digests."""

    def same(name: str) -> bool:
        try:
            own, other = (digest(batch.non_tensor_batch[name], exact=True) for batch in (prompts, output))
        except EncodingError:  # saving it then says what it is
            return False
        return own == other

    return [name for name in output.non_tensor_batch if name in prompts.non_tensor_batch and same(name)]


def _not_a_rollout(path: Path, found: str) -> DamagedError:
    return DamagedError(f"{path} is a record but not a rollout ({found}); name a file that a rollout was saved to")


def _batch_size(record: Record, rows: int) -> int:
    first: torch.Tensor | None = next(iter(record.tensors.values()), None)
    return rows if first is None else first.shape[0]
