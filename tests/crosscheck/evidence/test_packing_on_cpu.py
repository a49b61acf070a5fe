# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Log-probs in three bytes: what comes back, how far from what went in, and what is not lost."""

import numpy as np
import pytest

from verl.crosscheck.evidence.files import (
    pack_24_bits,
    pack_mask,
    round_to_16_bits,
    round_to_24_bits,
    unpack_24_bits,
    unpack_mask,
)


def test_rounded_values_come_back_bit_for_bit():
    rng = np.random.default_rng(0)
    values = -rng.exponential(2.0, 10_000).astype(np.float32)
    rounded = round_to_24_bits(values)
    assert (np.abs(rounded - values) <= np.abs(values) * 2.0**-16).all()
    assert (round_to_24_bits(rounded) == rounded).all()
    packed = pack_24_bits(rounded)
    assert packed.shape == (10_000, 3)
    assert packed.nbytes == 30_000
    assert unpack_24_bits(packed).tobytes() == rounded.tobytes()


def test_known_values():
    # 1 + 2**-15 is the next value after 1 that 15 bits of significand can say; half-way goes up
    values = np.array([0.0, -1.0, 1 + 2.0**-15, 1 + 2.0**-16, 1 + 2.0**-17], np.float32)
    assert round_to_24_bits(values).tolist() == [0.0, -1.0, 1 + 2.0**-15, 1 + 2.0**-15, 1.0]
    assert pack_24_bits(np.array([-1.0], np.float32)).tolist() == [[0x00, 0x80, 0xBF]]


def test_what_is_no_number_stays_none():
    odd = np.array([np.nan, -np.inf, np.inf, -0.0, np.float32(-1e-42)], np.float32)
    odd = np.append(odd, np.array([0x7F800001], np.uint32).view(np.float32))  # a NaN that rounding could make infinite
    back = unpack_24_bits(pack_24_bits(round_to_24_bits(odd)))
    assert np.isnan(back[[0, 5]]).all()
    assert back[1] == -np.inf
    assert back[2] == np.inf
    assert back[3] == 0
    assert np.signbit(back[3])
    assert abs(back[4]) < 1e-41


def test_reference_log_probs_keep_three_digits_and_their_sign_of_trouble():
    values = np.array([-1.2345678, -1e6, -np.inf, np.nan, -1e-7], np.float32)
    rounded = round_to_16_bits(values)
    assert rounded[0] == pytest.approx(-1.2345678, rel=2.0**-11)
    assert rounded[1] == -65504
    assert rounded[2] == -np.inf
    assert np.isnan(rounded[3])
    assert rounded.astype(np.float16).astype(np.float32)[4] == rounded[4]


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_masks_come_back(count):
    mask = np.random.default_rng(count).random(count) < 0.5
    packed = pack_mask(mask)
    assert packed.nbytes == (count + 7) // 8
    assert (unpack_mask(packed, count) == mask).all()


def test_what_is_of_another_shape_is_refused():
    with pytest.raises(ValueError, match=r"bytes \[L, 3\], found uint8 \[4, 2\]"):
        unpack_24_bits(np.zeros((4, 2), np.uint8))
    with pytest.raises(ValueError, match=r"a mask of 9 is uint8 \[2\], found uint8 \[1\]"):
        unpack_mask(np.zeros(1, np.uint8), 9)
