# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Prepare one scenario for the page's templates: texts and drawings, in the order in which they are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.report.charts import MAX_POINTS, layers_chart, outcome_chart, quantity_chart
from verl.crosscheck.report.model import Cell, Control, Report, RunSummary, Scenario, cell
from verl.crosscheck.report.texts.texts import Texts
from verl.crosscheck.report.verdict_texts import SIGNS, bound
from verl.crosscheck.text import NOTHING, number

CELL_SIGNS = {Cell.AGREE: SIGNS["ok"], Cell.PARTLY: SIGNS["ok"], Cell.DIFFER: SIGNS["fault"], Cell.MISSING: NOTHING}
"""Colour is never alone."""

_DENSE_STEPS = 40
"""From so many steps on the strip's columns are narrow."""
_STRIP_LABELS = 20
"""About so many columns of a strip are numbered."""
_STRIP_COLUMNS = 120
"""Of more steps, several share a column."""
_WORST_TENSORS = 12
_PROBLEMS = 50
"""Files that could not be used, of which the page lists so many."""

Facts = dict[str, Any]


def scenario_facts(scenario: Scenario, report: Report, texts: Texts) -> Facts:
    """All that is shown of a scenario."""
    beyond, within, zero = _plots(scenario, report.control, texts)
    columns = _columns(scenario.steps)
    return {
        "number": scenario.number,
        "title": texts.label(f"scenario_{scenario.number}"),
        "recomputed": _recomputed(scenario, texts),
        "dense": len(columns) > _DENSE_STEPS,
        "column": _column(columns, texts),
        "thinned": texts.label("thinned", count=MAX_POINTS) if len(scenario.steps) > MAX_POINTS else "",
        "strip_steps": _strip_steps(columns, report.verdict.first_step),
        "strip": [_strip_line(scenario, columns, aspect, texts) for aspect in scenario.aspects],
        "beyond": beyond,
        "within": within,
        "zero": zero,
        "changes": _changes(scenario, texts),
        "outcomes": list(_outcomes(scenario, texts)),
        "settings": _settings(scenario, texts),
        "where": f"{scenario.directory}, {texts.label('session', number=scenario.session)}",
        "run_names": [texts.label("suspect" if run.letter == "A" else "healthy") for run in scenario.runs],
        "run_rows": list(_run_rows(scenario.runs, texts)),
        "problems": sorted(scenario.problems.items())[:_PROBLEMS],
        "more_problems": max(0, len(scenario.problems) - _PROBLEMS),
    }


def _recomputed(scenario: Scenario, texts: Texts) -> str:
    if not scenario.recomputed:
        return ""
    return texts.label("recomputed_some", count=scenario.recomputed, steps=len(scenario.steps))


def _columns(steps: Sequence[StepComparison]) -> list[Sequence[StepComparison]]:
    """Return the steps of each column of the strip, at most `_STRIP_COLUMNS` columns."""
    each = max(1, math.ceil(len(steps) / _STRIP_COLUMNS))
    return [steps[start : start + each] for start in range(0, len(steps), each)]


def _column(columns: Sequence[Sequence[StepComparison]], texts: Texts) -> str:
    """Return what a column stands for."""
    most = max(map(len, columns), default=1)
    return texts.label("strip_each") if most == 1 else texts.label("strip_several", count=most)


def _strip_steps(columns: Sequence[Sequence[StepComparison]], first: int | None) -> list[Facts]:
    """Return the headings of the columns: some of the steps, and the first at fault."""
    every = max(1, math.ceil(len(columns) / _STRIP_LABELS))
    at_fault = next((at for at, steps in enumerate(columns) if any(step.global_step == first for step in steps)), None)
    near = range(at_fault - every + 1, at_fault + every) if at_fault is not None and every > 1 else ()
    return [
        {
            "text": _heading(steps, first if at == at_fault else None)
            if at == at_fault or (at % every == 0 and at not in near)
            else "",
            "first": at == at_fault,
        }
        for at, steps in enumerate(columns)
    ]


def _heading(steps: Sequence[StepComparison], first: int | None) -> str:
    return str(steps[0].global_step if first is None else first)


def _strip_line(scenario: Scenario, columns: Sequence[Sequence[StepComparison]], aspect: Aspect, texts: Texts) -> Facts:
    named = texts.aspect(aspect, scenario.number)
    cells = []
    for steps in columns:
        kind = _kind({cell(step, aspect) for step in steps})
        where = texts.label("step_n", step=steps[0].global_step)
        if len(steps) > 1:
            span = texts.label("span", first=steps[0].global_step, last=steps[-1].global_step)
            where = texts.label("steps_listed", steps=span)
        cells.append((kind.value, texts.label("of", whole=where, part=texts.cells[kind]), CELL_SIGNS[kind]))
    return {"name": named.name, "meaning": named.meaning, "cells": cells}


def _kind(kinds: set[Cell]) -> Cell:
    """Return what a column shows: that it differs if one of its steps does, and agreement only without a gap."""
    if len(kinds) == 1:
        return next(iter(kinds))
    return Cell.DIFFER if Cell.DIFFER in kinds else Cell.PARTLY


def cell_legend(texts: Texts) -> list[tuple[str, str, str]]:
    """Kind, name and sign of each kind of cell."""
    return [(kind.value, texts.cells[kind], CELL_SIGNS[kind]) for kind in Cell]


def _plots(scenario: Scenario, control: Control | None, texts: Texts) -> tuple[list[Facts], list[Facts], list[str]]:
    """Quantities of which a step is beyond its limit, the furthest first; the others that are judged, in order of
    aspects; and the names of those that are 0 in every step, which need no picture."""
    drawn: list[tuple[float, Facts]] = []
    zero: dict[str, list[str]] = {}
    for (aspect, quantity), points in scenario.series().items():
        judged = [each for _, each in points if each.value is not None and each.limit is not None]
        worst = max((strength(each) for _, each in points if each.state is State.DIFFER), default=0.0)
        if not judged and not worst:
            continue
        named, under = texts.quantity(quantity), texts.aspect(aspect, scenario.number).name
        if not worst and all(each.value == 0 for each in judged):
            zero.setdefault(under, []).append(named.name)
            continue
        facts = {
            "name": named.name,
            "meaning": named.meaning,
            "under": f"{under} \u00b7 {bound(points[-1][1], texts)}",
            "differs": worst > 0,
            "svg": quantity_chart(points, _floor(control, aspect, quantity)),
        }
        drawn.append((worst, facts))
    beyond = sorted((each for each in drawn if each[0] > 0), key=lambda each: -each[0])
    comma = texts.label("comma")
    all_zero = [texts.label("group", whole=under, parts=comma.join(names)) for under, names in zero.items()]
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


def _changes(scenario: Scenario, texts: Texts) -> Facts | None:
    found: LayerChanges | None = layer_changes(scenario.steps)
    if found is None:
        return None
    worst = sorted(found.by_tensor.items(), key=lambda each: -each[1] if each[1] == each[1] else -math.inf)
    worst = worst[:_WORST_TENSORS]
    largest = max((value for _, value in worst if math.isfinite(value)), default=0.0) or 1.0
    limit = found.limit if found.differs else None
    over = [limit is not None and not value <= limit for _, value in worst]
    return {
        "equal": all(value == 0 for value in found.by_layer.values()),
        "step": texts.label("changes_step", step=found.global_step),
        "svg": layers_chart(found.by_layer, limit),
        "over": any(over),
        "worst": [
            (name, number(value), round(100 * min(value, largest) / largest, 1) if value == value else 100, each_over)
            for (name, value), each_over in zip(worst, over, strict=True)
        ],
    }


def _outcomes(scenario: Scenario, texts: Texts) -> Iterator[Facts]:
    names = dict.fromkeys(name for step in scenario.steps for name in step.outcomes)
    for name in names:
        points = []
        for step in scenario.steps:
            sampler, taker = step.outcomes.get(name, (None, None))
            a, b = (sampler, taker) if scenario.number == 1 else (taker, sampler)
            points.append((step.global_step, a, b))
        if any(value is not None for _, *pair in points for value in pair):
            svg = outcome_chart(points)
            yield {"name": texts.outcome(name), "meaning": "", "under": name, "differs": False, "svg": svg}


def _settings(scenario: Scenario, texts: Texts) -> Facts | None:
    if len(scenario.runs) < 2:
        return None

    def of(must_agree: bool) -> list[Facts]:
        chosen = [each for each in scenario.settings if each.must_agree is must_agree]
        return [{"key": each.key, "a": each.a, "b": each.b, "reason": texts.reason(each.reason)} for each in chosen]

    not_compared = [(key, texts.reason(why)) for key, why in scenario.settings_not_compared.items()]
    return {"must": of(True), "may": of(False), "not_compared": not_compared}


def _run_rows(runs: Sequence[RunSummary], texts: Texts) -> Iterator[tuple[str, list[str]]]:
    yield texts.label("mode"), [run.mode for run in runs]
    yield texts.label("run_id"), [run.run_id if run.number == 1 else f"{run.run_id} ({run.number})" for run in runs]
    yield texts.label("host"), [run.host for run in runs]
    yield texts.label("device"), [f"{run.world_size} \u00d7 {run.device}" for run in runs]
    yield texts.label("strategy"), [run.strategy for run in runs]
    yield texts.label("started"), [run.started for run in runs]
    yield texts.label("ended"), [run.ending or texts.label("not_ended") for run in runs]
    for name in dict.fromkeys(name for run in runs for name in run.versions):
        yield name, [run.versions.get(name, NOTHING) for run in runs]


_NUMBERED = re.compile(r"(?:^|[.])(?:layers|h|blocks|block|layer)[.](\d+)[.]")
"""The layer's number in a tensor's name, in transformers, Megatron and older models alike."""


@dataclass(frozen=True)
class LayerChanges:
    """Relative difference of two runs' changes in one step."""

    global_step: int
    differs: bool
    """Whether the change of the weights differs in this step."""
    by_layer: Mapping[str, float]
    """Largest of each layer's tensors: embeddings, the layers by number, the rest."""
    by_tensor: Mapping[str, float]
    limit: float | None
    """Beyond which a tensor's difference counts; None if no finding says."""


def layer_changes(steps: Iterable[StepComparison]) -> LayerChanges | None:
    """Those of the first step in which they differ, else of the step with the largest; None if none were measured."""
    measured = [step for step in steps if step.changes]
    if not measured:
        return None
    largest = max(measured, key=lambda step: max(map(_size, step.changes.values())))
    differs = next((step for step in measured if _changes_differ(step)), None)
    shown = differs or largest
    by_layer: dict[str, float] = {}
    for name, value in shown.changes.items():
        layer = layer_label(name)
        by_layer[layer] = max(by_layer.get(layer, 0.0), value, key=_size)
    ordered = sorted(by_layer.items(), key=lambda each: _order(each[0]))
    return LayerChanges(shown.global_step, differs is not None, dict(ordered), dict(shown.changes), _limit(shown))


def layer_label(tensor: str) -> str:
    """`12` for a tensor of layer 12; for others the part of the name that tells them apart, such as `embed_tokens`."""
    match = _NUMBERED.search(tensor)
    if match:
        return match.group(1)
    parts = [part for part in tensor.split(".") if part not in ("model", "module", "weight", "bias", "decoder")]
    return parts[-1] if parts else tensor


def _order(layer: str) -> tuple[int, int, str]:
    """Embeddings, then layers by number, then the rest."""
    if layer.isdigit():
        return 1, int(layer), ""
    return (0 if layer.startswith(("embed", "word_embed", "wte", "wpe")) else 2), 0, layer


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _changes_differ(step: StepComparison) -> bool:
    return any(_is_of_changes(each.aspect, each.quantity) and each.state is State.DIFFER for each in step.findings)


def _is_of_changes(aspect: Aspect, quantity: str) -> bool:
    return aspect is Aspect.UPDATE and quantity.startswith("change_rel_diff")


def _limit(step: StepComparison) -> float | None:
    """That of a single tensor."""
    return next((each.limit for each in step.findings if each.quantity == "change_rel_diff_max"), None)
