# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Render the page: one HTML file that loads nothing, with style, script and drawings inside.

Everything that comes from files is untrusted: jinja2 escapes it, and a policy in the page forbids any script but
the one that this module puts there, and any load.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from verl.crosscheck.report.model import Report, Token, TokenRow
from verl.crosscheck.report.page_scenario import cell_legend, scenario_facts
from verl.crosscheck.report.texts.texts import Texts
from verl.crosscheck.report.verdict_texts import actions, banner, bound, not_compared, reasons, times
from verl.crosscheck.text import number, row_name

_TEMPLATES = Path(__file__).parent / "templates"
_SHOWN_EVIDENCE = 6


def render(report: Report, texts: Texts) -> str:
    """The page as text of UTF-8."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_TEMPLATES), autoescape=True, undefined=jinja2.StrictUndefined
    )
    script = (_TEMPLATES / "copy.js").read_text(encoding="utf-8")
    scenarios = [_with_drawings(scenario_facts(each, report, texts)) for each in report.scenarios]
    return environment.get_template("page.html.j2").render(
        texts=texts,
        policy=_policy(script),
        style=_ours((_TEMPLATES / "style.css").read_text(encoding="utf-8")),
        script=_ours(script),
        banner=banner(report, texts),
        because=reasons(report.verdict, texts),
        evidence=_evidence(report, texts),
        next_actions=actions(report, texts),
        scenarios=scenarios,
        control=report.control,
        cell_legend=cell_legend(texts),
        rows=[row_facts(row, texts) for row in report.rows],
        tokens_note=note(report.rows, texts),
        scale=scale(),
        not_compared=not_compared(report, texts),
        glossary=_glossary(report, texts),
        footer=_footer(report, texts),
    )


def _ours(text: str) -> Markup:
    """Text of this programme's own making, as it is."""
    return Markup(text)  # noqa: S704


def _with_drawings(facts: dict[str, Any]) -> dict[str, Any]:
    """Mark the drawings as made here; `charts` escapes the names in them."""
    for each in (*facts["beyond"], *facts["within"], *facts["outcomes"], *filter(None, [facts["changes"]])):
        each["svg"] = _ours(each["svg"])
    return facts


def _policy(script: str) -> str:
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _evidence(report: Report, texts: Texts) -> list[dict[str, str]]:
    several = len(report.scenarios) > 1
    rows = []
    for each in report.verdict.evidence[:_SHOWN_EVIDENCE]:
        aspect = texts.aspect(each.finding.aspect, each.scenario).name
        if several:
            aspect = texts.label("of", whole=texts.label("scenario_short", number=each.scenario), part=aspect)
        rows.append(
            {
                "step": str(each.global_step),
                "name": texts.quantity(each.finding.quantity).name,
                "aspect": aspect,
                "reason": texts.reason(each.finding.reason),
                "value": number(each.finding.value),
                "limit": bound(each.finding, texts),
                "times": times(each.finding, texts),
            }
        )
    return rows


def _glossary(report: Report, texts: Texts) -> list[tuple[str, str]]:
    names = dict.fromkeys(name for scenario in report.scenarios for _, name in scenario.series())
    found = [texts.quantity(name) for name in names]
    return [(each.name, each.meaning) for each in found if each.meaning]


def _footer(report: Report, texts: Texts) -> str:
    parts = []
    if report.control is not None:
        parts.append(texts.label("control_text", steps=len(report.control.steps), directory=report.control.directory))
        if not report.control.alike:
            parts.append(texts.label("control_unlike"))
    if report.limits:
        parts.append(texts.label("limits_file", path=report.limits))
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return " ".join([*parts, texts.label("made_with", versions=versions)])


LEVELS = (0.02, 0.1, 0.3, 1.0, 3.0)
"""Absolute difference of log-probs from which a token is this dark; below the first it has no colour."""


def row_facts(row: TokenRow, texts: Texts) -> dict[str, Any]:
    """All that is shown of a response."""
    last = row.first + len(row.tokens) - 1
    return {
        "head": texts.label("row_head", step=row.global_step, row=row_name(row.row_id)),
        "aspect": texts.aspect(row.aspect, row.scenario).name,
        "numbers": texts.label(
            "row_numbers", mean=number(row.logprob_abs_diff_mean), max=number(row.logprob_abs_diff_max)
        ),
        "part": texts.label("row_part", first=row.first, last=last, length=row.length),
        "prompt": row.prompt,
        "decoded": row.decoded,
        "tokens": [_token(row.first + at, token, texts) for at, token in enumerate(row.tokens)],
    }


def note(rows: Sequence[TokenRow], texts: Texts) -> str:
    """How the tokens came to be shown as they are; empty if they are text."""
    kinds = {row.decoded for row in rows}
    keys = {"ids": "tokens_ids", "positions": "tokens_positions"}
    return " ".join(texts.label(key) for kind, key in keys.items() if kind in kinds)


def scale() -> list[tuple[int, str]]:
    """Levels with the difference from which they are taken."""
    return [(level, f"\u2265 {limit:g}") for level, limit in enumerate(LEVELS, start=1)]


def _token(position: int, token: Token, texts: Texts) -> tuple[str, str, str]:
    apart = token.apart
    if apart is None:
        return "gap", texts.label("token_tip_missing", position=position), token.text
    level = len(LEVELS) if apart != apart else bisect_right(LEVELS, apart)
    tip = texts.label(
        "token_tip", position=position, one=number(token.one), other=number(token.other), apart=number(apart)
    )
    return (f"h{level}" if token.trained_on else "off"), tip, token.text
