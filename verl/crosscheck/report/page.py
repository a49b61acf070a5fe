# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The page: one HTML file that loads nothing, with style, script and drawings inside.

Everything that comes from files is untrusted: it is escaped by jinja2, and a policy in the page forbids any script but
the one that this module puts there, and any load.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from verl.crosscheck.report.banner import banner
from verl.crosscheck.report.formatting import bound, times
from verl.crosscheck.report.model import Report
from verl.crosscheck.report.next_steps import actions
from verl.crosscheck.report.page_scenario import cell_legend, scenario_facts
from verl.crosscheck.report.page_tokens import note, row_facts, scale
from verl.crosscheck.report.telling import not_compared, reasons
from verl.crosscheck.report.wording.words import Words
from verl.crosscheck.text import number

_TEMPLATES = Path(__file__).parent / "templates"
_SHOWN_EVIDENCE = 6


def render(report: Report, words: Words) -> str:
    """The page as text of UTF-8."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    script = (_TEMPLATES / "copy.js").read_text(encoding="utf-8")
    scenarios = [_with_drawings(scenario_facts(each, report, words)) for each in report.scenarios]
    return environment.get_template("page.html.j2").render(
        words=words,
        policy=_policy(script),
        style=_ours((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=_ours(script),
        banner=banner(report, words),
        because=reasons(report.verdict, words),
        evidence=_evidence(report, words),
        next_actions=actions(report, words),
        scenarios=scenarios,
        control=report.control,
        cell_legend=cell_legend(words),
        rows=[row_facts(row, words) for row in report.rows],
        tokens_note=note(report.rows, words),
        scale=scale(),
        not_compared=not_compared(report, words),
        glossary=_glossary(report, words),
        footer=_footer(report, words),
    )


def _ours(text: str) -> Markup:
    """Text of this programme's own making, as it is."""
    return Markup(text)  # noqa: S704


def _with_drawings(facts: dict[str, Any]) -> dict[str, Any]:
    """Mark the drawings as made here; matplotlib escapes the names in them."""
    for each in (*facts["beyond"], *facts["within"], *facts["outcomes"], *filter(None, [facts["changes"]])):
        each["svg"] = _ours(each["svg"])
    return facts


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _evidence(report: Report, words: Words) -> list[dict[str, str]]:
    several = len(report.scenarios) > 1
    rows = []
    for each in report.verdict.evidence[:_SHOWN_EVIDENCE]:
        aspect = words.aspect(each.finding.aspect, each.scenario).name
        if several:
            aspect = words.label("of", whole=words.label("scenario_short", number=each.scenario), part=aspect)
        rows.append(
            {
                "step": str(each.global_step),
                "name": words.quantity(each.finding.quantity).name,
                "aspect": aspect,
                "reason": words.reason(each.finding.reason),
                "value": number(each.finding.value),
                "limit": bound(each.finding, words),
                "times": times(each.finding, words),
            }
        )
    return rows


def _glossary(report: Report, words: Words) -> list[tuple[str, str]]:
    names = dict.fromkeys(name for scenario in report.scenarios for _, name in scenario.series())
    found = [words.quantity(name) for name in names]
    return [(each.name, each.meaning) for each in found if each.meaning]


def _footer(report: Report, words: Words) -> str:
    parts = []
    if report.control is not None:
        parts.append(words.label("control_text", steps=len(report.control.steps), directory=report.control.directory))
    if report.limits:
        parts.append(words.label("limits_file", path=report.limits))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return " ".join([*parts, words.label("made_with", versions=versions)])
