# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Everything `verl-crosscheck status` shows, as facts. What `--json` prints are these, field by field."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import NOT_SET, Comparison, Difference, compare
from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError, DirectoryError
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import Session, locate
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.inspection.directory_contents import DirectoryContents, holdings
from verl.crosscheck.inspection.run_state import RunProbe, RunState, WatchedRun
from verl.crosscheck.inspection.summary import summary
from verl.crosscheck.settings import MODES, ShareMode

SCHEMA = "verl-crosscheck/status"
SCHEMA_VERSION = 1

_HOLDINGS_EVERY_S = 2.0
_HOLDINGS_SHARE = 0.1
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
    """Both runs' configurations and facts, laid side by side.

    Args:
        facts_compared: whether both runs have told what only their trainers know of model, tokenizer and data.
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
    holdings: DirectoryContents
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
    lookout: RunProbe
    _compared: tuple[object, Agreement | None] = (None, None)
    _held: tuple[float, DirectoryContents] | None = field(default=None)
    _held_session: str | None = None

    def look(self) -> Status:
        """The pair now.

        Raises:
            DamagedError: what names the session is not what it should be.
            OSError, DirectoryError: the directory cannot be listed.
        """
        places, session = self._locate()
        runs: tuple[WatchedRun, ...] = tuple(WatchedRun(mode) for mode in MODES)
        agreement = None
        versions: dict[str, dict[str, str]] = {}
        if session is not None:
            self.lookout.watch(session, MODES, self.wait_s)
            seen = [self.lookout.look(session, mode) for mode in MODES]
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
            holdings=self._holdings(places, session),
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

    def _holdings(self, places: Layout, session: Session | None) -> DirectoryContents:
        """What lies there, measured anew only as often as that is cheap."""
        now_s = self.clock.monotonic_s()
        if self._held is not None and now_s < self._held[0] and self._held_session == (session and session.id):
            return self._held[1]
        found = holdings(places, session)
        took_s = self.clock.monotonic_s() - now_s
        self._held = now_s + max(_HOLDINGS_EVERY_S, took_s / _HOLDINGS_SHARE), found
        self._held_session = session.id if session else None
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
