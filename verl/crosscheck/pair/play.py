# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck run` at work: the pairs of a request one after another, then the report. Or what to type instead."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from verl.crosscheck.cli import run_view
from verl.crosscheck.cli.terminal import ATTENTION, console, data
from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.errors import CrossCheckError, DirectoryError
from verl.crosscheck.exchange.directory import PRIVATE_MODE, open_directory
from verl.crosscheck.inspection.run_state import RunProbe
from verl.crosscheck.inspection.status import Observer, Status
from verl.crosscheck.pair.commands import doubts, require_found
from verl.crosscheck.pair.plan import PairPlan, PairRequest, pairs, require_own_ports, script, shared_devices
from verl.crosscheck.pair.process import TrainingRun, end_all, start
from verl.crosscheck.pair.signals import Signals
from verl.crosscheck.pair.watch import END_GRACE_S, PairOutcome, PairSight, TimeLimits, follow
from verl.crosscheck.text import count

_DEVICE_FILES = ("nvidia0", "davinci0")


def play(request: PairRequest, limits: TimeLimits, language: str) -> int:
    """Run all pairs, write the report, and return the exit status.

    Raises:
        SettingsError: a command or a port will not do; nothing was started.
        DirectoryError: a folder will not do; nothing was started.
    """
    out, clock = console(), SystemClock()
    request = _prepared(request, out)
    planned = pairs(request)
    outcomes: list[PairOutcome] = []
    with Signals() as signals:
        try:
            for number, pair in enumerate(planned, start=1):
                _print(out, *run_view.heading(pair, number, len(planned)))
                outcomes.append(_run_pair(pair, limits, clock, signals, out))
                _print(out, *run_view.ending(outcomes[-1]), Text())
                if not outcomes[-1].ok:
                    break
            signals.check()
        except KeyboardInterrupt:
            _print(out, Text(f"Interrupted. Both runs have ended; what they left is in {request.root}.", "yellow"))
            return signals.exit_status
    return _conclude(request, outcomes, len(planned), language, out)


def print_commands(request: PairRequest, language: str) -> None:
    """Print what a person types at each of two sites, and where the report is made."""
    out = console()
    planned = pairs(request)
    for warning in _warnings(request, planned, local=False):
        out.print(data(f"# Warning: {warning}", "yellow"), soft_wrap=True)
    for pair in planned:
        out.print(data(f"# {pair.title}: {pair.question}", "bold"), soft_wrap=True)
        out.print(data("# Start both at about the same time; each waits for the other."), soft_wrap=True)
        for side in pair.sides:
            out.print(data(f"\n# {side.label}", "bold"))
            out.print(data(script(side, side.overrides)), soft_wrap=True)
        out.print(
            data(f"\n# To look on: verl-crosscheck status {shlex.quote(str(pair.exchange))} --watch\n"), soft_wrap=True
        )
    out.print(data("# When all have ended, where the directory is within reach", "bold"), soft_wrap=True)
    out.print(data(shlex.join(["verl-crosscheck", *report_arguments(request, planned, language)])), soft_wrap=True)


def report_arguments(request: PairRequest, compared: Sequence[PairPlan], language: str) -> list[str]:
    """Arguments of `verl-crosscheck` that make the report of these pairs."""
    directories = {pair.scenario: str(pair.exchange) for pair in compared if pair.scenario is not None}
    control = [str(pair.exchange) for pair in compared if pair.scenario is None]
    return [
        "report",
        *(directories[number] for number in sorted(directories)),
        *(["--scenario", "2"] if list(directories) == [2] else []),
        *(each for directory in control for each in ("--control", directory)),
        "--output",
        str(request.report),
        "--lang",
        language,
    ]


def _prepared(request: PairRequest, out: Console) -> PairRequest:
    """The request with real paths, once all that can be checked before anything starts has been; folders are there."""
    planned = pairs(request)
    for side in {side.command.option: side for pair in planned for side in pair.sides}.values():
        require_found(side.command, {**os.environ, **side.env}.get("PATH", os.defpath))
    for pair in planned:
        require_own_ports(pair)
    _require_new(request.root, "--dir")
    if request.out != request.root:
        _require_new(request.out, "--out")
    for warning in _warnings(request, planned, local=True):
        out.print(data(f"Warning: {warning}", "yellow"))
    root = open_directory(request.root, key="--dir")
    request.out.mkdir(parents=True, exist_ok=True)
    request = replace(request, root=root, out=request.out.resolve())
    for pair in pairs(request):
        pair.exchange.mkdir(mode=PRIVATE_MODE)
    return request


def _require_new(folder: Path, option: str) -> None:
    """Return if nothing is there that could be taken for what the runs leave, or be overwritten.

    Raises:
        DirectoryError: something is.
        OSError: the file system's own.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DirectoryError(f"{option} {folder} is not empty; expected a new or an empty folder. Name another one")


def _warnings(request: PairRequest, planned: Sequence[PairPlan], *, local: bool) -> Iterator[str]:
    for command in (request.a, request.b):
        yield from doubts(command)
    if not local or not any(Path("/dev", name).exists() for name in _DEVICE_FILES):
        return
    for pair in planned:
        if shared := shared_devices(pair, os.environ):
            yield (
                f"{pair.title}: both runs see the same devices ({shared}). If there are not enough for both, "
                "share them out with --a-env and --b-env, such as --a-env CUDA_VISIBLE_DEVICES=0,1 (Ascend: "
                "ASCEND_RT_VISIBLE_DEVICES)."
            )
            return


def _run_pair(pair: PairPlan, limits: TimeLimits, clock: Clock, signals: Signals, out: Console) -> PairOutcome:
    """Run a pair; when this returns or raises, nothing of it runs."""
    runs: list[TrainingRun] = []
    try:
        for side in pair.sides:
            signals.check()
            runs.append(start(side))
        return _followed(pair, runs, limits, clock, signals, out)
    finally:
        if any(run.poll() is None for run in runs):
            _print(out, Text("Ending both runs ...", "dim"))
        end_all(runs, clock, END_GRACE_S, lambda: signals.insisting)


def _followed(
    pair: PairPlan, runs: Sequence[TrainingRun], limits: TimeLimits, clock: Clock, signals: Signals, out: Console
) -> PairOutcome:
    look = _Look(Observer(pair.exchange, clock, 0.0, RunProbe(clock)))
    if not out.is_terminal:
        lines = run_view.Lines(out, pair)

        def tell(sight: PairSight) -> None:
            signals.check()
            lines.show(sight)

        return follow(pair, runs, look, limits, clock, tell)
    try:
        with Live(console=out, auto_refresh=False, transient=True, vertical_overflow="crop") as live:

            def draw(sight: PairSight) -> None:
                signals.check()
                live.update(run_view.page(pair, sight), refresh=True)

            return follow(pair, runs, look, limits, clock, draw)
    finally:
        with suppress(OSError):
            out.show_cursor()


class _Look:
    """Looks at the exchange; a file system that is away for a moment ends no runs."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._last = observer, observer.look()

    def __call__(self) -> Status:
        with suppress(OSError, CrossCheckError):
            self._last = self._observer.look()
        return self._last


def _conclude(request: PairRequest, outcomes: Sequence[PairOutcome], planned: int, language: str, out: Console) -> int:
    """Write the report of what there is. The exit status is that of the report, and never 0 if a run failed."""
    compared = [outcome.pair for outcome in outcomes if outcome.compared]
    left = planned - len(outcomes)
    if left:
        out.print(data(f"{count(left, 'pair')} of runs not started, because of that.", "yellow"))
    if not any(pair.scenario for pair in compared):
        out.print(data("No report: no update of two runs was compared.", "yellow"))
        return ATTENTION
    status = write_report(request, compared, language)
    return status or (0 if all(outcome.ok for outcome in outcomes) else ATTENTION)


def write_report(request: PairRequest, compared: Sequence[PairPlan], language: str) -> int:
    """Make the report of pairs that have ended, in a process of its own; it prints the verdict and the path.

    Returns its exit status.
    """
    sys.stdout.flush()
    program = [sys.executable, "-c", "from _verl_overlay.command import main; main()"]
    return subprocess.run([*program, *report_arguments(request, compared, language)], check=False).returncode


def _print(out: Console, *parts: RenderableType) -> None:
    """Print, if there still is somewhere to print to: a closed terminal must not keep runs from being ended."""
    with suppress(OSError):
        for part in parts:
            out.print(part, soft_wrap=True)
