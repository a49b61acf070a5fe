# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What one pair of runs has left of its steps: which files there are, newest record first. Reads cards, no evidence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import Layout, RunNames
from verl.crosscheck.exchange.session import cards
from verl.crosscheck.exchange.session.cards import Card
from verl.crosscheck.exchange.session.claim import OTHER, Session, locate


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
        return sorted({*self.comparisons, *self.evidence["ckpt"], *self.evidence["rollout"]})

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
        evidence={mode: _newest(session, mode, lambda run: run.all_evidence, RunNames.evidence) for mode in OTHER},
        comparisons=_newest(session, "ckpt", lambda run: run.comparisons, RunNames.comparison),
    )
    for mode in OTHER:
        names = session.newest(mode)
        if names is None:
            continue
        try:
            pair.cards[mode] = cards.read_card(names)
        except (DamagedError, FileNotFoundError) as e:
            pair.tell_problem(names.card, e)
    return pair


def rollouts(pair: RecordedPair) -> list[Path]:
    """Rollouts that are still there, in order."""
    places = Layout(pair.root)
    return [places.rollout(index) for index in layout.artefacts(_names(pair.root), "rollout")]


def _newest(
    session: Session, mode: str, folder: Callable[[RunNames], Path], file: Callable[[RunNames, int], Path]
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
