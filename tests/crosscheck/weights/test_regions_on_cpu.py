# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Regions list the elements that indexing gives, and checksums of regions add up to the tensor's."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verl.crosscheck.weights.portable import checksum as module
from verl.crosscheck.weights.portable.checksum import MASK, checksum
from verl.crosscheck.weights.regions import box, flat_range, whole

SHAPES = st.lists(st.integers(1, 5), max_size=4).map(tuple)


@st.composite
def boxes(draw):
    shape = draw(SHAPES)
    offset = [draw(st.integers(0, extent)) for extent in shape]
    return shape, offset, [draw(st.integers(0, extent - first)) for extent, first in zip(shape, offset, strict=True)]


@st.composite
def ranges(draw):
    shape = draw(SHAPES)
    first = draw(st.integers(0, math.prod(shape)))
    return shape, first, draw(st.integers(0, math.prod(shape) - first))


def elements(region):
    return [each for first, count in region.runs() for each in range(first, first + count)]


@given(boxes())
def test_a_box(case):
    shape, offset, size = case
    index = torch.arange(math.prod(shape)).reshape(shape)
    expected = index[tuple(slice(first, first + count) for first, count in zip(offset, size, strict=True))]
    region = box(shape, offset, size)
    assert elements(region) == expected.flatten().tolist()
    assert region.elements == expected.numel()


@given(ranges())
def test_a_flat_range(case):
    shape, first, count = case
    region = flat_range(shape, first, count)
    assert elements(region) == list(range(first, first + count))
    assert region.elements == count


def test_runs_are_as_long_as_they_can_be():
    assert list(whole((7, 3, 5)).runs()) == [(0, 105)]
    assert list(box((7, 3, 5), (2, 0, 0), (4, 3, 5)).runs()) == [(30, 60)]
    assert list(box((4, 5), (1, 2), (2, 3)).runs()) == [(7, 3), (12, 3)]
    assert list(whole((0, 5)).runs()) == []


def plainly(values):
    """The sum of the definition, element by element, in Python's integers."""
    rows = values.reshape(-1, values.shape[-1]) if values.dim() else values.reshape(1, 1)
    width = 8 * values.element_size()
    total = 0
    for row, line in enumerate(rows.view({16: torch.int16, 32: torch.int32, 64: torch.int64}[width]).tolist()):
        for column, bits in enumerate(line):
            total += bits * weight(row, 0x6A09E667F3BCC908) * weight(column, 0xBB67AE8584CAA73B)
    return total % 2**64


def weight(index, seed):
    x = (index * 0x9E3779B97F4A7C15 + seed) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return (x ^ (x >> 31)) | 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (13,), (3, 4), (2, 3, 5)])
@pytest.mark.parametrize("block", [2, 1 << 18])
def test_the_checksum_is_the_sum_that_the_definition_says(monkeypatch, dtype, shape, block):
    monkeypatch.setattr(module, "_BLOCK_ELEMENTS", block)
    values = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)
    assert checksum(values, whole(shape)) == plainly(values)


@given(ranges())
def test_checksums_of_ranges_add_up(case):
    shape, first, count = case
    values = torch.arange(math.prod(shape), dtype=torch.float32)
    cuts = [(0, first), (first, count), (first + count, values.numel() - first - count)]
    parts = [checksum(values[at : at + size], flat_range(shape, at, size)) for at, size in cuts]
    assert sum(parts) & MASK == checksum(values, whole(shape))


def test_checksums_of_boxes_add_up():
    values = torch.randn(6, 5, 7)
    parts = [
        checksum(values[:, :, a:b].contiguous(), box(values.shape, (0, 0, a), (6, 5, b - a)))
        for a, b in ((0, 3), (3, 7))
    ]
    parts_of_the_middle = [
        checksum(values[:, a:b].contiguous(), box(values.shape, (0, a, 0), (6, b - a, 7))) for a, b in ((0, 2), (2, 5))
    ]
    assert sum(parts) & MASK == sum(parts_of_the_middle) & MASK == checksum(values, whole(values.shape))


def test_any_bit_and_any_exchange_of_places_changes_it():
    values = torch.randn(4, 6)
    before = checksum(values, whole(values.shape))
    changed = {before}
    for bit in range(32):
        other = values.clone()
        other.view(torch.int32)[2, 3] ^= 1 << bit if bit < 31 else -(2**31)
        changed.add(checksum(other, whole(values.shape)))
    for other in (values[[1, 0, 2, 3]], values[:, [0, 1, 2, 3, 5, 4]], values.flip(0, 1), -values, values.roll(1)):
        changed.add(checksum(other.contiguous(), whole(values.shape)))
    assert len(changed) == 1 + 32 + 5
    assert checksum(torch.tensor([0.0]), whole((1,))) != checksum(torch.tensor([-0.0]), whole((1,)))
