# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Who waits for what, in a sentence or two. Pure functions from two runs to text."""

from __future__ import annotations

import re

from verl.crosscheck.errors import PeerFailedError
from verl.crosscheck.exchange.layout import kind_and_index
from verl.crosscheck.inspection.run_state import RunState, WatchedRun
from verl.crosscheck.settings import ShareMode
from verl.crosscheck.text import duration

_WAITING = re.compile(r"waiting for (?P<artefact>(?:rollout|ckpt)_[0-9]+)")


def summary(one: WatchedRun, other: WatchedRun) -> str:
    """What a pair of runs is about, the run that waits first."""
    if one.state is RunState.NO_RUN and other.state is RunState.NO_RUN:
        return "No run has taken part here yet."
    if one.state is other.state is RunState.FINISHED:
        return _finished(one, other)
    first, second = (one, other) if _rank(one) <= _rank(other) else (other, one)
    awaited = _awaited(first)
    if awaited:
        return _waits(first, awaited, second)
    if second.state is RunState.NO_RUN and first.state.lives:
        return f"{_sentence(first)} No run in mode {second.mode} has started: {_start(second.mode)}."
    if _followed(second) and first.state.needs_somebody and not _followed(first):
        return f"{_sentence(first)} {_who(second)} learnt of it{_at(second)}, and stopped as well."
    return f"{_sentence(first)} {_sentence(second)}"


def _rank(run: WatchedRun) -> int:
    """Who is spoken of first: who waits, then who is in trouble, the cause before its consequence, then who lives."""
    if _awaited(run):
        return 0
    if run.state.needs_somebody:
        return 2 if _followed(run) else 1
    return 3 if run.state.lives else 4


def _followed(run: WatchedRun) -> bool:
    """Whether it stopped because the other one had ended."""
    return run.state is RunState.FAILED and run.error == PeerFailedError.__name__


def _waits(run: WatchedRun, awaited: str, other: WatchedRun) -> str:
    since = _so_far(run)
    begins = f"{_who(run)} waits for {awaited}"
    if other.state is RunState.NO_RUN:
        return f"{begins}{since}, and no run in mode {other.mode} has started: {_start(other.mode)}."
    if other.number is not None and other.number <= run.others_before:
        return f"{begins}{since} from a run that must be started again: {_start(other.mode)}. {_sentence(other)}"
    theirs = _awaited(other)
    if theirs:
        return f"{begins}{since}, and the {other.mode} run waits for {theirs}{_so_far(other)}."
    if other.state.lives:
        if _published(other, awaited):
            return f"{begins}, which is there{since}; the {other.mode} run is {_doing(other)}."
        if other.phase == f"saving {awaited}":
            return f"{begins}; the {other.mode} run is saving it{_so_far(other)}."
        return f"{begins}{since}; the {other.mode} run is {_doing(other)}{_so_far(other)}."
    if _published(other, awaited):
        return f"{begins}, which is there{since}. {_sentence(other)}"
    hopeless = "" if other.state is RunState.SILENT else ", which will not come"
    return f"{begins}{since}{hopeless}. {_sentence(other)}"


def _finished(one: WatchedRun, other: WatchedRun) -> str:
    steps = {one.global_step, other.global_step}
    if len(steps) == 1:
        return "Both runs finished" + ("." if one.global_step is None else f", after step {one.global_step}.")
    return (
        f"Both runs finished, the {one.mode} run after step {one.global_step} and the {other.mode} run after step "
        f"{other.global_step}."
    )


def _sentence(run: WatchedRun) -> str:
    who, at = _who(run), _at(run)
    if run.state is RunState.NO_RUN:
        return f"No run in mode {run.mode} has started."
    if run.state is RunState.UNREADABLE:
        return f"{who} cannot be read: its files are damaged, or of another version."
    if run.state is RunState.FINISHED:
        return f"{who} finished{'' if run.global_step is None else f', after step {run.global_step}'}."
    if run.state is RunState.FAILED:
        return f"{who} failed{at}: {run.error}: {_first_line(run.message)}"
    if run.state is RunState.INTERRUPTED:
        return f"{who} was interrupted{at}: {run.error}: {_first_line(run.message)}"
    if run.state is RunState.DIED:
        return (
            f"{who} died{at}: its process is gone and reported no end, as after kill -9 or when memory ran out. Look "
            "into the kernel's log, then start it again."
        )
    if run.state is RunState.SILENT:
        age = "" if run.last_sign_s is None else f" for {duration(run.last_sign_s)}"
        return f"{who} has been silent{age}, and was last seen{at or ' at its start'}. Look on {run.host}."
    return f"{who} is {_doing(run)}{_so_far(run)}."


def _start(mode: ShareMode) -> str:
    return f"start one with trainer.share_data={mode} and this same directory"


def _who(run: WatchedRun) -> str:
    return f"The {run.mode} run"


def _doing(run: WatchedRun) -> str:
    step = "" if run.global_step is None else f" in step {run.global_step}"
    return f"{run.phase}{step}"


def _at(run: WatchedRun) -> str:
    """Where a run ended."""
    if not run.phase or run.phase == "starting":
        return " at its start"
    return f" while {_doing(run)}"


def _so_far(run: WatchedRun) -> str:
    return "" if run.phase_s is None else f" ({duration(run.phase_s)} so far)"


def _awaited(run: WatchedRun) -> str:
    match = _WAITING.fullmatch(run.phase) if run.state.lives else None
    return match["artefact"] if match else ""


def _published(run: WatchedRun, artefact: str) -> bool:
    found = kind_and_index(artefact)
    return found is not None and found[1] < run.published.get(found[0], 0)


def _first_line(text: str) -> str:
    line = text.strip().partition("\n")[0]
    return line if line.endswith((".", "!", "?")) else f"{line}."
