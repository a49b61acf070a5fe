# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The page as text: whole, self-contained, and deaf to what files say."""

import html.parser
import re
from dataclasses import replace
from pathlib import Path

import pytest

from verl.crosscheck.diagnosis.findings import Aspect, Finding, Phase, State
from verl.crosscheck.reasons import free_text
from verl.crosscheck.report import charts, page_scenario
from verl.crosscheck.report.model import Cell, Control, SettingRow
from verl.crosscheck.report.page import render
from verl.crosscheck.report.page_scenario import layer_changes, layer_label
from verl.crosscheck.report.texts import texts_of

EVIL = "</script></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}$x^2$&\x00"


LOADING = ("src", "href", "xlink:href", "action", "data", "srcset", "poster")
"""Attributes that can load something."""


class Checker(html.parser.HTMLParser):
    """Tags with their attributes; and whether each that is opened is closed."""

    VOID = ("meta", "link", "br", "path", "rect", "use", "i")

    def __init__(self):
        super().__init__()
        self.tags, self.open, self.text = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


def parsed(page):
    checker = Checker()
    checker.feed(page)
    checker.close()
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def page(rollout_report):
    return render(rollout_report, texts_of("en"))


def test_it_says_the_verdict_with_step_numbers_and_commands(page):
    said = " ".join(" ".join(parsed(page).text).split())
    assert "Rollout of A is at fault since step 3" in said
    assert "Confidence: high" in said
    assert "probability difference, mean Rollout A to training B" in said
    assert re.search(r"times the threshold at most 0\.01", said)
    assert "trainer.share_data=ckpt \\ trainer.share_data_dir=/mnt/shared/check-1-control" in said


def test_it_loads_nothing_and_runs_one_script_that_its_policy_names(page):
    found = parsed(page)
    every = [(name, value) for _, attributes in found.tags for name, value in attributes.items()]
    loads = [value for name, value in every if name in LOADING and not value.startswith(("#", "data:"))]
    assert loads == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#|&quot;#)", page)
    assert [tag for tag, _ in found.tags].count("script") == 1
    policy = next(each["content"] for tag, each in found.tags if each.get("http-equiv"))
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy
    assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]


def test_ids_are_unique_and_drawings_find_theirs(page):
    ids = [each["id"] for _, each in parsed(page).tags if "id" in each]
    assert len(ids) == len(set(ids))
    used = set(re.findall(r'(?:xlink:href="#|url\(#)([^")]+)', page))
    assert used <= set(ids)


def test_it_is_the_same_each_time(make_report):
    report = make_report(count=4, lean=True)
    assert render(report, texts_of("en")) == render(report, texts_of("en"))


def test_each_drawing_has_the_colours_of_the_page(page):
    drawings = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(drawings) > 10
    assert not [each for each in drawings if re.search(r"(?:fill|stroke)[:=]", each)]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("phase", Phase)
def test_every_verdict_in_both_languages(make_report, phase, language):
    texts = texts_of(language)
    page = render(make_report(phase, count=4, lean=True), texts)
    found = parsed(page)
    assert found.tags[0] == ("html", {"lang": texts.language})
    assert texts.phases[phase].name in page.replace("&#39;", "'")
    if language == "zh":
        rest = re.sub(r"<(script|style|svg|code).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
        assert not re.findall(r"\b(?:the|of|and|with|step|limit)\b", rest)


def test_nothing_that_comes_from_files_becomes_markup(make_report):
    plain = make_report(count=4, lean=True)
    (scenario,) = plain.scenarios
    finding = Finding(Aspect.UPDATE, EVIL, State.DIFFER, 2.0, 1.0, reason=free_text(EVIL))
    step = replace(
        scenario.steps[-1], findings=(*scenario.steps[-1].findings, finding),
        changes={EVIL: 0.5, f"layers.1.{EVIL}": 0.7}, outcomes={EVIL: (1.0, 2.0)},
    )  # fmt: skip
    row = plain.rows[0]
    scenario = replace(
        scenario,
        directory=Path(f"/mnt/{EVIL}".replace("\x00", "")),
        steps=(*scenario.steps[:-1], step),
        runs=tuple(replace(run, host=EVIL, run_id=EVIL, versions={EVIL: EVIL}) for run in scenario.runs),
        settings=(
            SettingRow(EVIL, EVIL, EVIL, True, free_text(EVIL)),
            SettingRow(EVIL, EVIL, EVIL, False, free_text(EVIL)),
        ),
        settings_not_compared={EVIL: free_text(EVIL)},
        problems={EVIL: EVIL},
    )
    verdict = plain.verdict
    evidence = tuple(replace(each, finding=finding) for each in verdict.evidence)
    report = replace(
        plain,
        verdict=replace(
            verdict,
            because=(EVIL,),
            next_actions=(EVIL, "get_control"),
            not_compared={EVIL: free_text(EVIL)},
            evidence=evidence,
        ),
        scenarios=(scenario,),
        rows=(replace(row, prompt=EVIL, tokens=tuple(replace(each, text=EVIL) for each in row.tokens)),),
        control=Control(Path(f"/mnt/{EVIL}".replace("\x00", "")), scenario.steps),
        limits=EVIL,
        versions={EVIL: EVIL},
    )
    for language in ("en", "zh"):
        page = render(report, texts_of(language))
        found = parsed(page)
        names = [tag for tag, _ in found.tags]
        assert names.count("script") == 1
        assert "img" not in names
        assert not [name for _, attributes in found.tags for name in attributes if name.startswith("on")]
        assert "49" not in re.sub(r"[^{}]*", "", page)
        assert "alert(2)" in "".join(found.text)


def test_a_page_of_200_steps_is_small(make_report):
    page = render(make_report(count=200, rows=4, tokens=8, layers=4), texts_of("en"))
    assert len(page.encode()) < 400_000


def test_a_page_of_1000_steps_is_bounded_and_says_what_was_left_out(make_report):
    (scenario,) = make_report(count=8).scenarios
    many = tuple(
        replace(scenario.steps[at % 8], global_step=at + 1, findings=scenario.steps[at % 8].findings)
        for at in range(1000)
    )
    problems = {f"file_{at}": "damaged" for at in range(200)}
    report = replace(make_report(count=8), scenarios=(replace(scenario, steps=many, problems=problems),))
    page = render(report, texts_of("en"))
    assert len(page.encode()) < 1_500_000
    said = " ".join(" ".join(parsed(page).text).split())
    assert "Each column stands for up to 9 steps" in said
    assert "at most 200 points are drawn" in said
    assert "and 150 more files" in said


def test_a_column_of_several_steps_differs_if_one_of_them_does():
    assert page_scenario._kind({Cell.AGREE, Cell.MISSING, Cell.DIFFER}) is Cell.DIFFER
    assert page_scenario._kind({Cell.AGREE, Cell.MISSING}) is Cell.PARTLY
    assert page_scenario._kind({Cell.MISSING}) is Cell.MISSING


def test_a_line_of_many_points_keeps_its_peaks():
    points = [(float(at), 1.0) for at in range(1000)]
    points[333], points[777] = (333.0, 9.0), (777.0, -9.0)
    thinned = charts._thinned(points)
    assert len(thinned) <= charts.MAX_POINTS
    assert {points[333], points[777]} <= set(thinned)
    assert thinned == sorted(thinned)


def test_a_report_of_nothing_is_a_page_too(make_report):
    page = render(make_report(Phase.INCONCLUSIVE, count=0), texts_of("en"))
    assert "no step compared" in page
    parsed(page)


def test_odd_numbers_are_drawn(rollout_report):
    (scenario,) = rollout_report.scenarios
    odd = [float("nan"), float("inf"), -1.0, 0.0, 1e-300, 1e300, None]
    steps = tuple(
        replace(
            step,
            findings=(
                Finding(Aspect.FORWARD, "k3", State.DIFFER, value, 0.005),
                Finding(Aspect.UPDATE, "change_rel_diff", State.DIFFER, value, limit=None),
            ),
            changes={"layers.0.x": float("nan") if value is None else value},
            outcomes={"reward": (value, None)},
        )
        for step, value in zip(scenario.steps, odd, strict=False)
    )
    parsed(render(replace(rollout_report, scenarios=(replace(scenario, steps=steps),)), texts_of("en")))


def test_equal_changes_of_weights_are_said_and_not_drawn(make_report):
    report = make_report(count=4, lean=True)
    (scenario,) = report.scenarios
    equal = tuple(replace(step, changes=dict.fromkeys(step.changes, 0.0)) for step in scenario.steps)
    page = render(replace(report, scenarios=(replace(scenario, steps=equal),)), texts_of("en"))
    assert "changed every tensor in exactly the same way" in page
    assert 'class="wide"' not in page
    assert 'class="wide"' in render(report, texts_of("en"))


@pytest.mark.parametrize(
    ("tensor", "layer"),
    [
        ("model.layers.12.mlp.up_proj.weight", "12"),
        ("decoder.layers.3.self_attention.linear_qkv.weight", "3"),
        ("transformer.h.7.attn.c_attn.weight", "7"),
        ("model.embed_tokens.weight", "embed_tokens"),
        ("lm_head.weight", "lm_head"),
    ],
)
def test_layers_by_the_names_of_their_tensors(tensor, layer):
    assert layer_label(tensor) == layer


def test_layers_stand_in_the_order_of_the_model_and_take_their_worst_tensor(rollout_report):
    (step, *_) = rollout_report.scenarios[0].steps
    changes = {
        "lm_head.weight": 0.1,
        "layers.10.a": 0.2,
        "layers.2.a": 0.3,
        "layers.2.b": 0.5,
        "embed_tokens.weight": 0,
    }
    found = layer_changes([replace(step, changes=changes)])
    assert list(found.by_layer.items()) == [("embed_tokens", 0), ("2", 0.5), ("10", 0.2), ("lm_head", 0.1)]
