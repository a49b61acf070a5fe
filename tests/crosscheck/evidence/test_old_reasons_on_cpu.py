# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Sentences of 0.1.0 are read as codes; reasons of today come back from JSON as they were."""

import json

import pytest

from verl.crosscheck.evidence.old_reasons import read_reason
from verl.crosscheck.reasons import Reason, ReasonCode, because, free_text

OLD = {
    "the rollout engine was not asked for log-probs: actor_rollout_ref.rollout.calculate_log_probs=True": because(
        ReasonCode.ROLLOUT_LOG_PROBS_OFF
    ),
    "the batch has no advantages": because(ReasonCode.NO_ADVANTAGES),
    "trainer.share_data_weight_change=norm; set full": because(ReasonCode.CHANGE_NORM),
    "the engine does not tell digests of the weights it holds": because(ReasonCode.NO_DIGESTS),
    "the workers could not measure it (RuntimeError: out of memory)": because(
        ReasonCode.CHANGE_ERROR, error="RuntimeError: out of memory"
    ),
    "this rollout engine (vLLMAsyncRollout) does not tell which weights it holds; only "
    "actor_rollout_ref.rollout.name=hf does. The rollout's log-probs, compared with training's, show stale "
    "weights": because(ReasonCode.ENGINE_WITHOUT_DIGESTS, engine="vLLMAsyncRollout"),
    "fewer than 16 response tokens to compare": because(ReasonCode.TOO_FEW_TOKENS, tokens=16),
    "run A-1 (mode ckpt) recorded no train log-probs of tokens": because(
        ReasonCode.NO_COLUMN, run="A-1", mode="ckpt", column="train"
    ),
    "3 of 64 rows": because(ReasonCode.SOME_ROWS, rows=3, all_rows=64),
    "3 of 64 responses": because(ReasonCode.SOME_RESPONSES, responses=3, all_responses=64),
    "2 of 6 rows are in one run alone": because(ReasonCode.ROWS_ALONE, rows=2, all_rows=6),
    "actor/grad_norm: 0.5 and nan": because(ReasonCode.TWO_NUMBERS, metric="actor/grad_norm", own="0.5", other="nan"),
    "hotter than claimed": because(ReasonCode.HOTTER),
    "all entropies are 0 (in 2 of 8 steps)": because(
        ReasonCode.IN_SOME_STEPS, why=because(ReasonCode.ENTROPIES_ZERO), steps=2, all_steps=8
    ),
    "model.layers.0.mlp.up_proj.weight": free_text("model.layers.0.mlp.up_proj.weight"),
    "a sentence of nobody": free_text("a sentence of nobody"),
}


@pytest.mark.parametrize("text", OLD)
def test_sentences_of_0_1_0(text):
    assert read_reason(text) == OLD[text]


@pytest.mark.parametrize("reason", OLD.values(), ids=str)
def test_there_and_back(reason):
    assert read_reason(json.loads(json.dumps(reason.to_json()))) == reason


def test_a_code_of_another_version_is_shown_by_its_text():
    assert read_reason({"code": "of_tomorrow", "params": {}, "text": "it rained"}) == free_text("it rained")
    assert read_reason({"code": "of_tomorrow"}) == free_text("of_tomorrow")


def nested(depth):
    return {"code": "own_unknown", "params": {"why": nested(depth - 1)}} if depth else "x"


@pytest.mark.parametrize(
    "value",
    [
        3,
        None,
        [],
        {},
        {"code": 1},
        {"code": "both", "params": []},
        {"code": "both", "params": {"own": None}},
        nested(9),
    ],
)
def test_what_is_no_reason_is_refused(value):
    with pytest.raises(ValueError, match="expected an object"):
        read_reason(value)


def test_parameters_are_text_whatever_they_hold():
    assert str(Reason(ReasonCode.ONE_SIDED, {"names": "{0} {names.__class__}"})) == (
        "known on one side: {0} {names.__class__}"
    )
