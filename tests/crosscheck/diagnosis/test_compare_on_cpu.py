# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One step of two runs: what agrees, what differs, and that nothing missing is ever taken for agreement."""

import re
from dataclasses import replace
from math import inf, log, nan, sqrt

import numpy as np
import pytest
from crosscheck.diagnosis.simulated import evidence

from verl.crosscheck.agreement.batch_split import BatchSplit
from verl.crosscheck.diagnosis.assess import reassess, state_of
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Aspect, State
from verl.crosscheck.diagnosis.thresholds import profile
from verl.crosscheck.evidence.step import MASK, REF, ROLLOUT, TRAIN, TensorChange
from verl.crosscheck.reasons import ReasonCode, because, free_text
from verl.crosscheck.settings import Detail

LIMITS = profile("dense_bf16")
AGREE, DIFFER, MISSING = State.AGREE, State.DIFFER, State.MISSING
LENGTHS = [6, 0, 4, 8, 5, 7]
TOKENS = sum(LENGTHS)
LOG_PROBS = np.log(np.linspace(0.1, 0.9, TOKENS)).astype(np.float32)


def pair(own=None, other=None, *, lengths=LENGTHS, ids=None, **more):
    """Sampler and taker, equal but for what is given of each."""
    ids = np.arange(len(lengths)) if ids is None else ids
    base = {ROLLOUT: LOG_PROBS, TRAIN: LOG_PROBS, REF: LOG_PROBS}
    sides = []
    for mode, change in (("ckpt", own or {}), ("rollout", other or {})):
        columns = base | change.pop("log_probs", {})
        sides.append(evidence(mode, ids, lengths, columns, **(more | change)))
    return sides


def found(sides, limits=LIMITS):
    return compare_step(*sides, limits)


def finding(comparison, aspect, quantity):
    (only,) = (each for each in comparison.findings if (each.aspect, each.quantity) == (aspect, quantity))
    return only


def state(comparison, aspect):
    return state_of(comparison.findings, aspect)


def test_equal_runs_agree_in_all_that_was_recorded():
    comparison = found(pair())
    agreeing = {aspect for aspect in Aspect if state(comparison, aspect) is AGREE}
    assert agreeing == set(Aspect) - {Aspect.SAMPLING, Aspect.ENDING, Aspect.INDEPENDENCE}
    assert not [each for each in comparison.findings if each.state is DIFFER]
    assert (comparison.rows, comparison.tokens, comparison.worst_rows) == (6, TOKENS, ())
    assert comparison.outcomes["reward"] == (0.5, 0.5)


def test_a_shift_of_the_rollout_is_measured_against_both_trainings():
    comparison = found(pair({"log_probs": {ROLLOUT: LOG_PROBS - 0.25}}, {"log_probs": {ROLLOUT: LOG_PROBS - 0.25}}))
    for aspect in (Aspect.ROLLOUT_TAKER, Aspect.ROLLOUT_SAMPLER):
        mean = finding(comparison, aspect, "logprob_abs_diff_mean")
        assert (mean.value, mean.limit, mean.state) == (pytest.approx(0.25), 0.05, DIFFER)
        assert finding(comparison, aspect, "k1").value == pytest.approx(-0.25)
    assert state(comparison, Aspect.FORWARD) is AGREE


def test_only_what_both_train_on_is_compared():
    mask = np.arange(TOKENS) % 3 > 0
    off = np.where(mask, LOG_PROBS, nan).astype(np.float32)
    comparison = found(pair({"log_probs": {TRAIN: off}}, mask=mask))
    assert comparison.tokens == mask.sum()
    assert finding(comparison, Aspect.FORWARD, "logprob_abs_diff_mean").value == 0
    assert state(comparison, Aspect.FORWARD) is AGREE


def test_the_worst_rows_are_named_worst_first():
    off = LOG_PROBS.copy()
    starts = np.cumsum(LENGTHS) - LENGTHS
    off[starts[3]] += 2.0
    off[starts[4] : starts[5]] += 0.1
    ids = np.asarray([7, 9, 11, 2**63 + 5, 2**63 + 6, 2**64 - 1], np.uint64)
    rows = found(pair({"log_probs": {TRAIN: off}}, ids=ids)).worst_rows
    forward = [(row.row_id, row.logprob_abs_diff_max) for row in rows if row.aspect is Aspect.FORWARD]
    assert forward == [(2**63 + 5, pytest.approx(2.0)), (2**63 + 6, pytest.approx(0.1, rel=1e-4))]
    assert rows[0].logprob_abs_diff_mean == pytest.approx(2.0 / 8)


def test_rows_are_matched_by_identity_not_by_place():
    one, other = pair()
    keep = np.asarray([0, 2, 3, 5])
    tokens = np.repeat(np.isin(np.arange(6), keep), LENGTHS)
    other = replace(
        other,
        row_ids=other.row_ids[keep],
        lengths=other.lengths[keep],
        rows={name: column[keep] for name, column in other.rows.items()},
        tokens={name: column[tokens] for name, column in other.tokens.items()},
    )
    comparison = found((one, other))
    assert (comparison.rows, comparison.tokens) == (4, 6 + 4 + 8 + 7)
    assert finding(comparison, Aspect.FORWARD, "logprob_abs_diff_max").value == 0
    unmatched = finding(comparison, Aspect.INPUTS, "rows_unmatched_share")
    assert (unmatched.state, unmatched.value) == (DIFFER, pytest.approx(2 / 6))  # a budget keeps the lowest
    assert str(unmatched.reason) == "2 of 6 rows are in one run alone"


def test_rows_that_a_budget_left_out_are_not_missed():
    one, other = pair()
    tokens = sum(LENGTHS[:4])
    other = replace(
        other,
        row_ids=other.row_ids[:4],
        lengths=other.lengths[:4],
        rows={name: column[:4] for name, column in other.rows.items()},
        tokens={name: column[:tokens] for name, column in other.tokens.items()},
    )
    unmatched = finding(found((one, other)), Aspect.INPUTS, "rows_unmatched_share")
    assert (unmatched.state, unmatched.value, str(unmatched.reason)) == (AGREE, 0.0, "4 rows that both runs kept")


MISSING_CASES = {
    "all-zero rollout": ({"log_probs": {ROLLOUT: np.zeros(TOKENS)}}, "0 in every token.*calculate_log_probs=True"),
    "empty masks": ({"mask": np.zeros(TOKENS, bool)}, "masks are empty"),
    "shape": ({"log_probs": {ROLLOUT: LOG_PROBS[:-1]}}, r"have the shape \(29,\), expected \(30,\)"),
}


@pytest.mark.parametrize("case", MISSING_CASES)
def test_what_cannot_be_compared_is_missing_with_its_reason(case):
    change, reason = MISSING_CASES[case]
    comparison = found(pair(dict(change), dict(change)))
    only = finding(comparison, Aspect.ROLLOUT_TAKER, "logprob_abs_diff_mean")
    assert only.state is MISSING and only.value is None
    assert re.search(reason, str(only.reason))
    assert state(comparison, Aspect.ROLLOUT_TAKER) is MISSING


def test_a_side_without_log_probs_tells_why():
    one, other = pair()
    one = replace(
        one,
        tokens={name: column for name, column in one.tokens.items() if name != ROLLOUT},
        rows={name: column for name, column in one.rows.items() if name != "rollout_sum"},
        missing={"tokens/rollout": free_text("set the flag")},
    )
    comparison = found((one, other))
    assert finding(comparison, Aspect.ROLLOUT_TAKER, "logprob_abs_diff_mean").reason == free_text("set the flag")
    assert state(comparison, Aspect.ROLLOUT_TAKER) is MISSING
    assert state(comparison, Aspect.FORWARD) is AGREE


def test_too_few_tokens_say_nothing():
    short = {ROLLOUT: np.full(3, -1.0), TRAIN: np.full(3, -1.0)}
    comparison = compare_step(
        evidence("ckpt", [1], [3], short), evidence("rollout", [1], [3], short | {TRAIN: np.full(3, -9.0)}), LIMITS
    )
    assert state(comparison, Aspect.FORWARD) is MISSING
    assert str(finding(comparison, Aspect.FORWARD, "k3").reason) == "fewer than 16 response tokens to compare"


@pytest.mark.parametrize("bad", [nan, inf, -inf])
def test_a_token_that_is_not_finite_differs(bad):
    off = LOG_PROBS.copy()
    off[3] = bad
    comparison = found(pair({"log_probs": {ROLLOUT: off}}, {"log_probs": {ROLLOUT: off}}))
    only = finding(comparison, Aspect.ROLLOUT_TAKER, "logprob_nonfinite_tokens")
    assert (only.value, only.state) == (1, DIFFER)
    assert finding(comparison, Aspect.OUTCOME, "sampler_nonfinite_rollout").state is DIFFER
    assert finding(comparison, Aspect.OUTCOME, "taker_nonfinite_train").state is AGREE
    assert state(comparison, Aspect.FORWARD) is AGREE


def test_log_probs_without_one_finite_number_differ():
    none = np.full(TOKENS, nan)
    comparison = found(pair({"log_probs": {TRAIN: none}}))
    assert finding(comparison, Aspect.FORWARD, "logprob_nonfinite_tokens").value is None
    assert state(comparison, Aspect.FORWARD) is DIFFER


def test_runs_without_a_common_row():
    one, other = pair()
    comparison = found((one, replace(other, row_ids=other.row_ids + np.uint64(100))))
    assert (comparison.rows, comparison.tokens) == (0, 0)
    assert finding(comparison, Aspect.INPUTS, "rows_unmatched_share").value == 1.0
    assert state(comparison, Aspect.INPUTS) is DIFFER
    for aspect in (Aspect.ROLLOUT_TAKER, Aspect.FORWARD, Aspect.SAMPLING):
        assert state(comparison, aspect) is MISSING


def test_evidence_without_rows():
    comparison = compare_step(evidence("ckpt", [], [], {}), evidence("rollout", [], [], {}), LIMITS)
    assert comparison.rows == 0
    assert state(comparison, Aspect.INPUTS) is MISSING


def test_other_steps_are_refused():
    one, other = pair()
    with pytest.raises(ValueError, match="step 1 of the sampler and step 2 of the taker"):
        found((one, replace(other, global_step=2)))


def test_summary_compares_sums_of_rows_and_says_what_is_lacking():
    off = LOG_PROBS.copy()
    off[:6] += 0.5  # the first row, 6 tokens
    sides = [
        replace(
            side, tokens={}, detail=Detail.SUMMARY, missing={"tokens": free_text("trainer.share_data_evidence=tokens")}
        )
        for side in pair({"log_probs": {TRAIN: off}})
    ]
    comparison = found(sides)
    assert comparison.tokens == 0
    by_rows = finding(comparison, Aspect.FORWARD, "logprob_row_diff_mean")
    assert (by_rows.value, by_rows.state) == (pytest.approx(6 * 0.5 / TOKENS), DIFFER)
    lacking = finding(comparison, Aspect.FORWARD, "logprob_abs_diff_mean")
    assert (lacking.state, str(lacking.reason)) == (MISSING, "trainer.share_data_evidence=tokens")
    assert state(comparison, Aspect.ROLLOUT_TAKER) is AGREE


ROWS = len(LENGTHS)
INPUT_CASES = {
    "reward": ({"rows": {"reward": np.asarray([0, 0, 1.0, 0, 0, 0])}}, "reward_rel_diff_max", 1.0),
    "nan reward": ({"rows": {"reward": np.asarray([0, 0, nan, 0, 0, 0])}}, "reward_rel_diff_max", None),
    "advantage": ({"rows": {"advantage_sum": np.zeros(ROWS)}}, "advantage_rel_diff", 1.0),
    "mask": ({"mask": np.arange(TOKENS) > 0}, "mask_diff_rows", 1.0),
    "batch": ({"batch_rows": 7}, "rows_unmatched_share", 1.0),
}


@pytest.mark.parametrize("case", INPUT_CASES)
def test_unequal_inputs_differ(case):
    change, quantity, value = INPUT_CASES[case]
    comparison = found(pair(None, dict(change)))
    only = finding(comparison, Aspect.INPUTS, quantity)
    assert (only.state, only.value) == (DIFFER, value)


UPDATE_CASES = {
    "gradient": ({"actor/grad_norm": 1.05}, "grad_norm_rel_diff", 0.05, DIFFER),
    "noise in the gradient": ({"actor/grad_norm": 1.01}, "grad_norm_rel_diff", 0.01, AGREE),
    "rate": ({"actor/lr": 1.1e-6}, "lr_rel_diff", 0.1, DIFFER),
    "small loss": ({"actor/pg_loss": 0.02}, "pg_loss_rel_diff", 0.01, AGREE),  # of a mean advantage of 1
    "large loss": ({"actor/pg_loss": 0.05}, "pg_loss_rel_diff", 0.04, DIFFER),
    "nan gradient": ({"actor/grad_norm": nan}, "grad_norm_rel_diff", None, DIFFER),
}


@pytest.mark.parametrize("case", UPDATE_CASES)
def test_updates(case):
    metrics, quantity, value, expected = UPDATE_CASES[case]
    base = {"actor/grad_norm": 1.0, "actor/pg_loss": 0.01, "actor/lr": 1e-6}
    comparison = found(pair({"metrics": base | metrics}, {"metrics": base}))
    only = finding(comparison, Aspect.UPDATE, quantity)
    assert (only.state, only.value) == (expected, None if value is None else pytest.approx(value))


@pytest.mark.parametrize("metrics", [{"actor/lr": 1e-6, "actor/pg_loss": 0.01}, {"actor/grad_norm": 0.0}])
def test_an_update_of_which_nothing_tells_was_not_compared(metrics):
    assert state(found(pair(metrics=metrics)), Aspect.UPDATE) is MISSING
    assert state(found(pair({"metrics": {"actor/grad_norm": 1.0}}, {"metrics": metrics})), Aspect.UPDATE) is not AGREE


@pytest.mark.parametrize(("own", "other", "counts"), [(nan, 0.1, (1, 0)), (0.1, nan, (0, 1)), (nan, nan, (0, 0))])
def test_a_metric_that_is_not_compared_tells_by_being_nan_in_one_run(own, other, counts):
    sides = [{"metrics": {"actor/grad_norm": 1.0, "actor/ppo_kl": each}} for each in (own, other)]
    comparison = found(pair(*sides))
    values = [finding(comparison, Aspect.OUTCOME, f"{who}_nonfinite_update").value for who in ("sampler", "taker")]
    assert tuple(values) == counts


WORKERS = {
    # workers of both, and which of learning rate and loss can be compared
    "alike": ("new fsdp", "new fsdp", AGREE, AGREE),
    "other back end": ("new fsdp", "new megatron", AGREE, MISSING),
    "other implementation": ("legacy fsdp", "new fsdp", MISSING, MISSING),
}


@pytest.mark.parametrize("case", WORKERS)
def test_metrics_that_the_workers_log_in_other_ways_accuse_nobody(case):
    own, other, lr, loss = WORKERS[case]
    off = 1.0 if AGREE in (lr, loss) else 2.0
    base = {"actor/grad_norm": 1.0, "actor/pg_loss": 0.5, "actor/lr": 1e-6}
    sides = [
        {
            "metrics": {**base, "actor/pg_loss": 0.5 * factor, "actor/lr": 1e-6 * factor},
            "sampling": {"workers": workers},
        }
        for workers, factor in ((own, off), (other, 1.0))
    ]
    comparison = found(pair(*sides))
    assert finding(comparison, Aspect.UPDATE, "lr_rel_diff").state is lr
    assert finding(comparison, Aspect.UPDATE, "pg_loss_rel_diff").state is loss
    assert state(comparison, Aspect.UPDATE) is AGREE


PORTIONS = {
    # ranks, mini-batches and whether each rank takes its own mean; whether the updates can be compared
    "alike": ((2, 4, True), (2, 4, True), AGREE),
    "one mini-batch": ((1, 1, False), (2, 1, False), AGREE),
    "other mini-batches": ((1, 2, False), (2, 2, False), MISSING),
    "other means": ((1, 1, True), (2, 1, True), MISSING),
}


@pytest.mark.parametrize("case", PORTIONS)
def test_updates_that_are_shared_out_otherwise_accuse_nobody(case):
    *portions, expected = PORTIONS[case]
    off = 1.0 if expected is AGREE else 3.0
    sides = [
        {
            "metrics": {"actor/grad_norm": factor, "actor/pg_loss": 0.5},
            "changes": {"a": TensorChange(3 * factor, 3, 3 * factor - 3)},
            "sampling": {"portions": BatchSplit(*each).to_json()},
        }
        for each, factor in zip(portions, (off, 1.0), strict=True)
    ]
    comparison = found(pair(*sides))
    assert state(comparison, Aspect.UPDATE) is expected
    for quantity in ("grad_norm_rel_diff", "change_rel_diff"):
        assert finding(comparison, Aspect.UPDATE, quantity).state is expected
    if expected is MISSING:
        assert "ranks here and 2 there" in str(finding(comparison, Aspect.UPDATE, "change_rel_diff").reason)


def test_advantages_of_critics_that_see_other_mini_batches_accuse_nobody():
    portions = [BatchSplit(ranks, 1, False, 4).to_json() for ranks in (2, 1)]
    sides = [
        {
            "sampling": {"portions": each},
            "rows": {"advantage_sum": np.full(len(LENGTHS), at), "advantage_abs_sum": np.full(len(LENGTHS), 1.0)},
        }
        for each, at in zip(portions, (1.0, 0.5), strict=True)
    ]
    comparison = found(pair(*sides))
    told = finding(comparison, Aspect.INPUTS, "advantage_rel_diff")
    assert told.state is MISSING and "critic.ppo_mini_batch_size" in str(told.reason)
    assert state(comparison, Aspect.UPDATE) is MISSING


@pytest.mark.parametrize(("form", "told"), [("portable", True), ("native", False), (None, False)])
def test_an_optimiser_state_of_its_own_is_told(form, told):
    comparison = found(pair(metrics={"actor/grad_norm": 1.0}, sampling={"ckpt_format": form}))
    reasons = [each.reason for each in comparison.findings if each.quantity == "optimiser_state"]
    assert reasons == ([because(ReasonCode.OWN_OPTIMISER_STATE)] if told else [])
    assert state(comparison, Aspect.UPDATE) is AGREE


def test_a_metric_that_is_nan_in_both_is_not_agreement():
    comparison = found(pair(metrics={"actor/grad_norm": nan}))
    assert finding(comparison, Aspect.UPDATE, "grad_norm_rel_diff").state is MISSING
    assert finding(comparison, Aspect.OUTCOME, "taker_nonfinite_update").state is DIFFER
    assert comparison.outcomes["grad_norm"] == (None, None)


def test_a_metric_of_one_run_alone_is_missing():
    comparison = found(pair({"metrics": {}}))
    assert "no actor/grad_norm from the run in mode ckpt" in str(
        finding(comparison, Aspect.UPDATE, "grad_norm_rel_diff").reason
    )


CHANGES = {
    "equal": ({"a": TensorChange(3, 3, 0), "b": TensorChange(4, 4, 0)}, 0.0, 0.0, AGREE),
    "one tensor": ({"a": TensorChange(0, 3, 3), "b": TensorChange(4, 4, 0)}, 3 / 5, 1.0, DIFFER),
    "ten times": ({"a": TensorChange(30, 3, 27), "b": TensorChange(40, 4, 36)}, 9.0, 9.0, DIFFER),
    "no update": ({"a": TensorChange(0, 3, 3), "b": TensorChange(0, 4, 4)}, 1.0, 1.0, DIFFER),
    "both none": ({"a": TensorChange(0, 0, 0)}, None, None, AGREE),  # by the gradient norm alone
    "norms alone": ({"a": TensorChange(6, 3), "b": TensorChange(4, 4)}, 3 / 5, 1.0, DIFFER),
    "noise in a bias": (
        {"k.bias": TensorChange(0.1, 0.1, 0.14), "b": TensorChange(4, 4, 0)},
        0.14 / 4.00125,
        0.0,
        AGREE,
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_change_of_the_weights(case):
    changes, whole, worst, expected = CHANGES[case]
    comparison = found(pair({"changes": changes}))
    whole_diff = finding(comparison, Aspect.UPDATE, "change_rel_diff").value
    assert whole_diff == (None if whole is None else pytest.approx(whole))
    if worst is not None:
        assert finding(comparison, Aspect.UPDATE, "change_rel_diff_max").value == pytest.approx(worst)
    assert state(comparison, Aspect.UPDATE) is expected


def test_the_tensor_is_named_and_changes_are_given_largest_first():
    changes = {"a": TensorChange(4, 4, 0.4), "b": TensorChange(0, 3, 3), "c": TensorChange(nan, 3, nan)}
    comparison = found(pair({"changes": {name: changes[name] for name in "ab"}}))
    assert list(comparison.changes.items()) == [("b", 1.0), ("a", pytest.approx(0.1))]
    assert finding(comparison, Aspect.UPDATE, "change_rel_diff_max").reason == because(ReasonCode.NAME, name="b")
    broken = found(pair({"changes": changes}))
    assert "NaN or infinite: c" in str(finding(broken, Aspect.UPDATE, "change_rel_diff").reason)
    assert list(broken.changes) == ["b", "a"]


def test_norms_of_both_runs_serve_where_one_did_not_measure_the_other():
    comparison = found(pair({"changes": {"a": TensorChange(2)}}, {"changes": {"a": TensorChange(4)}}))
    assert finding(comparison, Aspect.UPDATE, "change_rel_diff").value == 0.5


SYNC_CASES = {
    "equal": ({"sent/x": "1", "held/x": "1"}, 0, AGREE),
    "stale": ({"sent/x": "1", "held/x": "0", "sent/y": "1", "held/y": "1"}, 1, DIFFER),
    "silent engine": ({"sent/x": "1"}, None, MISSING),
    "nothing": ({}, None, MISSING),
}


@pytest.mark.parametrize("case", SYNC_CASES)
def test_weights_in_the_engine(case):
    weights, value, expected = SYNC_CASES[case]
    comparison = found(pair({"weights": weights}))
    only = finding(comparison, Aspect.SYNC, "tensors_out_of_sync")
    assert (only.value, only.state) == (value, expected)
    if expected is DIFFER:
        assert str(only.reason) == "of 2: x"


def ending(last, **sampling):
    known = {"stop_token_ids": [1, 2], "max_tokens": 8, **sampling}
    return finding(
        found(pair({"rows": {"last_token": np.asarray(last)}, "sampling": known})), Aspect.ENDING, "unfinished_share"
    )


def test_ends_of_responses():
    # lengths 6, 0, 4, 8, 5, 7: the empty one has no end, the one of 8 is at the limit
    assert (ending([1, -1, 2, 50, 1, 1]).value, ending([1, -1, 2, 50, 1, 1]).state) == (0.0, AGREE)
    two = ending([50, -1, 2, 50, 50, 1])
    assert (two.value, two.state, str(two.reason)) == (0.4, DIFFER, "2 of 5 responses")
    one = ending([50, -1, 2, 50, 1, 1])
    assert (one.value, one.state) == (0.2, AGREE)  # a single one may be an aborted request
    assert ending([1] * 6, stop_token_ids=[]).state is MISSING
    assert ending([1] * 6, multi_turn=True).state is MISSING
    assert ending([1] * 6, stop_token_ids=["1"]).state is MISSING
    assert ending([1] * 6, stop_token_ids=[10**30]).state is MISSING


def sampling(entropy, **how):
    """Sampling findings where every token has log-prob -1 and the given entropy."""
    lengths = [2] * 100
    columns = {name: np.full(200, -1.0) for name in (ROLLOUT, TRAIN, REF)}
    sides = [
        evidence(mode, np.arange(100), lengths, columns, entropies=np.full(200, entropy), sampling=how)
        for mode in ("ckpt", "rollout")
    ]
    comparison = compare_step(*sides, LIMITS)
    return {each.quantity: each for each in comparison.findings if each.aspect is Aspect.SAMPLING}


def test_tokens_less_likely_than_the_entropy_says():
    gaps = sampling(0.75)
    assert gaps["nll_minus_entropy_mean"].value == pytest.approx(0.25)
    assert gaps["nll_minus_entropy_z"].value == pytest.approx(sqrt(100))  # equal gaps of 100 rows
    assert gaps["nll_minus_entropy_z"].state is gaps["nll_minus_entropy_mean"].state is DIFFER
    assert gaps["nll_minus_entropy_mean"].reason == because(ReasonCode.HOTTER)


def test_tokens_likelier_than_the_entropy_says_allow_for_rare_ones():
    gaps = sampling(1.25)
    assert gaps["nll_minus_entropy_mean"].value == pytest.approx(0.25)
    z = 50 / sqrt(100 * 0.25 + 8 * (1 + log(200)) ** 2)
    assert gaps["nll_minus_entropy_z"].value == pytest.approx(z)
    assert gaps["nll_minus_entropy_mean"].state is AGREE
    assert sampling(2.0)["nll_minus_entropy_mean"].state is DIFFER


@pytest.mark.parametrize("how", [{"top_p": 0.9}, {"top_k": 50}, {"temperature": 0}])
def test_truncated_sampling_is_not_tested(how):
    assert sampling(0.2, **how)["nll_minus_entropy_mean"].state is MISSING


def test_no_limit_on_sampling_is_tested():
    assert sampling(1.0, top_p=1.0, top_k=-1, temperature=0.7)["nll_minus_entropy_mean"].state is AGREE


def test_sampling_is_not_read_where_log_probs_disagree():
    lengths = [2] * 100
    own, other = (np.full(200, value) for value in (-1.0, -3.0))
    sides = [
        evidence(mode, np.arange(100), lengths, {ROLLOUT: own, TRAIN: other}, entropies=np.full(200, 0.2))
        for mode in ("ckpt", "rollout")
    ]
    comparison = compare_step(*sides, LIMITS)
    gap = finding(comparison, Aspect.SAMPLING, "nll_minus_entropy_mean")
    assert gap.state is MISSING and "do not agree or" in str(gap.reason) and gap.value == pytest.approx(0.8)


def test_a_claim_that_another_distribution_beats_is_refuted():
    lengths = [2] * 100
    claimed, better = (np.full(200, value) for value in (-1.5, -1.0))
    sides = [
        evidence(mode, np.arange(100), lengths, {ROLLOUT: claimed, TRAIN: better}, entropies=np.full(200, 1.0))
        for mode in ("ckpt", "rollout")
    ]
    comparison = compare_step(*sides, LIMITS)
    assert finding(comparison, Aspect.SAMPLING, "logprob_gain_train_nats").value == pytest.approx(100)
    assert state(comparison, Aspect.SAMPLING) is DIFFER
    worse = [replace(side, rows={**side.rows, "train_sum": side.rows["train_sum"] - 2}) for side in sides]
    assert finding(compare_step(*worse, LIMITS), Aspect.SAMPLING, "logprob_gain_train_nats").value == 0


def test_other_limits_give_other_states_and_back():
    comparison = found(pair({"log_probs": {TRAIN: LOG_PROBS + np.float32(0.01)}}))
    assert state(comparison, Aspect.FORWARD) is AGREE
    tight = reassess(comparison, profile("dense_fp32"))
    assert state(tight, Aspect.FORWARD) is DIFFER
    assert reassess(tight, LIMITS) == comparison


def test_where_masks_do_not_fit_their_counts_by_row_are_compared():
    one, other = pair()
    one = replace(one, tokens={**one.tokens, MASK: one.tokens[MASK][:-1]})
    assert finding(found((one, other)), Aspect.INPUTS, "mask_diff_rows").state is AGREE
