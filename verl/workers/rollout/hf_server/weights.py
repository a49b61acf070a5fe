# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors on their way from a training worker to a server, in the dtype they have.

Ray keeps NumPy arrays out of its pickle stream and maps them into the receiver from shared memory; it does neither for
tensors, and NumPy has no bfloat16. So a tensor travels as a byte array that shares the tensor's memory: one copy into
shared memory, one from there into the model, none besides.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True)
class PackedTensor:
    """One tensor as bytes."""

    name: str
    data: npt.NDArray[np.uint8]
    """Its memory, contiguous."""
    dtype: str
    """Name in torch, such as `bfloat16`."""
    shape: tuple[int, ...]


def pack(name: str, tensor: torch.Tensor) -> PackedTensor:
    """`tensor` as bytes; shares its memory if it is contiguous and on the CPU."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return PackedTensor(
        name, flat.view(torch.uint8).numpy(), str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
    )


def unpack(packed: PackedTensor) -> torch.Tensor:
    """The tensor; shares the bytes, which may be read-only: copy from it, never write to it."""
    dtype = getattr(torch, packed.dtype)
    if packed.data.size == 0:
        return torch.empty(packed.shape, dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        flat = torch.from_numpy(packed.data)
    return flat.view(dtype).reshape(packed.shape)


def buckets(weights: Iterable[tuple[str, torch.Tensor]], size_bytes: int) -> Iterator[list[PackedTensor]]:
    """Group `weights` into lists of at most `size_bytes`, or of one tensor that alone is larger."""
    bucket: list[PackedTensor] = []
    held_bytes = 0
    for name, tensor in weights:
        packed = pack(name, tensor)
        if bucket and held_bytes + packed.data.nbytes > size_bytes:
            yield bucket
            bucket, held_bytes = [], 0
        bucket.append(packed)
        held_bytes += packed.data.nbytes
    if bucket:
        yield bucket
