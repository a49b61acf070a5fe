# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Digests of tensors, by which the weights that were sent are compared with those that are held.

A tensor of more than `SAMPLE_ELEMENTS` elements is digested by that many of them at most, evenly spread, and its last
one, so that the cost is bounded: at 65,536 elements about a millisecond a tensor. A whole tensor that is stale is found
all the same; a wrong part of a large one may be missed.
"""

from __future__ import annotations

import hashlib

import torch

SAMPLE_ELEMENTS = 1 << 16

_DIGEST_BYTES = 8


def digest(tensor: torch.Tensor, dtype: torch.dtype) -> str:
    """Digest of a tensor's shape and values once they are taken to `dtype`, as hexadecimal digits."""
    flat = tensor.detach().reshape(-1)
    if flat.numel() > SAMPLE_ELEMENTS:
        step = -(-flat.numel() // SAMPLE_ELEMENTS)
        flat = torch.cat([flat[::step], flat[-1:]])
    values = flat.to("cpu", dtype).contiguous().view(torch.uint8).numpy()
    state = hashlib.blake2b(f"{dtype} {tuple(tensor.shape)} ".encode(), digest_size=_DIGEST_BYTES)
    state.update(values.data)
    return state.hexdigest()
