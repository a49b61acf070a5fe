# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Draw the page's charts as SVG: a quantity over steps against its threshold, outcomes of both runs, changes by layer.

The drawings are written by hand, since they are few and plain: matplotlib took a second to import and 0.1 s a chart.
Lines and texts have classes of the page's style, so that they follow light and dark. At most `MAX_POINTS` points of a
line are drawn: of more, the lowest and the highest of each stretch, so that no peak is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby

from verl.crosscheck.diagnosis.findings import Finding, State

LOG_FROM_RATIO = 30.0
"""A logarithmic axis where the largest number that is shown is this many times the smallest."""
MAX_POINTS = 200
"""Points of a line."""

_LABEL_CHARS = 14
_MARKED_STEPS = 60
"""Up to so many steps each has a dot; beyond, only those that differ."""
_MAX_SPANS = 60
"""Stretches of steps without a value that are marked."""

Point = tuple[float, float]
Heights = Callable[[float], float]
"""From a number to its place on the axis, between 0 at the bottom and 1 at the top."""


class _Chart:
    """A chart in the making, `width` by `height` units of the drawing."""

    def __init__(self, width: int = 360, height: int = 172) -> None:
        self.left, self.right, self.top, self.bottom = 46, width - 16, 8, height - 22
        self._size = f"0 0 {width} {height}"
        self._parts: list[str] = []

    def y(self, height: float) -> float:
        """Return the place of a height between 0 and 1."""
        return self.bottom - height * (self.bottom - self.top)

    def path(self, kind: str, points: Sequence[Point]) -> None:
        """Draw a line through points."""
        if points:
            self._parts.append(f'<path class="{kind}" d="M{"L".join(f"{x:.1f} {y:.1f}" for x, y in points)}"/>')

    def marks(self, kind: str, shape: str, points: Sequence[Point]) -> None:
        """Draw the same shape, in relative coordinates, at each point."""
        if points:
            self._parts.append(f'<path class="{kind}" d="{"".join(f"M{x:.1f} {y:.1f}{shape}" for x, y in points)}"/>')

    def across(self, kind: str, height: float) -> None:
        """Draw a line from side to side."""
        self.path(kind, [(self.left, self.y(height)), (self.right, self.y(height))])

    def box(self, kind: str, left: float, right: float, low: float, high: float) -> None:
        """Draw a filled box between two places and two heights."""
        top, bottom = self.y(high), self.y(low)
        place = (
            f'x="{left:.1f}" y="{top:.1f}" width="{max(right - left, 0.5):.1f}" height="{max(bottom - top, 0.5):.1f}"'
        )
        self._parts.append(f'<rect class="{kind}" {place}/>')

    def text(self, kind: str, x: float, y: float, text: str) -> None:
        self._parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(text)}</text>')

    def values_axis(self, ticks: Sequence[tuple[float, str]]) -> None:
        """Draw a line and a label at each height."""
        for height, text in ticks:
            self.across("grid", height)
            self.text("vt", self.left - 5, self.y(height) + 4, text)

    def svg(self) -> str:
        axes = f'<path class="axis" d="M{self.left} {self.top}V{self.bottom}H{self.right}"/>'
        return f'<svg viewBox="{self._size}" role="img">{"".join(self._parts)}{axes}</svg>'


def quantity_chart(points: Sequence[tuple[int, Finding]], floor: float | None = None) -> str:
    """Return the SVG of one quantity over steps.

    Args:
        points: global step and finding, in order.
        floor: worst value of the control run.
    """
    shown = [(step, each) for step, each in points if each.state is not State.MISSING and each.value is not None]
    limits = [(step, each.limit) for step, each in points if each.limit is not None]
    values = [_number(each.value) for _, each in shown]
    chart = _Chart()
    fit, ticks = _scale([*values, *(limit for _, limit in limits), *([] if floor is None else [floor])])
    chart.values_axis(ticks)
    x = _steps_axis(chart, [step for step, _ in points])
    for first, last in list(_missing_spans(points))[:_MAX_SPANS]:
        chart.box("gap-span", x(first - 0.5), x(last + 0.5), 0, 1)
    line = [(x(step), chart.y(fit(value))) for (step, _), value in zip(shown, values, strict=True)]
    chart.path("plain", _thinned(line))
    if len(line) <= _MARKED_STEPS:
        chart.marks("plain dot", "h0", line)
    wrong = [at for (_, each), at in zip(shown, line, strict=True) if each.state is State.DIFFER]
    chart.marks("differ", "m-3 -3l6 6m0 -6l-6 6", _thinned(wrong))
    for first, last, limit in list(_limit_spans(limits))[:MAX_POINTS]:
        chart.path("limit", [(x(first - 0.5), chart.y(fit(limit))), (x(last + 0.5), chart.y(fit(limit)))])
    if floor is not None and math.isfinite(floor):
        chart.across("floor", fit(floor))
    return chart.svg()


def outcome_chart(points: Sequence[tuple[int, float | None, float | None]]) -> str:
    """Return the SVG of what people watch, of both runs.

    Args:
        points: global step, A's value, B's value.
    """
    chart = _Chart()
    finite = [value for row in points for value in row[1:] if value is not None and math.isfinite(value)]
    fit, ticks = _linear(finite)
    chart.values_axis(ticks)
    x = _steps_axis(chart, [row[0] for row in points])
    # B is the wider line below: where both are equal, both are seen.
    for column, kind in ((2, "of-b"), (1, "of-a")):
        kept = [(row[0], value) for row in points if (value := row[column]) is not None and math.isfinite(value)]
        line = [(x(step), chart.y(fit(value))) for step, value in kept]
        chart.path(kind, _thinned(line))
        if len(line) == 1:
            chart.marks(f"{kind} dot", "h0", line)
    return chart.svg()


def layers_chart(by_layer: Mapping[str, float], limit: float | None) -> str:
    """Return the SVG of a bar for each layer.

    Args:
        by_layer: largest relative difference of its tensors, in order of layers.
        limit: beyond which a difference counts.
    """
    chart = _Chart(1080, 206)
    values = [_number(value) for value in by_layer.values()]
    fit, ticks = _scale([*values, *([] if limit is None else [limit])])
    chart.values_axis(ticks)
    room = (chart.right - chart.left) / max(len(values), 1)
    every = max(1, math.ceil(len(values) / 24))
    for at, (name, value) in enumerate(zip(by_layer, values, strict=True)):
        middle = chart.left + (at + 0.5) * room
        over = limit is not None and not value <= limit
        chart.box("bar over" if over else "bar", middle - 0.35 * room, middle + 0.35 * room, 0, fit(value))
        if at % every == 0:
            shown = "".join(each if each.isprintable() else "?" for each in name[:_LABEL_CHARS])
            chart.text("st", middle, chart.bottom + 14, shown)
    if limit is not None:
        chart.across("limit", fit(limit))
    return chart.svg()


def _thinned(points: Sequence[Point]) -> Sequence[Point]:
    """Return at most `MAX_POINTS` points: of each stretch its lowest and highest, in order."""
    if len(points) <= MAX_POINTS:
        return points
    length = math.ceil(2 * len(points) / MAX_POINTS)
    kept: list[Point] = []
    for start in range(0, len(points), length):
        part = points[start : start + length]
        ends = {part.index(min(part, key=lambda each: each[1])), part.index(max(part, key=lambda each: each[1]))}
        kept += [part[at] for at in sorted(ends)]
    return kept


def _missing_spans(points: Sequence[tuple[int, Finding]]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last step of each stretch of steps in which it was not compared."""
    for missing, group in groupby(points, key=lambda each: each[1].state is State.MISSING):
        if missing:
            steps = [step for step, _ in group]
            yield steps[0], steps[-1]


def _limit_spans(limits: Sequence[tuple[int, float]]) -> Iterator[tuple[int, int, float]]:
    """Yield the first and the last step of each stretch with the same threshold."""
    for limit, group in groupby(limits, key=lambda each: each[1]):
        steps = [step for step, _ in group]
        yield steps[0], steps[-1], limit


def _steps_axis(chart: _Chart, steps: Sequence[int]) -> Callable[[float], float]:
    """Draw the labels of steps; return what gives the place of a step."""
    first, last = (min(steps) - 0.5, max(steps) + 0.5) if steps else (0.0, 1.0)
    scale = (chart.right - chart.left) / (last - first)
    every = max(1, int(_nice((last - first) / 8)))
    for step in range(math.ceil(first / every) * every, math.floor(last) + 1, every):
        chart.text("st", chart.left + (step - first) * scale, chart.bottom + 14, str(step))
    return lambda step: chart.left + (step - first) * scale


def _scale(numbers: Sequence[float]) -> tuple[Heights, list[tuple[float, str]]]:
    """Return the axis on which all numbers are seen: the height of a number, and the ticks.

    On a logarithmic axis zero has a place of its own at the bottom; what is not finite stands at the top.
    """
    finite = [each for each in numbers if math.isfinite(each)]
    positive = [each for each in finite if each > 0]
    if not positive or min(finite) < 0 or max(positive) / min(positive) <= LOG_FROM_RATIO:
        return _linear(finite)
    zeros = len(positive) < len(finite)
    low = max(math.floor(math.log10(min(positive)) - (1 if zeros else 0)), -300)
    bottom, top = low - 0.18, math.log10(max(positive)) + 0.48

    def height(value: float) -> float:
        if not math.isfinite(value):
            return 0.97
        return (min(max(math.log10(value) if value > 0 else low, low), top) - bottom) / (top - bottom)

    decades = range(low + (1 if zeros else 0), math.floor(top) + 1)
    ticks = [(height(10.0**each), _short(10.0**each)) for each in decades[:: max(1, math.ceil(len(decades) / 5))]]
    return height, [*([(height(0.0), "0")] if zeros else []), *ticks]


def _linear(finite: Sequence[float]) -> tuple[Heights, list[tuple[float, str]]]:
    low, high = (min(finite), max(finite)) if finite else (0.0, 1.0)
    low = 0.0 if 0 <= low < 0.5 * high else low
    room = (high - low) or abs(high) or 1.0
    bottom, top = low - 0.06 * room, high + 0.15 * room

    def height(value: float) -> float:
        return min((value - bottom) / (top - bottom), 0.97) if math.isfinite(value) else 0.97

    every = _nice((top - bottom) / 4)
    first = math.ceil(bottom / every)
    ticks = [(first + at) * every for at in range(8) if (first + at) * every <= top]
    return height, [(height(each), f"{each:.4g}") for each in ticks]


def _nice(width: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, ... that is no less than a width."""
    power = 10.0 ** math.floor(math.log10(width))
    return next(each * power for each in (1, 2, 5, 10) if each * power >= width * (1 - 1e-9))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _short(value: float) -> str:
    return f"{value:g}" if 0.001 <= value < 10_000 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
