# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Play pairs of runs: `play_pair` plays one pair, `play` all pairs of a request and then the report.

What is shown meanwhile is the caller's: it gives a view. Called by `verl.crosscheck.cli.run` and by the demo.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.errors import CrossCheckError, DirectoryError
from verl.crosscheck.exchange.directory import PRIVATE_MODE, open_directory
from verl.crosscheck.inspection.run_state import RunProbe
from verl.crosscheck.inspection.status import Observer, Status
from verl.crosscheck.pair.commands import require_found
from verl.crosscheck.pair.plan import PairPlan, PairRequest, pairs, report_arguments, require_own_ports, warnings
from verl.crosscheck.pair.process import TrainingRun, end_all, start
from verl.crosscheck.pair.watch import END_GRACE_S, PairOutcome, PairSight, TimeLimits, follow

FAILED = 1
"""Exit status: a run failed, or there is no report."""


class PairView:
    """What a caller shows of pairs that are played. This one shows nothing; subclasses override what they show.

    No method may raise because its output is gone: a closed terminal must not keep runs from being ended.
    """

    def warn(self, warning: str) -> None:
        """Show what may go wrong, before anything starts."""

    def begin(self, pair: PairPlan, number: int, total: int) -> None:
        """Show which pair starts, the `number`-th of `total`."""

    def watching(self, pair: PairPlan) -> AbstractContextManager[Callable[[PairSight], object]]:
        """Return a context in which a function is called with each look at the pair, once a second."""
        return nullcontext(lambda sight: None)

    def end_runs(self) -> None:
        """Show that runs are being ended, which takes up to `watch.END_GRACE_S` seconds."""

    def end(self, outcome: PairOutcome) -> None:
        """Show how a pair ended."""

    def interrupted(self, root: Path) -> None:
        """Show that all runs have ended after a signal; `root` holds what they left."""

    def not_started(self, number: int) -> None:
        """Show that `number` pairs were not started because an earlier one failed."""

    def no_report(self) -> None:
        """Show that there is nothing to report on."""


class Signals:
    """Count Ctrl-C, SIGTERM and SIGHUP within the block, to act on them where nothing is half done.

    A signal that this process was started to ignore, as under `nohup`, stays ignored.
    """

    def __init__(self) -> None:
        self.received: list[int] = []
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(each) is not signal.SIG_IGN:
                    self._before[each] = signal.signal(each, lambda number, frame: self.received.append(number))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for each, handler in self._before.items():
            signal.signal(each, handler)

    @property
    def insisting(self) -> bool:
        """Whether a second signal has come."""
        return len(self.received) > 1

    @property
    def exit_status(self) -> int:
        """What shells report for a program that such a signal ended."""
        return 128 + self.received[0] if self.received else 0

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has come."""
        if self.received:
            raise KeyboardInterrupt


def play_pair(
    pair: PairPlan,
    limits: TimeLimits,
    *,
    signals: Signals,
    view: PairView | None = None,
    clock: Clock | None = None,
    inherited: Mapping[str, str] | None = None,
) -> PairOutcome:
    """Start both runs of a pair, watch them, and return how each ended. When this returns or raises, nothing runs.

    The exchange directory is made if it is not there. Each run has a process group, a Ray session, a log
    (`side.log`) and a folder (`side.folder`) of its own. A pair whose one run fails, stalls or outlasts `limits` is
    ended. A failed run is no exception: see `PairOutcome.ok`, `cause`, `error`, `codes` and `runs`.

    Args:
        signals: an entered `Signals`; a signal ends both runs, a second one ends them without grace.
        view: its `watching` and `end_runs` are called; nothing is shown if None.
        inherited: environment that both start from; this process's if None. `side.env` comes on top.

    Raises:
        KeyboardInterrupt: a signal has come; both runs have ended.
        OSError: a run could not be started, or its folder not be made.
    """
    view, clock = view or PairView(), clock or SystemClock()
    runs: list[TrainingRun] = []
    pair.exchange.mkdir(mode=PRIVATE_MODE, parents=True, exist_ok=True)
    try:
        for side in pair.sides:
            signals.check()
            runs.append(start(side, inherited))
        look = _Look(Observer(pair.exchange, clock, 0.0, RunProbe(clock)))
        with view.watching(pair) as show:

            def shown(sight: PairSight) -> None:
                signals.check()
                show(sight)

            return follow(pair, runs, look, limits, clock, shown)
    finally:
        if any(run.poll() is None for run in runs):
            view.end_runs()
        end_all(runs, clock, END_GRACE_S, lambda: signals.insisting)


def play(request: PairRequest, limits: TimeLimits, language: str, view: PairView) -> int:
    """Run all pairs, write the report, and return the exit status.

    Raises:
        SettingsError: a command or a port will not do; nothing was started.
        DirectoryError: a folder will not do; nothing was started.
    """
    request = _prepared(request, view)
    planned = pairs(request)
    outcomes: list[PairOutcome] = []
    with Signals() as signals:
        try:
            for number, pair in enumerate(planned, start=1):
                view.begin(pair, number, len(planned))
                outcomes.append(play_pair(pair, limits, signals=signals, view=view))
                view.end(outcomes[-1])
                if not outcomes[-1].ok:
                    break
            signals.check()
        except KeyboardInterrupt:
            view.interrupted(request.root)
            return signals.exit_status
    if len(outcomes) < len(planned):
        view.not_started(len(planned) - len(outcomes))
    compared = [outcome.pair for outcome in outcomes if outcome.compared]
    if not any(pair.scenario for pair in compared):
        view.no_report()
        return FAILED
    # A report with exit status 0 does not hide that a run failed.
    return write_report(request, compared, language) or (0 if all(outcome.ok for outcome in outcomes) else FAILED)


def write_report(request: PairRequest, compared: Sequence[PairPlan], language: str) -> int:
    """Make the report of pairs that have ended, in a process of its own; it prints the verdict and the path.

    Returns its exit status.
    """
    sys.stdout.flush()
    program = [sys.executable, "-c", "from _verl_overlay.command import main; main()"]
    return subprocess.run([*program, *report_arguments(request, compared, language)], check=False).returncode


def _prepared(request: PairRequest, view: PairView) -> PairRequest:
    """Return the request with real paths. All that can be checked before a start has been; folders are made."""
    planned = pairs(request)
    for side in {side.command.option: side for pair in planned for side in pair.sides}.values():
        require_found(side.command, {**os.environ, **side.env}.get("PATH", os.defpath))
    for pair in planned:
        require_own_ports(pair)
    _require_new(request.root, "--dir")
    if request.out != request.root:
        _require_new(request.out, "--out")
    for warning in warnings(request, os.environ, local=True):
        view.warn(warning)
    root = open_directory(request.root, key="--dir")
    request.out.mkdir(parents=True, exist_ok=True)
    request = replace(request, root=root, out=request.out.resolve())
    for pair in pairs(request):
        pair.exchange.mkdir(mode=PRIVATE_MODE)
    return request


def _require_new(folder: Path, option: str) -> None:
    """Raise unless the folder is new or empty: what lies there could be taken for the runs' own, or be overwritten.

    Raises:
        DirectoryError: something lies there.
        OSError: the file system's own.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DirectoryError(f"{option} {folder} is not empty; expected a new or an empty folder. Name another one")


class _Look:
    """Look at the exchange; while the file system does not answer, the last look counts."""

    def __init__(self, observer: Observer) -> None:
        self._observer, self._last = observer, observer.look()

    def __call__(self) -> Status:
        with suppress(OSError, CrossCheckError):
            self._last = self._observer.look()
        return self._last
