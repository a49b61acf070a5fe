# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rollouts as files: from `DataProto` to a record of the exchange and back, lossless, with the call they answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record import Record, read_record, write_record
from verl.crosscheck.identity import Call, CallKind, Prompts, require_same_call
from verl.protocol import DataProto

KIND = "rollout"


def identify_call(index: int, prompts: DataProto) -> Call:
    """The call that `prompts`, a batch of B rows as given to `generate_sequences`, makes."""
    fields: dict[str, Any] = dict(prompts.non_tensor_batch)
    if prompts.batch is not None:
        fields.update(prompts.batch.items())
    step = prompts.meta_info.get("global_steps")
    return Call(index, CallKind.of(prompts.meta_info), None if step is None else int(step), Prompts.of(fields))


def save_rollout(path: Path, call: Call, output: DataProto, *, replace: bool = False) -> int:
    """Publish `output`, what `call` returned, as the file `path`. Returns its size in bytes.

    Raises:
        EncodingError: `output` holds a value that the format cannot represent.
        PublishError: `path` is taken and `replace` is not set.
        OSError: the file system's own.
    """
    tensors = dict(output.batch.items()) if output.batch is not None else {}
    record = Record(
        tensors=tensors,
        arrays=output.non_tensor_batch,
        meta={"call": call.to_json(), "meta_info": output.meta_info},
        about={
            "kind": KIND,
            "index": call.index,
            "call": call.kind.value,
            "global_step": call.global_step,
            "rows": len(call.prompts.digests),
            "has_batch": output.batch is not None,
        },
    )
    return publish_file(path, lambda file: write_record(file, record), replace=replace)


def load_rollout(path: Path, own: Call | None, prompts: DataProto, advice: str) -> DataProto:
    """The rollout in `path`, for the caller that asked `prompts`.

    `uid` names rows within one process at random, so the caller's own is kept where the rollout carries one.

    Args:
        own: the call it must answer; None takes the answer to any call.
        advice: what to do if it answers another one.

    Raises:
        DamagedError: not a rollout, or not as it was written.
        MismatchError: it answers another call than `own`.
    """
    record = read_record(path)
    try:
        recorded = Call.from_json(record.meta["call"])
        meta_info = dict(record.meta["meta_info"])
        has_batch = bool(record.about["has_batch"])
    except (KeyError, TypeError, ValueError) as e:
        raise DamagedError(
            f"{path} is a record but not a rollout ({e!r}); name a file that a rollout was saved to"
        ) from None
    if own is not None:
        require_same_call(own, recorded, str(path), advice)
    arrays = dict(record.arrays)
    own_uid = prompts.non_tensor_batch.get("uid")
    if "uid" in arrays and own_uid is not None and len(own_uid) == len(arrays["uid"]):
        arrays["uid"] = own_uid
    batch = TensorDict(dict(record.tensors), batch_size=[_rows(record, recorded)]) if has_batch else None
    return DataProto(batch=batch, non_tensor_batch=arrays, meta_info=meta_info)


def _rows(record: Record, call: Call) -> int:
    first: torch.Tensor | None = next(iter(record.tensors.values()), None)
    return len(call.prompts.digests) if first is None else first.shape[0]
