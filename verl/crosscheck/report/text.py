# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A report for the terminal: the verdict, why, the numbers, what to do. What comes from files is shown as it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from verl.crosscheck.console import printable
from verl.crosscheck.report.model import Cell, Report, Scenario, cell
from verl.crosscheck.report.texts.texts import Texts
from verl.crosscheck.report.verdict_texts import (
    FAULT,
    OK,
    OPEN,
    SIGNS,
    UNKNOWN,
    actions,
    banner,
    bound,
    not_compared,
    reasons,
    times,
)
from verl.crosscheck.text import NOTHING, number

_STYLES = {FAULT: "bold red", OK: "bold green", OPEN: "bold yellow", UNKNOWN: "dim"}
_CELLS = {
    Cell.AGREE: (SIGNS[OK], "green"),
    Cell.PARTLY: ("~", "green"),
    Cell.DIFFER: (SIGNS[FAULT], "bold red"),
    Cell.MISSING: (NOTHING, "dim"),
}
_SHOWN_EVIDENCE = 5
_STRIP_STEPS = 48
"""The last steps that a line holds."""


def data(value: object, style: str = "") -> Text:
    """Return what comes from a file or a name, as it is, on however many lines it needs."""
    return Text(printable(str(value)), style=style, overflow="fold")


class Commands(Text):
    """Lines to copy: a terminal may break them, we do not."""


def text_view(report: Report, texts: Texts) -> Iterator[RenderableType]:
    """The whole text, part by part."""
    said = banner(report, texts)
    yield data(said.over, "dim")
    yield Text.assemble(
        (f"{said.sign} ", _STYLES[said.kind]), data(said.headline, _STYLES[said.kind]), data(f" {said.since}", "bold")
    )
    yield data(said.sentence)
    yield Text.assemble(*_phases(said.phases))
    yield data(said.confidence)
    yield from _titled(texts.label("why"), [data(f"- {each}") for each in reasons(report.verdict, texts)])
    yield from _titled(texts.label("evidence"), _evidence(report, texts))
    for scenario in report.scenarios:
        title = texts.label(f"scenario_{scenario.number}") if len(report.scenarios) > 1 else texts.label("strip")
        yield from _titled(title, _strip(scenario, texts))
    yield from _titled(texts.label("next"), _next(report, texts))
    yield from _titled(
        texts.label("not_compared"), [data(f"- {what}: {why}", "dim") for what, why in not_compared(report, texts)]
    )
    for scenario in report.scenarios:
        problems = [data(f"- {name}: {why}", "yellow") for name, why in sorted(scenario.problems.items())]
        yield from _titled(texts.label("problems"), problems)


def _titled(title: str, parts: Sequence[RenderableType]) -> Iterator[RenderableType]:
    if parts:
        yield Text()
        yield data(title, "bold")
        yield from parts


def _phases(phases: tuple[object, ...]) -> Iterator[tuple[str, str]]:
    for at, phase in enumerate(phases):
        state, sign, name, note = (getattr(phase, each) for each in ("state", "sign", "name", "note"))
        yield ("   " if at else ""), ""
        yield f"{sign} {name} ", _STYLES[state]
        yield f"({note})", "dim"


def _evidence(report: Report, texts: Texts) -> list[RenderableType]:
    found = report.verdict.evidence[:_SHOWN_EVIDENCE]
    if not found:
        return [data(texts.label("no_evidence"), "dim")]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for title, justify in (("step", "right"), ("quantity", "left"), ("value", "right"), ("limit", "left")):
        table.add_column(texts.label(title), justify="right" if justify == "right" else "left", overflow="fold")
    for each in found:
        name = texts.quantity(each.finding.quantity).name
        aspect = texts.aspect(each.finding.aspect, each.scenario).name
        where = f"{name}\n{aspect}" + (f" \u00b7 {texts.reason(each.finding.reason)}" if each.finding.reason else "")
        beyond = times(each.finding, texts)
        limit = bound(each.finding, texts) + (f"\n{beyond}" if beyond else "")
        table.add_row(str(each.global_step), data(where), data(number(each.finding.value), "bold"), data(limit))
    return [table]


def _strip(scenario: Scenario, texts: Texts) -> list[RenderableType]:
    steps = scenario.steps[-_STRIP_STEPS:]
    if not steps:
        return [data(texts.label("no_steps"), "dim")]
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    first, last = steps[0].global_step, steps[-1].global_step
    table.add_row("", data(texts.label("steps_listed", steps=texts.label("span", first=first, last=last)), "dim"))
    for aspect in scenario.aspects:
        line = Text(overflow="fold")
        for step in steps:
            line.append(*_CELLS[cell(step, aspect)])
        table.add_row(data(texts.aspect(aspect, scenario.number).name), line)
    legend = "   ".join(f"{sign} {texts.cells[kind]}" for kind, (sign, _) in _CELLS.items())
    return [table, data(legend, "dim")]


def _next(report: Report, texts: Texts) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for at, action in enumerate(actions(report, texts), start=1):
        parts.append(data(f"{at}. {action.text}"))
        if action.commands:
            parts.append(Commands(printable(textwrap.indent(action.commands, "   ")), "cyan"))
    return parts
