# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One scenario as the page's templates take it: texts and drawings, in the order in which they are shown."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.report.banner import SIGNS
from verl.crosscheck.report.formatting import bound
from verl.crosscheck.report.layers import LayerChanges, layer_changes
from verl.crosscheck.report.model import Cell, Control, Report, RunSummary, Scenario, cell
from verl.crosscheck.report.plots import layers_plot, outcome_plot, quantity_plot
from verl.crosscheck.report.wording.words import Words
from verl.crosscheck.text import NOTHING, number

CELL_SIGNS = {Cell.AGREE: SIGNS["ok"], Cell.PARTLY: SIGNS["ok"], Cell.DIFFER: SIGNS["fault"], Cell.MISSING: NOTHING}
"""Colour is never alone."""

_DENSE_STEPS = 40
"""From so many steps on the strip's columns are narrow."""
_STRIP_LABELS = 20
"""About so many columns of a strip are numbered."""
_WORST_TENSORS = 12

Facts = dict[str, Any]


def scenario_facts(scenario: Scenario, report: Report, words: Words) -> Facts:
    """All that is shown of a scenario."""
    beyond, within, zero = _plots(scenario, report.control, words)
    return {
        "number": scenario.number,
        "title": words.label(f"scenario_{scenario.number}"),
        "recomputed": _recomputed(scenario, words),
        "dense": len(scenario.steps) > _DENSE_STEPS,
        "strip_steps": _strip_steps(scenario.steps, report.verdict.first_step),
        "strip": [_strip_line(scenario, aspect, words) for aspect in scenario.aspects],
        "beyond": beyond,
        "within": within,
        "zero": zero,
        "changes": _changes(scenario, words),
        "outcomes": list(_outcomes(scenario, words)),
        "settings": _settings(scenario, words),
        "where": f"{scenario.directory}, {words.label('session', number=scenario.session)}",
        "run_names": [words.label("suspect" if run.letter == "A" else "healthy") for run in scenario.runs],
        "run_rows": list(_run_rows(scenario.runs, words)),
        "problems": sorted(scenario.problems.items()),
    }


def _recomputed(scenario: Scenario, words: Words) -> str:
    if not scenario.recomputed:
        return ""
    return words.label("recomputed_some", count=scenario.recomputed, steps=len(scenario.steps))


def _strip_steps(steps: Sequence[StepComparison], first: int | None) -> list[Facts]:
    """Headings of the columns: some of the steps, and the first at fault."""
    every = max(1, math.ceil(len(steps) / _STRIP_LABELS))
    at_fault = next((at for at, step in enumerate(steps) if step.global_step == first), None)
    near = range(at_fault - every + 1, at_fault + every) if at_fault is not None and every > 1 else ()
    return [
        {
            "text": str(step.global_step) if at == at_fault or (at % every == 0 and at not in near) else "",
            "first": at == at_fault,
        }
        for at, step in enumerate(steps)
    ]


def _strip_line(scenario: Scenario, aspect: Aspect, words: Words) -> Facts:
    named = words.aspect(aspect, scenario.number)
    cells = []
    for step in scenario.steps:
        kind = cell(step, aspect)
        tip = f"{words.label('step_n', step=step.global_step)}: {words.cells[kind]}"
        cells.append((kind.value, tip, CELL_SIGNS[kind]))
    return {"name": named.name, "meaning": named.meaning, "cells": cells}


def cell_legend(words: Words) -> list[tuple[str, str, str]]:
    """Kind, name and sign of each kind of cell."""
    return [(kind.value, words.cells[kind], CELL_SIGNS[kind]) for kind in Cell]


def _plots(scenario: Scenario, control: Control | None, words: Words) -> tuple[list[Facts], list[Facts], list[str]]:
    """Quantities of which a step is beyond its limit, the furthest first; the others that are judged, in order of
    aspects; and the names of those that are 0 in every step, which need no picture."""
    drawn: list[tuple[float, Facts]] = []
    zero: dict[str, list[str]] = {}
    for at, ((aspect, quantity), points) in enumerate(scenario.series().items()):
        judged = [each for _, each in points if each.value is not None and each.limit is not None]
        worst = max((strength(each) for _, each in points if each.state is State.DIFFER), default=0.0)
        if not judged and not worst:
            continue
        named, under = words.quantity(quantity), words.aspect(aspect, scenario.number).name
        if not worst and all(each.value == 0 for each in judged):
            zero.setdefault(under, []).append(named.name)
            continue
        facts = {
            "name": named.name,
            "meaning": named.meaning,
            "under": f"{under} \u00b7 {bound(points[-1][1], words)}",
            "differs": worst > 0,
            "svg": quantity_plot(f"q{scenario.number}-{at}", points, _floor(control, aspect, quantity)),
        }
        drawn.append((worst, facts))
    beyond = sorted((each for each in drawn if each[0] > 0), key=lambda each: -each[0])
    comma = words.label("comma")
    all_zero = [words.label("group", whole=under, parts=comma.join(names)) for under, names in zero.items()]
    return [facts for _, facts in beyond], [facts for worst, facts in drawn if worst == 0], all_zero


def _floor(control: Control | None, aspect: Aspect, quantity: str) -> float | None:
    """The worst value of the control."""
    if control is None:
        return None
    found: list[Finding] = [
        each
        for step in control.steps
        for each in step.findings
        if each.aspect is aspect and each.quantity == quantity and each.value is not None
    ]
    values = [each.value for each in found if each.value is not None]
    if not values:
        return None
    return max(values) if found[0].above_is_bad else min(values)


def _changes(scenario: Scenario, words: Words) -> Facts | None:
    found: LayerChanges | None = layer_changes(scenario.steps)
    if found is None:
        return None
    worst = sorted(found.by_tensor.items(), key=lambda each: -each[1] if each[1] == each[1] else -math.inf)
    worst = worst[:_WORST_TENSORS]
    largest = max((value for _, value in worst if math.isfinite(value)), default=0.0) or 1.0
    limit = found.limit if found.accused else None
    over = [limit is not None and not value <= limit for _, value in worst]
    return {
        "equal": all(value == 0 for value in found.by_layer.values()),
        "step": words.label("changes_step", step=found.global_step),
        "svg": layers_plot(f"c{scenario.number}", found.by_layer, limit),
        "over": any(over),
        "worst": [
            (name, number(value), round(100 * min(value, largest) / largest, 1) if value == value else 100, each_over)
            for (name, value), each_over in zip(worst, over, strict=True)
        ],
    }


def _outcomes(scenario: Scenario, words: Words) -> Iterator[Facts]:
    names = dict.fromkeys(name for step in scenario.steps for name in step.outcomes)
    for at, name in enumerate(names):
        points = []
        for step in scenario.steps:
            sampler, taker = step.outcomes.get(name, (None, None))
            a, b = (sampler, taker) if scenario.number == 1 else (taker, sampler)
            points.append((step.global_step, a, b))
        if any(value is not None for _, *pair in points for value in pair):
            svg = outcome_plot(f"o{scenario.number}-{at}", points)
            yield {"name": words.outcome(name), "meaning": "", "under": name, "differs": False, "svg": svg}


def _settings(scenario: Scenario, words: Words) -> Facts | None:
    if len(scenario.runs) < 2:
        return None

    def of(must_agree: bool) -> list[Facts]:
        chosen = [each for each in scenario.settings if each.must_agree is must_agree]
        return [{"key": each.key, "a": each.a, "b": each.b, "reason": words.reason(each.reason)} for each in chosen]

    not_compared = [(key, words.reason(why)) for key, why in scenario.settings_not_compared.items()]
    return {"must": of(True), "may": of(False), "not_compared": not_compared}


def _run_rows(runs: Sequence[RunSummary], words: Words) -> Iterator[tuple[str, list[str]]]:
    yield words.label("mode"), [run.mode for run in runs]
    yield words.label("run_id"), [run.run_id if run.number == 1 else f"{run.run_id} ({run.number})" for run in runs]
    yield words.label("host"), [run.host for run in runs]
    yield words.label("device"), [f"{run.world_size} \u00d7 {run.device}" for run in runs]
    yield words.label("strategy"), [run.strategy for run in runs]
    yield words.label("started"), [run.started for run in runs]
    yield words.label("ended"), [run.ending or words.label("not_ended") for run in runs]
    for name in dict.fromkeys(name for run in runs for name in run.versions):
        yield name, [run.versions.get(name, NOTHING) for run in runs]
