# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Comparisons and verdicts survive JSON, and what is none of them is refused."""

import json
import math
from dataclasses import replace

import pytest

from verl.crosscheck.diagnosis.findings import (
    Aspect,
    Confidence,
    Finding,
    Phase,
    State,
    StepComparison,
    Verdict,
    VerdictEvidence,
    WorstRow,
)
from verl.crosscheck.diagnosis.findings_json import from_json, to_json
from verl.crosscheck.errors import DamagedError
from verl.crosscheck.reasons import ReasonCode, because, free_text

FINDINGS = (
    Finding(
        Aspect.FORWARD,
        "k3",
        State.DIFFER,
        0.5,
        0.005,
        True,
        because(ReasonCode.IN_SOME_STEPS, why=free_text("where"), steps=1, all_steps=2),
    ),
    Finding(Aspect.FORWARD, "pearson", State.AGREE, 0.99, 0.98, False),
    Finding(Aspect.SYNC, "tensors_out_of_sync", State.MISSING, reason=because(ReasonCode.NO_DIGESTS)),
)
COMPARISON = StepComparison(
    3,
    2,
    64,
    1000,
    FINDINGS,
    (WorstRow(2**64 - 1, Aspect.FORWARD, 0.25, 2.0),),
    {"layers.0": 0.5},
    {"reward": (0.5, None)},
    0.01,
)
VERDICT = Verdict(
    Phase.BOTH,
    Confidence.MEDIUM,
    3,
    8,
    ("update_differs",),
    (VerdictEvidence(1, 3, FINDINGS[0]),),
    {"sync/tensors_out_of_sync": because(ReasonCode.NO_DIGESTS)},
    ("get_control",),
    {"phases": {"rollout": {"steps": [3, 4]}}},
)


@pytest.mark.parametrize("found", [COMPARISON, VERDICT])
def test_there_and_back(found):
    text = json.dumps(to_json(found), allow_nan=False)
    assert from_json(json.loads(text)) == found


def test_numbers_that_json_lacks():
    odd = StepComparison(
        1,
        0,
        1,
        1,
        (Finding(Aspect.UPDATE, "x", State.DIFFER, math.inf, 0.1),),
        outcomes={"loss": (math.nan, -math.inf)},
    )
    back = from_json(json.loads(json.dumps(to_json(odd), allow_nan=False)))
    assert back.findings == odd.findings
    assert math.isnan(back.outcomes["loss"][0]) and back.outcomes["loss"][1] == -math.inf


def test_no_first_step():
    none = replace(VERDICT, first_step=None)
    assert from_json(to_json(none)).first_step is None


def test_unknown_keys_are_ignored():
    data = to_json(COMPARISON)
    data["of_tomorrow"] = 1
    data["findings"][0]["of_tomorrow"] = 1
    assert from_json(data) == COMPARISON


def put(path, value):
    def change(data):
        *way, last = path
        for key in way:
            data = data[key]
        data[last] = value

    return change


BAD = {
    "kind": (put(["kind"], "poem"), "kind is 'poem', expected step_comparison or verdict"),
    "aspect": (
        put(["findings", 0, "aspect"], "mood"),
        r"has 'mood' in field 'findings\[0\].aspect', expected one of inputs, rollout_taker",
    ),
    "state": (put(["findings", 0, "state"], None), r"has None in field 'findings\[0\].state'"),
    "value": (put(["findings", 0, "value"], "much"), r"has 'much' in field 'findings\[0\].value', expected number"),
    "bool": (put(["findings", 0, "value"], True), r"has True in field 'findings\[0\].value', expected number"),
    "above": (put(["findings", 0, "above_is_bad"], 1), r"has 1 in field 'findings\[0\].above_is_bad', expected bool"),
    "step": (put(["global_step"], 1.5), "has 1.5 in field 'global_step', expected int"),
    "findings": (put(["findings"], {}), "has {} in field 'findings', expected list"),
    "a finding": (put(["findings", 0], 3), r"has 3 in field 'findings\[0\]', expected dict"),
    "row": (put(["worst_rows", 0, "row_id"], "xyz"), r"has 'xyz' in field 'worst_rows\[0\].row_id'"),
    "outcome": (
        put(["outcomes", "reward"], [1]),
        r"has {'reward': \[1\]} in field 'outcomes', expected list of length 2",
    ),
    "changes": (put(["changes"], None), "has None in field 'changes', expected dict"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_not_a_comparison_is_refused(case):
    change, message = BAD[case]
    data = to_json(COMPARISON)
    change(data)
    with pytest.raises(DamagedError, match=message):
        from_json(data)


def test_what_is_not_a_verdict_is_refused():
    data = to_json(VERDICT)
    data["phase"] = "lunch"
    with pytest.raises(DamagedError, match="has 'lunch' in field 'phase'"):
        from_json(data)
    with pytest.raises(DamagedError, match="kind is 'list', expected step_comparison or verdict"):
        from_json([])


def test_a_verdict_has_the_words_of_0_1_0_too():
    phases = {"rollout": {"confidence": "medium"}, "training_update": {"confidence": "high"}}
    data = to_json(replace(VERDICT, confidence=Confidence.MEDIUM, details={"phases": phases, "more": 1}))
    assert (data["confidence"], data["sureness"]) == ("medium", "fair")
    assert data["details"] == {
        "more": 1,
        "phases": {
            "rollout": {"confidence": "medium", "sureness": "fair"},
            "training_update": {"confidence": "high", "sureness": "high"},
        },
    }


def test_a_verdict_of_0_1_0_is_read():
    data = {**to_json(VERDICT), "sureness": "fair", "not_compared": {"sync": "the batch has no advantages"}}
    del data["confidence"], data["not_compared_reasons"]
    found = from_json(data)
    assert found.confidence is Confidence.MEDIUM
    assert found.not_compared == {"sync": because(ReasonCode.NO_ADVANTAGES)}


def test_names_and_texts_of_0_1_0_are_read():
    data = to_json(COMPARISON)
    data["findings"] = [
        {
            "aspect": "sampling",
            "quantity": "surprise_gap_mean",
            "state": "differ",
            "value": 0.1,
            "reason": "3 of 64 rows",
        }
    ]
    del data["schema"], data["schema_version"]
    (found,) = from_json(data).findings
    assert (found.quantity, found.reason) == (
        "nll_minus_entropy_mean",
        because(ReasonCode.SOME_ROWS, rows=3, all_rows=64),
    )
