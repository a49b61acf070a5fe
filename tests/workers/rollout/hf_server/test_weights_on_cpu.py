# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors survive the way through shared memory in their dtype, without copies on this side."""

import pickle

import pytest
import torch

from verl.workers.rollout.hf_server.weights import buckets, pack, unpack


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 5), (2, 3, 4)])
def test_round_trip(dtype, shape):
    tensor = (torch.randn(shape) * 3).to(dtype)
    back = unpack(pack("w", tensor))
    assert back.dtype == dtype and back.shape == tensor.shape
    assert torch.equal(back, tensor)


def test_shares_memory():
    tensor = torch.zeros(4, 4)
    back = unpack(pack("w", tensor))
    tensor[1, 2] = 5.0
    assert back[1, 2] == 5.0


def test_reads_bytes_that_cannot_be_written():
    packed = pack("w", torch.arange(4.0))
    packed.data.setflags(write=False)
    assert unpack(packed).tolist() == [0, 1, 2, 3]


def test_bytes_stay_out_of_the_pickle_stream():
    outside = []
    stream = pickle.dumps(pack("w", torch.zeros(10_000)), protocol=5, buffer_callback=outside.append)
    assert len(stream) < 1000 and sum(len(b.raw()) for b in outside) == 40_000


def test_a_view_is_sent_as_what_it_shows():
    tensor = torch.arange(6.0).reshape(2, 3).t()
    assert torch.equal(unpack(pack("w", tensor)), tensor)


@pytest.mark.parametrize(
    ("size_bytes", "expected"),
    [(1 << 20, [["a", "b", "c"]]), (32, [["a", "b"], ["c"]]), (16, [["a"], ["b"], ["c"]]), (1, [["a"], ["b"], ["c"]])],
)
def test_buckets_hold_at_most_their_size(size_bytes, expected):
    weights = iter([("a", torch.zeros(4)), ("b", torch.zeros(4)), ("c", torch.zeros(8))])
    assert [[p.name for p in bucket] for bucket in buckets(weights, size_bytes)] == expected


def test_no_weights_make_no_bucket():
    assert list(buckets([], 10)) == []
