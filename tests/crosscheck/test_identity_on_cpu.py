# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Equal prompts have equal identities on any host; different ones are told apart, and shown."""

import numpy as np
import pytest
import torch

from verl.crosscheck.errors import EncodingError, MismatchError
from verl.crosscheck.identity import Call, CallKind, Prompts, digest, require_same_call


def chat(text):
    return [{"role": "user", "content": text}]


def column(*values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def call(*texts, index=3, kind=CallKind.TRAINING, step=2):
    return Call(index, kind, step, Prompts.of({"raw_prompt": column(*map(chat, texts))}, len(texts)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ((1, 2), [1, 2]),
        (np.int64(3), 3),
        (column("x", "y"), ["x", "y"]),
        (torch.arange(4)[::2], torch.tensor([0, 2])),
    ],
)
def test_equal_content_has_one_digest(one, other):
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["ab", "c"], ["a", "bc"]),
        ([["a"], "b"], ["a", "b"]),
        (1, "1"),
        (1, 1.0),
        (True, 1),
        (None, "None"),
        (torch.zeros(2, 3), torch.zeros(3, 2)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (b"x", "x"),
        ({"a": None}, {}),
    ],
)
def test_different_content_has_different_digests(one, other):
    assert digest(one) != digest(other)


def test_digests_stay_the_same_between_versions():
    # Two sites with unequal releases compare these: a change here is a change of the format.
    assert digest([{"role": "user", "content": "1+1="}]) == "f29ab025d6cf3aec645ecb6c0cdcefb3"


@pytest.mark.parametrize("value", [object(), {1, 2}, {"a": [object()]}, column(object())])
def test_what_has_no_known_content_has_no_identity(value):
    with pytest.raises(EncodingError, match="has no identity"):
        digest(value)


def test_prompts_without_identity_are_named():
    with pytest.raises(EncodingError, match="columns raw_prompt.*type object has no identity"):
        Prompts.of({"raw_prompt": column([{"role": "user", "content": object()}])}, 1)


def test_uid_is_no_part_of_the_question():
    fields = {"raw_prompt": column(chat("a")), "uid": column("random")}
    assert Prompts.of(fields, 1).digests == Prompts.of({"raw_prompt": column(chat("a"))}, 1).digests
    other = {"other": column("a")}
    assert Prompts.of({**other, "uid": column("1")}, 1).digests == Prompts.of(other, 1).digests


def test_a_batch_without_a_question_still_has_its_size():
    assert len(Prompts.of({"uid": column("1", "2")}, 2).digests) == 2


@pytest.mark.parametrize(
    ("one", "other"), [((1, 2), [1, 2]), (np.int64(1), 1), ({1: 0}, {"1": 0}), ({"a": 1, "b": 2}, {"b": 2, "a": 1})]
)
def test_exact_digests_tell_types_and_order_apart(one, other):
    assert digest(one) == digest(other)
    assert digest(one, exact=True) != digest(other, exact=True)
    assert digest(one, exact=True) == digest(one, exact=True)


@pytest.mark.parametrize(
    ("meta_info", "kind"),
    [
        ({}, CallKind.TRAINING),
        ({"do_sample": True, "validate": False}, CallKind.TRAINING),
        ({"do_sample": False}, CallKind.BASELINE),
        ({"do_sample": False, "validate": True}, CallKind.VALIDATION),
        ({"validate": True}, CallKind.VALIDATION),
    ],
)
def test_kinds(meta_info, kind):
    assert CallKind.of(meta_info) is kind


def test_the_same_call_passes_and_survives_json():
    own = call("1+1=", "2+2=")
    require_same_call(own, Call.from_json(own.to_json()), "rollout_3", "")


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        (call("1+1=", "2+2=", index=4), "its index is 4, expected 3"),
        (call("1+1=", "2+2=", kind=CallKind.VALIDATION), "its kind is validation, expected training"),
        (call("1+1=", "2+2=", step=5), "its global step is 5, expected 2"),
        (call("1+1="), "its batch has 1 rows, expected 2"),
        (call("1+1=", "3+3="), r"1 of 2 prompts differ, first in row 1: it asks '3\+3=', expected '2\+2='"),
        (call("2+2=", "1+1="), "2 of 2 prompts differ .the same prompts in another order., first in row 0"),
    ],
)
def test_the_first_difference_is_shown_with_both_values(recorded, message):
    with pytest.raises(MismatchError, match=message) as caught:
        require_same_call(call("1+1=", "2+2="), recorded, "rollout_3", "Do this.")
    assert "rollout_3 answers another call than this run's call 3 (training, global step 2)" in str(caught.value)
    assert str(caught.value).endswith("Do this.")


def test_prompts_that_only_differ_out_of_sight_are_said_to():
    with pytest.raises(MismatchError, match="which differ outside the part shown"):
        require_same_call(call("x" * 300 + "1"), call("x" * 300 + "2"), "rollout_3", "")


def test_long_prompts_are_shown_in_part():
    prompts = Prompts.of({"raw_prompt": column(chat("x" * 5000))}, 1)
    assert len(prompts.preview(0)) < 200
