# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Both languages say everything: every member of every enum, every quantity, every label with the same values in it."""

# ruff: noqa: RUF001  the punctuation of Chinese

import inspect
import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

import verl.crosscheck.reasons
import verl.crosscheck.report
from recipe.crosscheck.bench.synthetic import SyntheticPlan, evidence_of_step
from verl.crosscheck.diagnosis import thresholds, training_checks
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase, State
from verl.crosscheck.diagnosis.log_probs import TOKEN_QUANTITIES
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.reasons import ReasonCode, because, free_text
from verl.crosscheck.report.model import Cell
from verl.crosscheck.report.texts import texts_of
from verl.crosscheck.run.observe.gather import WITHOUT

ENGLISH, CHINESE = texts_of("en"), texts_of("zh")
IS_CHINESE = re.compile(r"[\u4e00-\u9fff]")
both = pytest.mark.parametrize("texts", [ENGLISH, CHINESE], ids=["en", "zh"])


def fields_in(text):
    return sorted(name for _, name, _, _ in string.Formatter().parse(text) if name)


@both
@pytest.mark.parametrize(
    ("table", "enum"),
    [
        ("phases", Phase),
        ("confidence", Confidence),
        ("aspects", Aspect),
        ("cells", Cell),
        ("because", Because),
        ("next_actions", Next),
    ],
)
def test_every_member_has_words(texts, table, enum):
    assert set(getattr(texts, table)) == set(enum)


@both
def test_every_quantity_has_words(texts):
    shown = {*thresholds.LIMIT_NAMES, *TOKEN_QUANTITIES, *training_checks.METRICS, "tensors_not_matched"}
    shown |= {f"{side}_train_{kind}" for side in ("nll_minus_entropy",) for kind in ("mean", "z")}
    assert shown <= set(texts.quantities)
    assert set(training_checks.OUTCOMES) <= set(texts.outcomes)


def texts_of(texts):
    for table in ("phases", "confidence", "aspects", "quantities"):
        for key, named in getattr(texts, table).items():
            yield f"{table}/{key}/name", named.name
            yield f"{table}/{key}/meaning", named.meaning
    for table in ("cells", "because", "next_actions", "outcomes", "labels"):
        for key, text in getattr(texts, table).items():
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
            if finding.reason is not None:
                yield finding.state, finding.reason


def test_comparing_gives_reasons_as_codes():
    found = set(reasons_of_comparisons())
    assert len({reason.code for state, reason in found if state is State.MISSING}) > 10
    assert len({reason.code for state, reason in found if state is not State.MISSING}) > 5
    assert not [reason for _, reason in found if reason.code is ReasonCode.FREE_TEXT]


def test_both_catalogues_know_every_reason_with_the_same_parameters():
    assert set(CHINESE.reasons) == set(ENGLISH.reasons) == set(ReasonCode)
    wrong = [code for code in ReasonCode if fields_in(code.english) != fields_in(CHINESE.reasons[code])]
    assert not wrong


def test_every_reason_is_used():
    package = Path(verl.crosscheck.report.__file__).parents[1]
    own = ("reasons.py", "old_reasons.py", "zh_reasons.py")
    source = "".join(file.read_text() for file in package.rglob("*.py") if file.name not in own)
    source += inspect.getsource(verl.crosscheck.reasons.free_text)
    assert not [code for code in ReasonCode if not re.search(rf"ReasonCode\.{code.name}\b", source)]


@pytest.mark.parametrize("code", ReasonCode, ids=lambda code: code.value)
def test_a_chinese_reason_has_no_english_but_names_and_keys(code):
    """Without parameters, in which names stand, no two words of English follow one another."""
    text = re.sub(r"\{\w+\}|`[^`]*`|[\w.]*[._=][\w.=-]*", "", CHINESE.reasons[code])
    assert not re.search(r"[A-Za-z]+ [A-Za-z]+", text.replace("rollout skip", ""))
    assert IS_CHINESE.search(text) or not re.search("[A-Za-z]", text)


def test_reasons_keep_what_varies():
    some = because(
        ReasonCode.IN_SOME_STEPS, why=because(ReasonCode.SOME_ROWS, rows=3, all_rows=64), steps=2, all_steps=8
    )
    assert str(some) == ENGLISH.reason(some) == "3 of 64 rows (in 2 of 8 steps)"
    assert CHINESE.reason(some) == "64 条中的 3 条（8 步中有 2 步）"
    assert CHINESE.reason(because(ReasonCode.ONE_SIDED, names="{0} {x}")) == "只有一方知道：{0} {x}"
    assert CHINESE.reason(free_text("something new")) == "something new"
    assert str(because(ReasonCode.ONE_SIDED)) == "known on one side: ?"


def test_letters_of_the_runs_follow_the_scenario():
    assert ENGLISH.aspect(Aspect.ROLLOUT_TAKER, 1).name == "Rollout A to training B"
    assert ENGLISH.aspect(Aspect.ROLLOUT_TAKER, 2).name == "Rollout B to training A"
    assert "{" not in ENGLISH.aspect(Aspect.FORWARD, 2).meaning
