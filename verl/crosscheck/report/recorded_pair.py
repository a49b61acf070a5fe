# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Read what one pair of runs has left: its files by step, who the runs are, how their configurations differ.

Reads cards and facts, from which runs leave out secrets; no evidence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import NOT_SET, Difference, compare
from verl.crosscheck.errors import CrossCheckError, DamagedError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.exchange.layout import OTHER, ArtefactKind, Layout, RunNames
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import Session, locate
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.reasons import Reason
from verl.crosscheck.report.model import MODE_OF_A, RunSummary, SettingRow
from verl.crosscheck.settings import MODES, ShareMode


@dataclass(frozen=True)
class RecordedPair:
    """The runs of one session."""

    root: Path
    """Where its artefacts lie."""
    session: Session
    cards: dict[str, Card]
    """By mode, of the current run; without those that are not there."""
    evidence: Mapping[str, Mapping[int, Path]]
    """By mode, then by global step."""
    comparisons: Mapping[int, Path]
    """By global step, as they were logged."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a file could not be used, by its path below `root`."""

    @property
    def steps(self) -> list[int]:
        """Steps of which a comparison is there, or evidence of either run."""
        return sorted({*self.comparisons, *(step for found in self.evidence.values() for step in found)})

    def tell_problem(self, path: Path, error: Exception) -> None:
        """Remember that a file could not be used."""
        name = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else str(path)
        self.problems[name] = str(error)


def find_pair(root: Path) -> RecordedPair:
    """The pair of the current session in a directory, or of a session's folder that was put aside.

    Raises:
        DirectoryError: there is none.
        DamagedError: the session is not what it should be.
        OSError: the file system's own.
    """
    places, session = locate(root)
    pair = RecordedPair(
        root=places.root,
        session=session,
        cards={},
        evidence={mode: _newest(session, mode, lambda run: run.all_evidence, RunNames.evidence) for mode in MODES},
        comparisons=_newest(session, ShareMode.CKPT, lambda run: run.comparisons, RunNames.comparison),
    )
    for mode in MODES:
        names = session.newest(mode)
        if names is None:
            continue
        try:
            pair.cards[mode] = run_files.read_card(names)
        except (DamagedError, FileNotFoundError) as e:
            pair.tell_problem(names.card, e)
    return pair


def rollouts(pair: RecordedPair) -> list[Path]:
    """Rollouts that are still there, in order."""
    places = Layout(pair.root)
    return [places.rollout(index) for index in layout.artefacts(_names(pair.root), ArtefactKind.ROLLOUT)]


def _newest(
    session: Session, mode: ShareMode, folder: Callable[[RunNames], Path], file: Callable[[RunNames, int], Path]
) -> dict[int, Path]:
    """A file for each step, of the last run that did it: one that was started again does steps again."""
    found: dict[int, Path] = {}
    for _, run in session.runs(mode):
        for step in layout.steps(_names(folder(run))):
            found[step] = file(run, step)
    return found


def _names(folder: Path) -> list[str]:
    try:
        return list(filesystem.active().names(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


VALUE_CHARS = 300
"""Longest value that is shown."""


def runs_of(pair: RecordedPair, scenario: int) -> tuple[RunSummary, ...]:
    """A, then B, as far as they are there."""
    modes = (MODE_OF_A[scenario], OTHER[MODE_OF_A[scenario]])
    return tuple(
        _run(pair, letter, pair.cards[mode]) for letter, mode in zip("AB", modes, strict=True) if mode in pair.cards
    )


def settings_of(pair: RecordedPair, scenario: int) -> tuple[tuple[SettingRow, ...], dict[str, Reason]]:
    """What differs between the two set-ups, what must agree first; and what was not compared, with the reason."""
    mode = MODE_OF_A[scenario]
    if len(pair.cards) < len(MODES):
        return (), {}
    a, b = pair.cards[mode], pair.cards[OTHER[mode]]
    facts = [_facts(pair, each) for each in (mode, OTHER[mode])]
    known = [each for each in facts if each is not None]
    resumed = any(card.start.session is not None for card in (a, b))
    # Facts are compared once both runs have told theirs.
    found = compare(a.config, b.config, *(known if len(known) == len(facts) else ({}, {})), resumed=resumed)
    must = [_setting(each, must_agree=True) for each in (*found.differences, *found.fact_differences)]
    may = [_setting(each.difference, must_agree=False, reason=each.reason) for each in found.allowed]
    return (*must, *_versions(a, b), *may), {each.key: each.reason for each in found.not_compared}


def _run(pair: RecordedPair, letter: str, card: Card) -> RunSummary:
    number, names = pair.session.runs(card.mode)[-1]
    try:
        end = run_files.read_end(names)
    except (DamagedError, OSError) as e:
        pair.tell_problem(names.end, e)
        end = None
    return RunSummary(
        letter=letter,
        mode=card.mode,
        run_id=card.run_id,
        host=card.host,
        device=card.device,
        strategy=card.strategy,
        world_size=card.world_size,
        started=card.started,
        versions={str(name): str(version) for name, version in card.versions.items()},
        number=number,
        ending="" if end is None else end.state.value,
    )


def _facts(pair: RecordedPair, mode: ShareMode) -> dict[str, Any] | None:
    names = pair.session.newest(mode)
    try:
        return run_files.read_facts(names) if names else None
    except (DamagedError, OSError):
        return None


def _versions(a: Card, b: Card) -> list[SettingRow]:
    names = sorted(a.versions.keys() | b.versions.keys())
    return [
        SettingRow(name, _text(a.versions.get(name, NOT_SET)), _text(b.versions.get(name, NOT_SET)), must_agree=False)
        for name in names
        if a.versions.get(name) != b.versions.get(name)
    ]


def _setting(difference: Difference, *, must_agree: bool, reason: Reason | None = None) -> SettingRow:
    return SettingRow(difference.key, _text(difference.own), _text(difference.other), must_agree, reason)


def _text(value: Any) -> str:
    if value is NOT_SET:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}..."


def load_evidence(pair: RecordedPair, mode: ShareMode, step: int) -> Any:
    """A run's `StepEvidence` of a step; None if it is not there, or if it cannot be used, of which the pair is told."""
    path = pair.evidence[mode].get(step)
    if path is None:
        return None
    from verl.crosscheck.evidence.files import load

    try:
        require_own_file(path)
        return load(path)
    except (CrossCheckError, OSError) as e:
        pair.tell_problem(path, e)
        return None
