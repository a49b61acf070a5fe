# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Collect what `verl-crosscheck status` shows; `--json` prints these facts field by field."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import NOT_SET, Comparison, Difference, compare
from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError, DirectoryError, PeerFailedError
from verl.crosscheck.exchange.layout import Layout, kind_and_index
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import Session, locate
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.inspection.directory_contents import DirectoryContents, directory_contents
from verl.crosscheck.inspection.run_state import RunProbe, RunState, WatchedRun
from verl.crosscheck.settings import MODES, ShareMode
from verl.crosscheck.text import duration

SCHEMA = "verl-crosscheck/status"
SCHEMA_VERSION = 1

_WAITING = re.compile(r"waiting for (?P<artefact>(?:rollout|ckpt)_[0-9]+)")
_CONTENTS_EVERY_S = 2.0
_CONTENTS_SHARE = 0.1
"""Of the time of a watching command, that may go into measuring what lies in the directory."""


@dataclass(frozen=True)
class SessionFacts:
    """The session that is shown."""

    number: int
    id: str
    base_step: int
    folder: str


@dataclass(frozen=True)
class DifferingSetting:
    """A setting or fact with the values of both runs; `null` also where it is not set."""

    key: str
    ckpt: Any
    rollout: Any
    reason: str = ""
    """Why it may differ."""


@dataclass(frozen=True)
class Agreement:
    """How the configurations and facts of both runs compare.

    Args:
        facts_compared: whether both runs have reported what only their trainers know of model, tokenizer and data.
        must_agree: what differs and must not.
        may_differ: what differs and may.
        not_compared: keys that nothing is known about, with the reason.
    """

    agrees: bool
    facts_compared: bool
    must_agree: tuple[DifferingSetting, ...]
    may_differ: tuple[DifferingSetting, ...]
    not_compared: Mapping[str, str]


@dataclass(frozen=True)
class Status:
    """A pair of runs and their directory, at one moment.

    Args:
        version_differences: versions of packages that both runs name and that differ; by package, then by mode.
        attention: whether a run needs somebody; the command's exit status is then 1.
    """

    directory: str
    summary: str
    attention: bool
    session: SessionFacts | None
    runs: tuple[WatchedRun, ...]
    version_differences: Mapping[str, Mapping[str, str]]
    agreement: Agreement | None
    contents: DirectoryContents = field(metadata={"key": "holdings"})
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


@dataclass
class Observer:
    """Looks at a directory, once or again and again.

    Args:
        root: an exchange directory, or the folder of a session that was put aside.
        wait_s: how long to look, each time, at a run whose file times leave in doubt whether it lives.
    """

    root: Path
    clock: Clock
    wait_s: float
    probe: RunProbe
    _compared: tuple[object, Agreement | None] = (None, None)
    _measured: tuple[float, str | None, DirectoryContents] | None = None

    def look(self) -> Status:
        """Return the state of both runs and of their directory.

        Raises:
            DamagedError: what names the session is not what it should be.
            OSError, DirectoryError: the directory cannot be listed.
        """
        places, session = self._locate()
        runs: tuple[WatchedRun, ...] = tuple(WatchedRun(mode) for mode in MODES)
        agreement = None
        versions: dict[str, dict[str, str]] = {}
        if session is not None:
            self.probe.watch(session, MODES, self.wait_s)
            seen = [self.probe.look(session, mode) for mode in MODES]
            runs = tuple(run for run, _ in seen)
            versions = _version_differences(runs)
            agreement = self._agreement(session, [card for _, card in seen])
        return Status(
            directory=str(self.root),
            summary=summary(*runs),
            attention=any(run.state.needs_somebody for run in runs),
            session=None if session is None else _session_facts(session),
            runs=runs,
            version_differences=versions,
            agreement=agreement,
            contents=self._contents(places, session),
        )

    def _locate(self) -> tuple[Layout, Session | None]:
        try:
            return locate(self.root)
        except DirectoryError:
            return Layout(self.root), None

    def _agreement(self, session: Session, pair: list[Card | None]) -> Agreement | None:
        ckpt, rollout = pair
        if ckpt is None or rollout is None:
            return None
        facts = [_facts(session, mode) for mode in MODES]
        key = (ckpt.run_id, rollout.run_id, facts[0] is None, facts[1] is None)
        if self._compared[0] != key:
            self._compared = key, _compare(ckpt, rollout, facts[0], facts[1])
        return self._compared[1]

    def _contents(self, places: Layout, session: Session | None) -> DirectoryContents:
        """Return what lies there, measured again only after ten times as long as the last measurement took."""
        now_s, session_id = self.clock.monotonic_s(), session.id if session else None
        if self._measured is not None:
            until_s, measured_session, contents = self._measured
            if now_s < until_s and measured_session == session_id:
                return contents
        found = directory_contents(places, session)
        took_s = self.clock.monotonic_s() - now_s
        until_s = now_s + max(_CONTENTS_EVERY_S, took_s / _CONTENTS_SHARE)
        self._measured = until_s, session_id, found
        return found


def _session_facts(session: Session) -> SessionFacts:
    return SessionFacts(session.number, session.id, session.base_step, str(session.folder))


def _facts(session: Session, mode: ShareMode) -> dict[str, Any] | None:
    names = session.newest(mode)
    try:
        return run_files.read_facts(names) if names else None
    except (DamagedError, OSError):
        return None


def _compare(
    ckpt: Card, rollout: Card, ckpt_facts: dict[str, Any] | None, rollout_facts: dict[str, Any] | None
) -> Agreement:
    both = ckpt_facts is not None and rollout_facts is not None
    found: Comparison = compare(
        ckpt.config,
        rollout.config,
        (ckpt_facts or {}) if both else {},
        (rollout_facts or {}) if both else {},
        resumed=ckpt.start.session is not None or rollout.start.session is not None,
    )
    return Agreement(
        agrees=found.agrees,
        facts_compared=both,
        must_agree=tuple(_setting(each) for each in (*found.differences, *found.fact_differences)),
        may_differ=tuple(_setting(each.difference, str(each.reason)) for each in found.allowed),
        not_compared={each.key: str(each.reason) for each in found.not_compared},
    )


def _setting(difference: Difference, reason: str = "") -> DifferingSetting:
    own, other = (None if value is NOT_SET else value for value in (difference.own, difference.other))
    return DifferingSetting(difference.key, own, other, reason)


def _version_differences(runs: tuple[WatchedRun, ...]) -> dict[str, dict[str, str]]:
    if any(run.state in (RunState.NO_RUN, RunState.UNREADABLE) for run in runs):
        return {}
    names = sorted({name for run in runs for name in run.versions})
    by_mode = {name: {str(run.mode): run.versions.get(name, "") for run in runs} for name in names}
    return {name: values for name, values in by_mode.items() if len(set(values.values())) > 1}


def summary(one: WatchedRun, other: WatchedRun) -> str:
    """Return in a sentence or two what both runs do and who waits for what; a run that waits comes first."""
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
    """Return a run's place in the summary: 0 waits, 1 failed, 2 stopped because the other failed, 3 lives, 4 ended."""
    if _awaited(run):
        return 0
    if run.state.needs_somebody:
        return 2 if _followed(run) else 1
    return 3 if run.state.lives else 4


def _followed(run: WatchedRun) -> bool:
    """Return whether the run stopped because the other one had ended."""
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
    """Return what a run was doing when it ended."""
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
