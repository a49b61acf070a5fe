# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is recorded of a batch, by hand-computed values, and what is said of what it lacks."""

import numpy as np
import pytest
import torch
from evidence_fixtures import make_batch, make_update

from verl.crosscheck.evidence.step import MASK, REF, ROLLOUT, TRAIN
from verl.crosscheck.run.observe.gather import WITHOUT, blank_evidence, evidence_of_batch
from verl.crosscheck.settings import Detail

PROMPTS, RESPONSES = [[1, 2], [3], [4, 5]], [[7, 8, 9], [7], [6, 6]]


def recorded(update, detail=Detail.TOKENS, max_tokens=None):
    blank = blank_evidence(update, "ckpt", "run-a", 4, detail, {"temperature": 1.0})
    return evidence_of_batch(update, blank, max_tokens)


def by_length(evidence, name):
    """A column of rows in the order of their lengths, 1, 2, 3."""
    return evidence.rows[name][np.argsort(evidence.lengths)].tolist()


def test_numbers_of_rows():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES), step=9))
    assert (evidence.mode, evidence.run_id, evidence.global_step, evidence.update_index) == ("ckpt", "run-a", 9, 4)
    assert evidence.batch_rows == 3
    assert sorted(evidence.lengths.tolist()) == [1, 2, 3]
    assert by_length(evidence, "mask_tokens") == [1, 2, 3]
    assert by_length(evidence, "rollout_sum") == pytest.approx([-0.1, -0.3, -0.6])
    assert by_length(evidence, "train_sum") == pytest.approx([-0.11, -0.32, -0.63])
    assert by_length(evidence, "entropy_sum") == pytest.approx([0.25, 0.5, 0.75])
    assert by_length(evidence, "reward") == [1, 2, 3]
    assert by_length(evidence, "advantage_sum") == [-1, 0, 3]
    assert by_length(evidence, "advantage_abs_sum") == [1, 0, 3]
    assert by_length(evidence, "last_token") == [7, 6, 9]
    assert evidence.metrics["actor/grad_norm"] == 1.5
    assert evidence.metrics["actor/pg_loss"] == 0.5
    assert evidence.metrics["reward_mean"] == 2
    assert evidence.metrics["response_length_mean"] == 2
    assert evidence.metrics["entropy_mean"] == 0.25
    assert evidence.missing == {"tokens/ref": WITHOUT[REF]}


def test_numbers_of_tokens_follow_the_rows():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, ref=True)))
    starts = np.cumsum([0, *evidence.lengths[:-1]])
    for start, length in zip(starts, evidence.lengths, strict=True):
        row = slice(start, start + length)
        expected = -0.1 * np.arange(1, length + 1)
        assert evidence.tokens[ROLLOUT][row] == pytest.approx(expected, rel=2**-15)
        assert evidence.tokens[TRAIN][row] == pytest.approx(expected - 0.01, rel=2**-15)
        assert evidence.tokens[REF][row] == pytest.approx(expected - 0.5, rel=2**-10)
    assert evidence.tokens[MASK].all()
    assert len(evidence.tokens[MASK]) == 6
    assert evidence.missing == {}


def test_what_is_masked_within_a_response_is_kept_and_does_not_count():
    mask = torch.tensor([[1, 0, 1], [1, 0, 0], [1, 1, 0]])  # a tool's answer in the first one
    rollout = torch.tensor([[-0.5, torch.nan, -0.25], [-1.0, 0, 0], [-2.0, -3.0, 0]])
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, response_mask=mask, rollout_log_probs=rollout)))
    assert by_length(evidence, "mask_tokens") == [1, 2, 2]
    assert by_length(evidence, "rollout_sum") == [-1.0, -5.0, -0.75]
    assert evidence.lengths.sum() == 6
    assert evidence.tokens[MASK].sum() == 5
    assert np.isnan(evidence.tokens[ROLLOUT]).sum() == 1


def test_an_empty_response_has_no_last_token():
    mask = torch.tensor([[1, 1], [0, 0]])
    batch = make_batch([[1], [2]], [[7, 8], [5, 5]], response_mask=mask)
    batch.batch["attention_mask"][1, 1:] = 0
    evidence = recorded(make_update(batch))
    empty = int(np.argmin(evidence.lengths))
    assert evidence.lengths[empty] == 0
    assert evidence.rows["last_token"][empty] == -1
    assert evidence.rows["rollout_sum"][empty] == 0
    assert len(evidence.tokens[ROLLOUT]) == 2


def test_the_order_of_the_batch_does_not_matter():
    batch = make_batch(PROMPTS, RESPONSES)
    moved = batch.select_idxs([2, 0, 1])
    one, other = (recorded(make_update(each)) for each in (batch, moved))
    assert one.row_ids.tolist() == other.row_ids.tolist()
    assert one.tokens[TRAIN].tolist() == other.tokens[TRAIN].tolist()
    assert one.rows["reward"].tolist() == other.rows["reward"].tolist()


def test_a_budget_leaves_rows_out_of_the_tokens_and_is_told():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES)), max_tokens=4)
    assert evidence.lengths.sum() <= 4
    assert len(evidence.tokens[TRAIN]) == evidence.lengths.sum()
    assert evidence.batch_rows == 3
    assert evidence.metrics["reward_mean"] == 2  # of the whole batch


def test_a_summary_has_all_rows_and_no_tokens():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES)), Detail.SUMMARY, max_tokens=1)
    assert len(evidence.row_ids) == 3
    assert evidence.tokens == {}
    assert by_length(evidence, "train_sum") == pytest.approx([-0.11, -0.32, -0.63])


@pytest.mark.parametrize(
    ("name", "column"), [(ROLLOUT, "rollout_log_probs"), (TRAIN, "old_log_probs"), (REF, "ref_log_prob")]
)
def test_log_probs_that_are_not_there_are_missing_with_the_key_to_set(name, column):
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, ref=True, **{column: None})))
    assert name not in evidence.tokens
    assert f"{name}_sum" not in evidence.rows
    assert evidence.missing == {f"tokens/{name}": WITHOUT[name]}
    assert "actor_rollout_ref." in str(WITHOUT[name]) or "algorithm." in str(WITHOUT[name])


def test_log_probs_of_the_rollout_under_another_name_are_not_trainings():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, ref=True), recomputed=False))
    assert TRAIN not in evidence.tokens
    assert "bypass_mode" in str(evidence.missing["tokens/train"])


def test_entropies_that_are_not_there_are_missing():
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, ref=True), entropies=None))
    assert "entropy_sum" not in evidence.rows
    assert list(evidence.missing) == ["rows/entropy_sum"]
    assert "entropy_mean" not in evidence.metrics


def test_bfloat16_and_what_is_no_number_among_the_metrics():
    batch = make_batch(PROMPTS, RESPONSES)
    batch.batch["old_log_probs"] = batch.batch["old_log_probs"].bfloat16()
    metrics = {"actor/grad_norm": float("nan"), "text": "no number", "none": None}
    evidence = recorded(make_update(batch, metrics=metrics))
    assert evidence.tokens[TRAIN].dtype == np.float32
    assert np.isnan(evidence.metrics["actor/grad_norm"])
    assert "text" not in evidence.metrics


def test_columns_that_evidence_is_not_made_of_may_be_of_any_kind():
    ragged = torch.nested.nested_tensor([torch.ones(n) for n in (1, 2, 3)], layout=torch.jagged)
    evidence = recorded(make_update(make_batch(PROMPTS, RESPONSES, routed_experts=ragged)))
    assert len(evidence.row_ids) == 3
