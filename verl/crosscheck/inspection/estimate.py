# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Estimate the disk space that a pair of runs needs, from the number of parameters of its model.

A checkpoint of upstream's FSDP workers holds the weights in float32 (4 bytes a parameter; `fsdp_config.model_dtype` is
fp32) and Adam's two moments in float32 (8 bytes). Measured with `recipe/crosscheck/model`: 12.5 bytes a parameter, of
which 0.5 is the frame around tensors this small.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import SettingsError

CHECKPOINT_BYTES = 12
"""Bytes of upstream's checkpoint for each parameter."""
PORTABLE_BYTES = 4
"""Bytes of a portable one: float32 weights alone."""

ROLLOUT_BYTES = 11
"""Bytes of a rollout for each token of prompt and response, text alone; 10.3 measured by `scripts/bench exchange`."""

_MAX_HEADER_BYTES = 100_000_000
_ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True)
class Estimate:
    """The disk space that a pair of runs needs.

    Args:
        source: where the number of parameters comes from.
        keep: checkpoints kept; one more is being written. None: all of `steps`.
        steps: steps that the rollouts are counted for; 0 leaves them out.
    """

    parameters: int
    source: str
    checkpoint_bytes: int
    keep: int | None
    steps: int
    rollout_bytes: int
    needed_bytes: int
    bytes_each: int


def estimate(
    parameters: int,
    source: str,
    *,
    keep: int | None = 2,
    steps: int = 0,
    rows: int = 0,
    tokens: int = 0,
    bytes_each: int = CHECKPOINT_BYTES,
) -> Estimate:
    """Return the disk space that a pair of runs needs.

    Args:
        keep: `trainer.share_data_keep_ckpts`; None keeps all.
        steps: how many steps will run.
        rows: rows of a rollout: prompts times responses to each.
        tokens: tokens of a row, prompt and response with their padding.
        bytes_each: of a checkpoint, for each parameter.
    """
    checkpoint_bytes = parameters * bytes_each
    rollout_bytes = rows * tokens * ROLLOUT_BYTES
    checkpoints = steps if keep is None else keep + 1
    return Estimate(
        parameters=parameters,
        source=source,
        checkpoint_bytes=checkpoint_bytes,
        keep=keep,
        steps=steps,
        rollout_bytes=rollout_bytes,
        bytes_each=bytes_each,
        needed_bytes=checkpoints * checkpoint_bytes + steps * rollout_bytes,
    )


def parameters_of(model: Path) -> tuple[int, str]:
    """Return the number of parameters in a model folder as transformers saves it, and which files say so.

    Raises:
        SettingsError: no file there says it; the error names the files that were looked for.
    """
    files = sorted(model.glob("*.safetensors"))
    if files:
        total = sum(_elements(file) for file in files)
        return total, f"the heads of {len(files)} safetensors file{'s' if len(files) > 1 else ''}"
    for name in ("model.safetensors.index.json", "pytorch_model.bin.index.json"):
        size_bytes = _json(model / name).get("metadata", {}).get("total_size") if (model / name).is_file() else None
        if isinstance(size_bytes, int):
            return size_bytes // _itemsize(model), f"{name} and config.json"
    shards = sorted(model.glob("pytorch_model*.bin"))
    if shards:
        return sum(file.stat().st_size for file in shards) // _itemsize(model), "the size of pytorch_model*.bin"
    raise SettingsError(
        f"{model} holds neither *.safetensors nor their index; give the number of parameters with --parameters 7e9"
    )


def _elements(file: Path) -> int:
    """Return the number of elements of all tensors in a safetensors file, from its header."""
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            if not 0 < length <= min(_MAX_HEADER_BYTES, os.fstat(opened.fileno()).st_size - 8):
                raise ValueError("its header has no length that fits")
            header = json.loads(opened.read(length))
        return sum(prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as e:
        raise SettingsError(
            f"{file} is no safetensors file ({e}), maybe a pointer to one that was not downloaded; give the number of "
            "parameters with --parameters 7e9"
        ) from None


def _itemsize(model: Path) -> int:
    config = _json(model / "config.json")
    inner = config.get("text_config")  # of the language model, where that is a part
    config = {**(inner if isinstance(inner, dict) else {}), **config}
    kind = config.get("dtype") or config.get("torch_dtype")
    return _ITEMSIZE.get(str(kind), 2)


def _json(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError) as e:
        raise SettingsError(f"{file} cannot be read ({e})") from None
    return found if isinstance(found, dict) else {}
