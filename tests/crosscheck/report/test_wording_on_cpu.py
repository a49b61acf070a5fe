# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Both languages say everything: every member of every enum, every quantity, every label with the same values in it."""

# ruff: noqa: RUF001  the punctuation of Chinese

import ast
import inspect
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

import verl.crosscheck.report
from recipe.crosscheck.synthetic_evidence import SyntheticPlan, evidence_of_step
from verl.crosscheck.agreement import table as agreement_table
from verl.crosscheck.diagnosis import thresholds, training_checks
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase, State
from verl.crosscheck.diagnosis.log_probs import TOKEN_QUANTITIES
from verl.crosscheck.diagnosis.reasons import Because, Next
from verl.crosscheck.report.model import Cell
from verl.crosscheck.report.wording import words_of
from verl.crosscheck.report.wording.zh_told import translated
from verl.crosscheck.run.observe.gather import WITHOUT

ENGLISH, CHINESE = words_of("en"), words_of("zh")
IS_CHINESE = re.compile(r"[\u4e00-\u9fff]")
both = pytest.mark.parametrize("words", [ENGLISH, CHINESE], ids=["en", "zh"])


def fields_in(text):
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)


@both
@pytest.mark.parametrize(
    ("table", "enum"),
    [
        ("phases", Phase),
        ("sureness", Confidence),
        ("aspects", Aspect),
        ("cells", Cell),
        ("because", Because),
        ("next_actions", Next),
    ],
)
def test_every_member_has_words(words, table, enum):
    assert set(getattr(words, table)) == set(enum)


@both
def test_every_quantity_has_words(words):
    shown = {*thresholds.LIMIT_NAMES, *TOKEN_QUANTITIES, *training_checks.METRICS, "tensors_not_matched"}
    shown |= {f"{side}_train_{kind}" for side in ("surprise_gap",) for kind in ("mean", "z")}
    assert shown <= set(words.quantities)
    assert set(training_checks.OUTCOMES) <= set(words.outcomes)


def texts_of(words):
    for table in ("phases", "sureness", "aspects", "quantities"):
        for key, named in getattr(words, table).items():
            yield f"{table}/{key}/name", named.name
            yield f"{table}/{key}/meaning", named.meaning
    for table in ("cells", "because", "next_actions", "outcomes", "labels"):
        for key, text in getattr(words, table).items():
            yield f"{table}/{key}", text


def test_both_languages_have_the_same_texts_with_the_same_values_in_them():
    english, chinese = dict(texts_of(ENGLISH)), dict(texts_of(CHINESE))
    assert english.keys() == chinese.keys()
    wrong = [key for key, text in english.items() if fields_in(text) != fields_in(chinese[key])]
    assert not wrong


def test_chinese_is_chinese():
    letters = {
        key
        for key, text in texts_of(CHINESE)
        if re.search("[A-Za-z]{3}", re.sub(r"\{\w+\}", "", text)) and not IS_CHINESE.search(text)
    }
    assert letters == {"labels/title"}  # the name of the command


def test_each_label_is_used_and_each_that_is_used_is_there():
    folder = Path(verl.crosscheck.report.__file__).parent
    source = "".join(file.read_text() for pattern in ("*.py", "templates/*.j2") for file in folder.glob(pattern))
    source += (folder.parent / "cli" / "report.py").read_text()
    asked = set(re.findall(r"""label\(\s*["'](\w+)["']""", source))
    assert asked <= set(ENGLISH.labels)
    unused = {key for key in ENGLISH.labels if not re.search(rf"""["']{key}["']""", source)} - MADE_UP
    assert not unused


MADE_UP = {"phase_fault", "phase_ok", "phase_unknown", "scenario_1", "scenario_2"}
MADE_UP |= {f"sure_ok_{level.value}" for level in Confidence}
"""Labels whose names the code puts together."""


def reasons_of_comparisons():
    """What comparing says of evidence that lacks this and that."""
    sampler, taker = evidence_of_step(SyntheticPlan(rows=32), 1)
    bare = {"tokens": {}, "rows": {}, "metrics": {}, "changes": {}, "missing": {}, "sampling": {}}
    pairs = [
        (sampler, taker),
        (replace(sampler, **bare), replace(taker, **bare)),
        (replace(sampler, missing={f"tokens/{name}": why for name, why in WITHOUT.items()}, tokens={}), taker),
        (sampler, replace(taker, row_ids=taker.row_ids + 1)),
        (replace(sampler, sampling={**sampler.sampling, "top_p": 0.9, "multi_turn": True}), taker),
        (replace(sampler, sampling={**sampler.sampling, "top_k": 50}), replace(taker, lengths=taker.lengths[::-1])),
        (sampler, replace(taker, metrics={**taker.metrics, "actor/grad_norm": float("nan")})),
        (replace(sampler, rows={**sampler.rows, "last_token": sampler.rows["last_token"] + 1}), taker),
        (
            replace(sampler, tokens={name: 0 * values for name, values in sampler.tokens.items()}),
            replace(taker, rows={**taker.rows, "reward": taker.rows["reward"] + 1}),
        ),
    ]
    for a, b in pairs:
        for finding in compare_step(a, b, thresholds.limits_for(sampler.sampling)).findings:
            if " " in finding.reason:  # else a name
                yield finding.state, finding.reason


def test_reasons_that_comparing_gives_are_translated():
    found = set(reasons_of_comparisons())
    assert len({reason for state, reason in found if state is State.MISSING}) > 10
    assert len({reason for state, reason in found if state is not State.MISSING}) > 5
    assert not [reason for _, reason in found if not IS_CHINESE.search(translated(reason))]


def test_reasons_for_allowed_differences_are_translated():
    assert not [rule.reason for rule in agreement_table.TABLE if not IS_CHINESE.search(translated(rule.reason))]


def test_missing_reasons_in_the_source_are_translated():
    """Constant texts that `missing` is called with, so that a new one is noticed here."""
    wrong = []
    for module in ("rollout_checks", "training_checks", "log_probs", "compare"):
        tree = ast.parse(inspect.getsource(__import__(f"verl.crosscheck.diagnosis.{module}", fromlist=["x"])))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") in ("missing", "unknown") and call.args:
                text = call.args[-1]
                if isinstance(text, ast.Constant) and not IS_CHINESE.search(translated(text.value)):
                    wrong.append(text.value)
    assert not wrong


def test_translation_keeps_what_varies_and_what_it_does_not_know():
    assert translated("3 of 64 responses (in 2 of 8 steps)") == "64 条回答中的 3 条（8 步中有 2 步）"
    assert translated("known on one side: {0} \\1 {9}") == "只有一方知道：{0} \\1 {9}"
    assert translated("something new") == "something new"


def test_letters_of_the_runs_follow_the_scenario():
    assert ENGLISH.aspect(Aspect.ROLLOUT_TAKER, 1).name == "Rollout A to training B"
    assert ENGLISH.aspect(Aspect.ROLLOUT_TAKER, 2).name == "Rollout B to training A"
    assert "{" not in ENGLISH.aspect(Aspect.FORWARD, 2).meaning
