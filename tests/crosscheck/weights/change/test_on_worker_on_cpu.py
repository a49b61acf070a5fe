# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a rank remembers of its weights, with sums of squares worked out by hand."""

import pytest
import torch

from verl.crosscheck.weights.change import on_worker
from verl.crosscheck.weights.change.on_worker import ChangePart, WeightMemory
from verl.crosscheck.weights.tensors import LocalTensor


def parts(**tensors):
    return {
        name: LocalTensor(name, "parameter", (), torch.as_tensor(values), "not known")
        for name, values in tensors.items()
    }


def test_three_distances():
    remembered = WeightMemory()
    a, b = torch.tensor([1.0, 2.0]), torch.tensor([5.0])
    held = parts(a=a, b=b)
    remembered.remember(held)
    a += torch.tensor([3.0, 4.0])
    remembered.before_load(held, full=True)
    a.copy_(torch.tensor([1.0, 4.0]))
    b.fill_(7.0)
    changes = remembered.after_load(held)
    assert changes == {
        "a": ChangePart(own=25.0, elements=2, whole=None, other=4.0, apart=13.0),
        "b": ChangePart(own=0.0, elements=1, whole=None, other=4.0, apart=4.0),
    }


def test_changes_count_from_what_was_loaded():
    remembered, a = WeightMemory(), torch.zeros(3)
    remembered.remember(parts(a=a))
    remembered.before_load(parts(a=a), full=False)
    a.fill_(10.0)
    assert remembered.after_load(parts(a=a))["a"].other == 300.0
    a += 2.0
    assert remembered.own_change(parts(a=a))["a"].own == 12.0


def test_without_the_second_copy_the_distance_of_the_two_is_not_known():
    remembered, a = WeightMemory(), torch.zeros(3)
    remembered.remember(parts(a=a))
    a += 1.0
    remembered.before_load(parts(a=a), full=False)
    assert remembered.after_load(parts(a=a)) == {
        "a": ChangePart(own=3.0, elements=3, whole=None, other=3.0, apart=None)
    }


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_sums_are_exact_over_blocks_in_each_dtype(monkeypatch, dtype):
    monkeypatch.setattr(on_worker, "BLOCK_ELEMENTS", 4)
    remembered, a = WeightMemory(), torch.arange(11, dtype=dtype)
    remembered.remember(parts(a=a))
    a += torch.arange(11, dtype=dtype)
    assert remembered.own_change(parts(a=a))["a"].own == sum(i * i for i in range(11))


def test_changes_whose_squares_float32_cannot_hold():
    remembered, a = WeightMemory(), torch.zeros(2)
    remembered.remember(parts(a=a))
    a += 1e-30
    assert remembered.own_change(parts(a=a))["a"].own == pytest.approx(2e-60, rel=1e-6)


def test_a_weight_that_is_not_finite_shows():
    remembered, a = WeightMemory(), torch.zeros(2)
    remembered.remember(parts(a=a))
    a[1] = float("nan")
    assert remembered.own_change(parts(a=a))["a"].own != remembered.own_change(parts(a=a))["a"].own


def test_copies_are_made_once(monkeypatch):
    remembered, a = WeightMemory(), torch.zeros(2)
    remembered.remember(parts(a=a))
    monkeypatch.setattr(on_worker, "_copy", lambda local: pytest.fail("copied anew"))
    a += 1.0
    remembered.remember(parts(a=a))
    assert remembered.own_change(parts(a=a))["a"].own == 0.0


def test_an_empty_shard():
    remembered = WeightMemory()
    held = parts(a=torch.zeros(0), b=torch.zeros(1))
    remembered.remember(held)
    remembered.before_load(held, full=True)
    assert remembered.after_load(held)["a"] == ChangePart(own=0.0, elements=0, whole=None, other=0.0, apart=0.0)


def test_nothing_remembered():
    with pytest.raises(ValueError, match="not remembered"):
        WeightMemory().own_change(parts(a=torch.zeros(2)))


@pytest.mark.parametrize(
    ("other", "had", "has"), [({"a": [0.0]}, 2, 1), ({}, 2, None), ({"a": [0.0, 0.0], "b": [1.0]}, None, 1)]
)
def test_other_parameters_than_were_remembered(other, had, has):
    remembered = WeightMemory()
    remembered.remember(parts(a=torch.zeros(2)))
    with pytest.raises(ValueError, match=f"had {had} elements .* has {has} now"):
        remembered.own_change(parts(**other))


def test_a_load_that_was_not_announced():
    remembered = WeightMemory()
    remembered.remember(parts(a=torch.zeros(2)))
    with pytest.raises(ValueError, match="not measured before"):
        remembered.after_load(parts(a=torch.zeros(2)))
