# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Show two runs for `verl-crosscheck run`: a page that is redrawn on a terminal, lines in a pipe or a file."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from verl.crosscheck.cli.status_view import STYLES, doing, step
from verl.crosscheck.cli.terminal import data
from verl.crosscheck.inspection.run_state import RunState, WatchedRun
from verl.crosscheck.pair.plan import PairPlan, PairRequest, Side, pairs, report_arguments, script, warnings
from verl.crosscheck.pair.play import PairView
from verl.crosscheck.pair.process import last_words
from verl.crosscheck.pair.watch import PairOutcome, PairSight
from verl.crosscheck.text import count, duration

LINE_EVERY_S = 60.0
"""Longest time without a line, where lines are printed."""


class RunView(PairView):
    """Shows pairs of runs on a terminal, a page that is redrawn; or as lines in a pipe or a file."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def warn(self, warning: str) -> None:
        self._out.print(data(f"Warning: {warning}", "yellow"))

    def begin(self, pair: PairPlan, number: int, total: int) -> None:
        self._print(*heading(pair, number, total))

    @contextmanager
    def watching(self, pair: PairPlan) -> Iterator[Callable[[PairSight], object]]:
        if not self._out.is_terminal:
            yield Lines(self._out, pair).show
            return
        try:
            with Live(console=self._out, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
                yield lambda sight: live.update(page(pair, sight), refresh=True)
        finally:
            with suppress(OSError):
                self._out.show_cursor()

    def end_runs(self) -> None:
        self._print(Text("Ending both runs ...", "dim"))

    def end(self, outcome: PairOutcome) -> None:
        self._print(*ending(outcome), Text())

    def interrupted(self, root: Path) -> None:
        self._print(Text(f"Interrupted. Both runs have ended; what they left is in {root}.", "yellow"))

    def not_started(self, number: int) -> None:
        self._print(data(f"{count(number, 'pair')} of runs not started, because of that.", "yellow"))

    def no_report(self) -> None:
        self._print(data("No report: no update of two runs was compared.", "yellow"))

    def _print(self, *parts: RenderableType) -> None:
        """Print, unless the terminal is gone."""
        with suppress(OSError):
            for part in parts:
                self._out.print(part, soft_wrap=True)


def commands_view(request: PairRequest, language: str) -> Iterator[RenderableType]:
    """Yield what a person types at each of two sites, and then for the report."""
    for warning in warnings(request, {}, local=False):
        yield data(f"# Warning: {warning}", "yellow")
    planned = pairs(request)
    for pair in planned:
        yield data(f"# {pair.title}: {pair.question}", "bold")
        yield data("# Start both at about the same time; each waits for the other.")
        for side in pair.sides:
            yield data(f"\n# {side.label}", "bold")
            yield data(script(side, side.overrides))
        yield data(f"\n# To look on: verl-crosscheck status {shlex.quote(str(pair.exchange))} --watch\n")
    yield data("# When all have ended, where the directory is within reach", "bold")
    yield data(shlex.join(["verl-crosscheck", *report_arguments(request, planned, language)]))


def page(pair: PairPlan, sight: PairSight) -> RenderableType:
    """Return a page with the state of both runs."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("", style="dim", no_wrap=True)
    for side in pair.sides:
        table.add_column(f"{side.label} ({side.mode})", overflow="fold", ratio=1)
    table.add_row("state", *(Text(words, style) for words, style in _states(sight)))
    table.add_row("doing", *(Text() if run.state is RunState.STARTING else doing(run) for run in sight.runs))
    table.add_row("step", *(step(run) for run in sight.runs))
    return Group(Text(_stopwatch(sight.elapsed_s), "dim"), table, *map(_last_line, pair.sides))


def heading(pair: PairPlan, number: int, total: int) -> Iterator[RenderableType]:
    """Yield the lines before a pair of runs."""
    of = f" ({number} of {total})" if total > 1 else ""
    yield Text.assemble((f"{pair.title}{of}: ", "bold"), pair.question)
    for side in pair.sides:
        yield data(f"  log of {side.label}: {side.log}", "dim")


class Lines:
    """Prints a line whenever a run reaches another step or ends, and after `LINE_EVERY_S` without one."""

    def __init__(self, out: Console, pair: PairPlan) -> None:
        self._out, self._pair = out, pair
        self._shown: object = None
        self._shown_s = 0.0

    def show(self, sight: PairSight) -> None:
        now = [(state, run.global_step) for run, (state, _) in zip(sight.runs, _states(sight), strict=True)]
        if now != self._shown or sight.elapsed_s - self._shown_s >= LINE_EVERY_S:
            self._shown, self._shown_s = now, sight.elapsed_s
            both = zip(self._pair.sides, sight.runs, _states(sight), strict=True)
            parts = [f"{side.label} ({side.mode}) {_in_words(run, state)}" for side, run, (state, _) in both]
            self._out.print(data(f"{_stopwatch(sight.elapsed_s):>8}  {'; '.join(parts)}"), soft_wrap=True)


def ending(outcome: PairOutcome) -> Iterator[RenderableType]:
    """Yield the lines after a pair of runs."""
    words = f"{outcome.pair.title}: {outcome.words} ({duration(outcome.elapsed_s)})."
    yield data(words, "green" if outcome.ok else "bold red")
    if outcome.cause is None:
        return
    if outcome.error:
        yield data(outcome.error, "red")
    if outcome.tail:
        yield Text(f"The last lines of the log of {outcome.cause.label}:", "dim")
        yield data("\n".join(f"  {line}" for line in outcome.tail))
    yield data(f"The whole log: {outcome.cause.log}")


def _states(sight: PairSight) -> Iterator[tuple[str, str]]:
    """Yield words and style for each run: its state in the exchange once it takes part there, else of its process."""
    for run, code in zip(sight.runs, sight.codes, strict=True):
        if run.state is not RunState.NO_RUN:
            yield run.state.words, STYLES[run.state]
        elif code is None:
            yield "starting", "cyan"
        else:
            yield f"ended with status {code}", "bold red"


def _in_words(run: WatchedRun, state: str) -> str:
    at = str(step(run))
    if not run.state.lives or not at:
        return state
    return f"step {at}{f', {run.phase}' if run.phase else ''}"


def _stopwatch(elapsed_s: float) -> str:
    """Return seconds as `0:04` or `1:02:03`."""
    minutes, seconds = divmod(int(elapsed_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"


def _last_line(side: Side) -> Text:
    text = data(f"{side.label} printed: {last_words(side.log)}", "dim")
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
