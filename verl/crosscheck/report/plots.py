# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The pictures of the page: a quantity over steps against its limit, outcomes of both runs, weight changes by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from verl.crosscheck.diagnosis.findings import Finding, State
from verl.crosscheck.report.drawing import DIFFER, INK, LIMIT, LINE, OF_A, OF_B, PLAIN, drawn

LOG_FROM_RATIO = 30.0
"""A logarithmic axis where the largest number that is shown is this many times the smallest."""

_SMALL_IN = (3.6, 1.75)
_LABEL_CHARS = 14
_MARKED_STEPS = 60
"""Up to so many steps each has a dot; beyond, only those that differ."""


def quantity_plot(name: str, points: Sequence[tuple[int, Finding]], floor: float | None = None) -> str:
    """SVG of one quantity over steps.

    Args:
        points: global step and finding, in order.
        floor: highest value of the control.
    """
    shown = [(step, each) for step, each in points if each.state is not State.MISSING and each.value is not None]
    limits = [(step, each.limit) for step, each in points if each.limit is not None]
    values = [_number(each.value) for _, each in shown]
    with drawn(name, *_SMALL_IN) as drawing:
        axes = drawing.axes
        numbers = [*values, *(limit for _, limit in limits), *([] if floor is None else [floor])]
        fit = _scale(axes, numbers)
        steps = [step for step, _ in shown]
        heights = [fit(value) for value in values]
        dot = 3.2 if len(steps) <= _MARKED_STEPS else 0.0
        axes.plot(steps, heights, color=PLAIN, linewidth=1.2, marker="o", markersize=dot)
        wrong = [(step, height) for (step, each), height in zip(shown, heights, strict=True) if _differs(each)]
        if wrong:
            size = 6 if len(wrong) <= _MARKED_STEPS else 3
            axes.plot(*zip(*wrong, strict=True), linestyle="none", marker="x", markersize=size, color=DIFFER)
        _limit_line(axes, limits, fit)
        if floor is not None and math.isfinite(floor):
            axes.axhline(fit(floor), color=INK, linewidth=0.9, linestyle=(0, (1, 2)))
        for first, last in _missing_spans(points):
            axes.axvspan(first - 0.5, last + 0.5, color=LINE, alpha=0.6, linewidth=0)
        _steps_axis(axes, [step for step, _ in points])
    return drawing.svg


def _missing_spans(points: Sequence[tuple[int, Finding]]) -> Iterator[tuple[int, int]]:
    """First and last step of each run of steps in which it was not compared."""
    for missing, group in groupby(points, key=lambda each: each[1].state is State.MISSING):
        if missing:
            steps = [step for step, _ in group]
            yield steps[0], steps[-1]


def _limit_line(axes: Axes, limits: Sequence[tuple[int, float]], fit: Any) -> None:
    """A line across, broken where the limit changes."""
    dashes = (0, (5, 3))
    values = {limit for _, limit in limits}
    if len(values) == 1:
        axes.axhline(fit(values.pop()), color=LIMIT, linewidth=1.2, linestyle=dashes)
    elif values:
        steps, heights = zip(*((step, fit(limit)) for step, limit in limits), strict=True)
        axes.plot(steps, heights, drawstyle="steps-mid", color=LIMIT, linewidth=1.2, linestyle=dashes)


def outcome_plot(name: str, points: Sequence[tuple[int, float | None, float | None]]) -> str:
    """SVG of what people watch, of both runs.

    Args:
        points: global step, A's value, B's value.
    """
    with drawn(name, *_SMALL_IN) as drawing:
        axes = drawing.axes
        # B is the wider line below: where both are equal, both are seen.
        for column, colour, width, alpha in ((2, OF_B, 3.2, 0.55), (1, OF_A, 1.3, 1.0)):
            kept = [(row[0], row[column]) for row in points if _finite(row[column])]
            if kept:
                x, y = zip(*kept, strict=True)
                dot = 3.0 if len(kept) == 1 else 0.0
                axes.plot(x, y, color=colour, linewidth=width, alpha=alpha, marker="o", markersize=dot)
        _steps_axis(axes, [step for step, _, _ in points])
        axes.yaxis.set_major_locator(MaxNLocator(4))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    return drawing.svg


def layers_plot(name: str, by_layer: Mapping[str, float], limit: float | None) -> str:
    """SVG of a bar for each layer.

    Args:
        by_layer: largest relative difference of its tensors, in order of layers.
        limit: beyond which a difference counts.
    """
    with drawn(name, 10.8, 2.1) as drawing:
        axes = drawing.axes
        values = [_number(value) for value in by_layer.values()]
        fit = _scale(axes, [*values, *([] if limit is None else [limit])])
        heights = [fit(value) for value in values]
        low = axes.get_ylim()[0] if axes.get_yscale() == "log" else 0.0
        over = [limit is not None and not value <= limit for value in values]
        colours = [DIFFER if each else PLAIN for each in over]
        bars = axes.bar(range(len(values)), [height - low for height in heights], bottom=low, color=colours, width=0.7)
        for bar, each in zip(bars, over, strict=True):
            if each:
                bar.set_hatch("////")
                bar.set_edgecolor(INK)
                bar.set_linewidth(0.8)
        if limit is not None:
            axes.axhline(fit(limit), color=LIMIT, linewidth=1.2, linestyle=(0, (5, 3)))
        every = max(1, math.ceil(len(values) / 24))
        axes.set_xticks(range(0, len(values), every), [_label(each) for each in by_layer][::every])
        axes.set_xlim(-0.6, max(len(values), 1) - 0.4)
    return drawing.svg


def _label(layer: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in layer[:_LABEL_CHARS])


def _scale(axes: Axes, numbers: Sequence[float]) -> Any:
    """Set the axis of values so that all `numbers` are seen; returns what gives the height of a number.

    On a logarithmic axis zero has a place of its own at the bottom; what is not finite stands at the top.
    """
    finite = [each for each in numbers if math.isfinite(each)]
    positive = [each for each in finite if each > 0]
    logarithmic = positive and min(finite) >= 0 and max(positive) / min(positive) > LOG_FROM_RATIO
    if not logarithmic:
        return _linear(axes, finite)
    zeros = len(positive) < len(finite)
    bottom = 10.0 ** math.floor(math.log10(min(positive)) - (1 if zeros else 0))
    top = max(positive) * 3
    axes.set_yscale("log")
    axes.set_ylim(bottom / 1.5, top)
    first, last = math.ceil(math.log10(bottom)), math.floor(math.log10(top))
    decades = range(first + (1 if zeros else 0), last + 1)
    ticks = [10.0**each for each in list(decades)[:: max(1, math.ceil(len(decades) / 5))]]
    labels = [_short(each) for each in ticks]
    if zeros:
        ticks, labels = [bottom, *ticks], ["0", *labels]
    axes.set_yticks(ticks, labels)
    axes.set_yticks([], minor=True)
    return lambda value: min(max(value, bottom), top / 1.15) if value == value else top / 1.15


def _linear(axes: Axes, finite: Sequence[float]) -> Any:
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    low = 0.0 if 0 <= low < 0.5 * high else low
    room = (high - low) or abs(high) or 1.0
    bottom, top = low - (0.06 * room), high + 0.15 * room
    axes.set_ylim(bottom, top)
    axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.4g}"))
    highest = high + 0.1 * room
    return lambda value: min(value, highest) if value == value else highest


def _steps_axis(axes: Axes, steps: Sequence[int]) -> None:
    if steps:
        axes.set_xlim(min(steps) - 0.5, max(steps) + 0.5)
    axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))


def _differs(finding: Finding) -> bool:
    return finding.state is State.DIFFER


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _short(value: float) -> str:
    return f"{value:g}" if 0.001 <= value < 10_000 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
