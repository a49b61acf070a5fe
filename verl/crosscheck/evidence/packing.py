# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Log-probs in few bytes: three for those that are compared closely, two for the reference policy's, a bit for a mask.

Three bytes are the upper three of float32, rounded: sign, exponent and 15 bits of the significand, so a value keeps a
relative precision of 2**-16, or 1.5e-5. Rounding engines in bfloat16 are apart by a thousand times that. What is
recorded is what is compared: evidence in memory has been rounded already, and equal numbers stay equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

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
