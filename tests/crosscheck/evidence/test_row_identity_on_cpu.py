# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rows of two runs find each other by their tokens, in whatever order each run has them."""

import numpy as np

from verl.crosscheck.evidence.row_identity import lowest_within, row_ids, unpadded


def tokens(*rows):
    return [np.array(row, np.int32) for row in rows]


def test_identity_is_of_content_not_of_place():
    prompts, responses = tokens([1, 2], [3], [1, 2]), tokens([7], [8, 9], [5])
    order = [2, 0, 1]
    ids = row_ids(prompts, responses)
    assert len(set(ids.tolist())) == 3
    moved = row_ids([prompts[i] for i in order], [responses[i] for i in order])
    assert moved.tolist() == ids[order].tolist()


def test_where_the_prompt_ends_counts():
    one, other = row_ids(tokens([1, 2], [1]), tokens([3], [2, 3])).tolist()
    assert one != other


def test_equal_rows_are_told_apart_in_the_order_of_reward_and_advantage():
    prompts, responses = tokens([1], [1], [1]), tokens([2], [2], [2])
    reward = np.array([0.0, 0.0, 0.0])
    advantage = np.array([0.5, -0.5, 0.1])
    ids = row_ids(prompts, responses, [reward, advantage])
    assert len(set(ids.tolist())) == 3
    order = [1, 2, 0]
    moved = row_ids(prompts, responses, [reward[order], advantage[order]])
    assert moved.tolist() == ids[order].tolist()
    # Without them the set is the same, so that responses can be looked up by it.
    assert set(row_ids(prompts, responses).tolist()) == set(ids.tolist())


def test_padding_is_left_out():
    prompts_BP = np.array([[0, 0, 5], [1, 2, 3]])
    responses_BT = np.array([[7, 0], [8, 9]])
    attention_BS = np.array([[0, 0, 1, 1, 0], [1, 1, 1, 1, 1]])
    prompts, responses = unpadded(prompts_BP, responses_BT, attention_BS)
    assert [row.tolist() for row in prompts] == [[5], [1, 2, 3]]
    assert [row.tolist() for row in responses] == [[7], [8, 9]]
    wider = np.array([[0, 0, 0, 1, 1, 0], [0, 1, 1, 1, 1, 1]])
    again = unpadded(np.pad(prompts_BP, ((0, 0), (1, 0))), responses_BT, wider)
    assert row_ids(*again).tolist() == row_ids(prompts, responses).tolist()


def test_both_runs_keep_the_same_rows():
    rng = np.random.default_rng(0)
    ids = rng.integers(0, 2**63, 100, dtype=np.uint64)
    lengths = rng.integers(1, 50, 100)
    kept = lowest_within(ids, lengths, 700)
    assert 700 - 50 < lengths[kept].sum() <= 700
    assert (np.diff(ids[kept].astype(np.float64)) > 0).all()
    order = rng.permutation(100)
    assert ids[order][lowest_within(ids[order], lengths[order], 700)].tolist() == ids[kept].tolist()


def test_at_least_one_row_is_kept_and_all_without_a_limit():
    ids, lengths = np.array([9, 4], np.uint64), np.array([10, 20])
    assert lowest_within(ids, lengths, 1).tolist() == [1]
    assert lowest_within(ids, lengths, None).tolist() == [1, 0]
    assert lowest_within(ids[:0], lengths[:0], 5).tolist() == []
