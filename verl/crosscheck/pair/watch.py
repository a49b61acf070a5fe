# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Follow a pair of runs until both have ended, by their processes, logs and exchange, and return how they ended.

`Attention` decides whether a pair must be ended; `follow` looks and returns the outcome; the caller ends the runs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import PeerFailedError, PeerSilentError, WaitTimeoutError
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.inspection.run_state import RunState, WatchedRun
from verl.crosscheck.inspection.status import Status
from verl.crosscheck.pair.plan import PairPlan, Side
from verl.crosscheck.pair.process import error_line, last_lines
from verl.crosscheck.text import duration

LOOK_EVERY_S = 1.0
END_GRACE_S = 30.0
"""Seconds that a run has to end when it is asked to."""

_TAIL_LINES = 15
_OF_THE_OTHER = frozenset(each.__name__ for each in (PeerFailedError, PeerSilentError, WaitTimeoutError))
"""Errors of a run that waited for another one in vain."""


class Running(Protocol):
    """What this module needs of a run; see `process.TrainingRun`."""

    side: Side

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""

    def log_bytes(self) -> int:
        """Return the size of its log."""

    def without_overrides(self) -> str:
        """Return the command line of a training in it without its overrides, or empty."""


@dataclass(frozen=True)
class TimeLimits:
    """How long to wait, in seconds.

    Args:
        grace_s: for the other run to end by itself, once one has failed.
        stall_s: without a new line in a log and without progress in the exchange.
        total_s: for the pair; None for as long as it takes.
    """

    grace_s: float = 60.0
    stall_s: float = 7200.0
    total_s: float | None = None


@dataclass(frozen=True)
class PairSight:
    """A pair at one moment.

    Args:
        elapsed_s: since it was started.
        codes: exit status of each run, None while it runs.
        runs: each run as the exchange shows it, in the order of the sides.
        status: everything that the exchange shows.
        log_bytes: size of each log.
    """

    elapsed_s: float
    codes: tuple[int | None, int | None]
    runs: tuple[WatchedRun, WatchedRun]
    status: Status
    log_bytes: tuple[int, int]

    @property
    def over(self) -> bool:
        return None not in self.codes


@dataclass(frozen=True)
class PairOutcome:
    """How a pair ended.

    Args:
        ok: whether both runs finished all their steps.
        words: one sentence.
        cause: the run to look at; None if there is none.
        error: the line that names what went wrong in it; may be empty.
        tail: the last lines of its log.
        compared: whether the exchange holds an update of both, so that a report can say something.
        codes: exit status of each run, in the order of the sides; None for one that had to be ended.
        runs: each run as the exchange last showed it.
    """

    pair: PairPlan
    ok: bool
    words: str
    elapsed_s: float
    codes: tuple[int | None, int | None]
    runs: tuple[WatchedRun, WatchedRun]
    compared: bool
    cause: Side | None = None
    error: str = ""
    tail: tuple[str, ...] = ()


@dataclass
class Attention:
    """Decides whether a pair must be ended, from one look after another.

    Args:
        unreached: for a run by its number, a training in it that its overrides did not reach, or empty.
    """

    pair: PairPlan
    limits: TimeLimits
    unreached: Callable[[int], str]
    _since_s: float = field(default=0.0, init=False)
    _signs: object = field(default=None, init=False)
    _failed_s: float | None = field(default=None, init=False)

    def complaint(self, sight: PairSight) -> tuple[str, int | None]:
        """Return why the pair must be ended, and which run is the cause; empty if it goes on."""
        if not sight.over:
            for complain in (self._lost, self._failed, self._stalled):
                words, which = complain(sight)
                if words:
                    return words, which
        return "", None

    def _lost(self, sight: PairSight) -> tuple[str, int | None]:
        """Find a run that will never take part, while the other one waits for it."""
        for which, (code, run) in enumerate(zip(sight.codes, sight.runs, strict=True)):
            if run.state is not RunState.NO_RUN:
                continue
            label = self.pair.sides[which].label
            if code == 0:
                return f"{label}'s command ended without taking part: {_passing_on(self.pair.sides[which])}", which
            if code is None and (line := self.unreached(which)):
                short = textwrap.shorten(line, 80, placeholder=" ...")
                passing = _passing_on(self.pair.sides[which])
                return f"{label}'s command started a training without the overrides ({short}): {passing}", which
        return "", None

    def _failed(self, sight: PairSight) -> tuple[str, int | None]:
        failed = [which for which, code in enumerate(sight.codes) if code not in (None, 0)]
        if not failed:
            return "", None
        if sight.runs[failed[0]].state is RunState.NO_RUN:  # the other one cannot learn of it
            return _ended(self.pair, sight, failed[0]), failed[0]
        if self._failed_s is None:
            self._failed_s = sight.elapsed_s
        if sight.elapsed_s - self._failed_s < self.limits.grace_s:
            return "", None
        cause = _suspects(sight)[0]
        late = self.pair.sides[sight.codes.index(None)].label
        return f"{_ended(self.pair, sight, cause)}; {late} was ended {duration(self.limits.grace_s)} later", cause

    def _stalled(self, sight: PairSight) -> tuple[str, int | None]:
        signs = (sight.log_bytes, sight.codes, [(run.state, run.phase, run.global_step) for run in sight.runs])
        if signs != self._signs:
            self._signs, self._since_s = signs, sight.elapsed_s
        if sight.elapsed_s - self._since_s >= self.limits.stall_s:
            return f"nothing happened in either run for {duration(self.limits.stall_s)} (--stall-limit)", None
        if self.limits.total_s is not None and sight.elapsed_s >= self.limits.total_s:
            return f"not done after {duration(self.limits.total_s)} (--time-limit)", None
        return "", None


def follow(
    pair: PairPlan,
    runs: Sequence[Running],
    look: Callable[[], Status],
    limits: TimeLimits,
    clock: Clock,
    show: Callable[[PairSight], object],
) -> PairOutcome:
    """Look until both runs have ended or must be ended. The caller ends them, also if this raises.

    Args:
        look: the state of the exchange.
        show: called after each look; what it raises ends the following.
    """
    began_s = clock.monotonic_s()
    attention = Attention(pair, limits, lambda which: runs[which].without_overrides())
    while True:
        codes = (
            runs[0].poll(),
            runs[1].poll(),
        )  # before the exchange: an end is written there before it is the process's
        sight = _sight(pair, codes, runs, look(), clock.monotonic_s() - began_s)
        show(sight)
        words, which = attention.complaint(sight)
        if words:
            return _outcome(pair, sight, words, which)
        if sight.over:
            return conclude(pair, sight)
        clock.sleep(LOOK_EVERY_S)


def conclude(pair: PairPlan, sight: PairSight) -> PairOutcome:
    """Return how a pair ended whose runs have both ended by themselves."""
    for which in _suspects(sight):
        run, side = sight.runs[which], pair.sides[which]
        if sight.codes[which] != 0:
            return _outcome(pair, sight, _ended(pair, sight, which), which)
        if run.state is RunState.NO_RUN:
            return _outcome(
                pair, sight, f"{side.label}'s command ended without taking part: {_passing_on(side)}", which
            )
        if run.state is not RunState.FINISHED:
            return _outcome(pair, sight, f"{side.label} ended with status 0, and its run {run.state.words}", which)
        done = (run.global_step or 0) - run.after_step
        if done < pair.steps:
            words = f"{side.label} ended after {done} of {pair.steps} steps and reported no error"
            return _outcome(pair, sight, words, which)
    words = f"both runs finished {pair.steps} step{'' if pair.steps == 1 else 's'}"
    return _outcome(pair, sight, words, None, ok=True)


def _suspects(sight: PairSight) -> list[int]:
    """Return both runs, the one to look at first: one that failed, one that only followed it, one without an error."""

    def rank(which: int) -> int:
        run = sight.runs[which]
        if sight.codes[which] in (None, 0) and run.state in (RunState.FINISHED, RunState.STARTING, RunState.RUNNING):
            return 2
        return 1 if run.error in _OF_THE_OTHER else 0

    return sorted((0, 1), key=rank)


def _ended(pair: PairPlan, sight: PairSight, which: int) -> str:
    run, code, label = sight.runs[which], sight.codes[which], pair.sides[which].label
    if code is None:
        how = run.state.words
    else:
        how = f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"
    if run.state is RunState.NO_RUN:
        return f"{label} {how} before it took part"
    step = "" if run.global_step is None else f" in step {run.global_step}"
    return f"{label} {how}{f', while {run.phase}{step}' if run.phase else ''}"


def _passing_on(side: Side) -> str:
    script = side.command.script
    if script is not None:
        return f'the training command in {script} must end in "$@"'
    return f"{side.command.option} must hand the overrides at its end on to verl.trainer.main_ppo of this fork"


def _outcome(pair: PairPlan, sight: PairSight, words: str, which: int | None, *, ok: bool = False) -> PairOutcome:
    outcome = PairOutcome(pair, ok, words, sight.elapsed_s, sight.codes, sight.runs, _compared(sight))
    if which is None:
        return outcome
    run, side = sight.runs[which], pair.sides[which]
    reported = f"{run.error}: {run.message}" if run.error else ""
    tail = tuple(last_lines(side.log, _TAIL_LINES))
    return replace(outcome, cause=side, error=reported or error_line(side.log), tail=tail)


def _compared(sight: PairSight) -> bool:
    """Return whether both runs have done an update: one has published weights, the other one has taken some."""
    counts = [(run.published.get(ArtefactKind.CKPT, 0), run.taken.get(ArtefactKind.CKPT, 0)) for run in sight.runs]
    return any(published for published, _ in counts) and any(taken for _, taken in counts)


def _sight(
    pair: PairPlan, codes: tuple[int | None, int | None], runs: Sequence[Running], status: Status, elapsed_s: float
) -> PairSight:
    by_mode = {run.mode: run for run in status.runs}
    first, second = (by_mode.get(side.mode, WatchedRun(side.mode)) for side in pair.sides)
    return PairSight(elapsed_s, codes, (first, second), status, (runs[0].log_bytes(), runs[1].log_bytes()))
