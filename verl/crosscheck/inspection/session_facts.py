# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Read facts from a folder of an exchange directory: a checkpoint, a run, or a session."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.errors import DirectoryError
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.layout import ArtefactKind, Layout, RunNames
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import read_session
from verl.crosscheck.inspection.directory_contents import names_in
from verl.crosscheck.settings import MODES

_NUMBER = re.compile(r"[0-9]+")
_GROUPED = 4
"""Files of one pattern that are shown one by one; more stand in one line."""


@dataclass(frozen=True)
class FileGroup:
    """Files of a checkpoint whose names differ in numbers alone, as the shards of ranks do."""

    name: str
    """With `*` for the numbers if there are several."""
    files: int
    size_bytes: int


@dataclass(frozen=True)
class CheckpointFacts:
    """A checkpoint that is complete and as it was written.

    Args:
        about: what it says of itself, see docs/format.md.
        files: size by name.
    """

    path: str
    size_bytes: int
    about: Mapping[str, Any]
    files: Mapping[str, int]
    kind: str = "checkpoint"


@dataclass(frozen=True)
class RunFacts:
    """What a run wrote of itself.

    Args:
        settings: its configuration by dotted key.
        facts: what its trainer found out of model, tokenizer and data; None if it has not.
        end: None if it has not reported one.
    """

    path: str
    card: Mapping[str, Any]
    settings: Mapping[str, Any]
    progress: Mapping[str, Any] | None
    end: Mapping[str, Any] | None
    facts: Mapping[str, Any] | None
    kind: str = "run"


@dataclass(frozen=True)
class SessionContent:
    """A session's folder: who took part, and the artefacts that were put aside into it."""

    path: str
    number: int
    id: str
    base_step: int
    runs: tuple[str, ...]
    rollouts: tuple[int, ...]
    checkpoints: tuple[int, ...]
    kind: str = "session"


def folder_facts(path: Path) -> CheckpointFacts | RunFacts | SessionContent:
    """Return what is in a folder of the exchange.

    Raises:
        DamagedError: something of the exchange that is not what it should be.
        DirectoryError: nothing of the exchange, or the whole of it.
    """
    names = names_in(path)
    places = Layout(path)
    if RunNames(path).card.name in names:
        return run_facts(path)
    if layout.SESSION in names:
        return session_content(path)
    if layout.MANIFEST in names or layout.is_of_kind(path.name, ArtefactKind.CKPT):
        return checkpoint_facts(path)
    if places.sessions.name in names:
        raise DirectoryError(f"{path} is a whole exchange directory: type verl-crosscheck status {path}")
    raise DirectoryError(
        f"{path} is nothing of an exchange. Name a rollout (rollout_0), a checkpoint (ckpt_0), or the folder of a run "
        "(sessions/session_1/runs/ckpt_1)"
    )


def checkpoint_facts(path: Path) -> CheckpointFacts:
    """Return a checkpoint whose files all exist with their sizes; raise DamagedError for another one."""
    manifest = read_checked(path)
    return CheckpointFacts(str(path), sum(manifest.files.values()), manifest.about, manifest.files)


def run_facts(path: Path) -> RunFacts:
    """Return what a run wrote of itself; raise DamagedError if that cannot be read."""
    names = RunNames(path)
    card, progress, end = run_files.read_card(names), run_files.read_progress(names), run_files.read_end(names)
    plain = msgspec.to_builtins(card)
    return RunFacts(
        path=str(path),
        settings=flatten(plain.pop("config")),
        card=plain,
        progress=msgspec.to_builtins(progress) if progress else None,
        end=msgspec.to_builtins(end) if end else None,
        facts=run_files.read_facts(names),
    )


def session_content(path: Path) -> SessionContent:
    """Return what is in a session's folder; raise DamagedError if that cannot be read."""
    session, names = read_session(path), names_in(path)
    runs = names_in(layout.runs_folder(path))
    return SessionContent(
        path=str(path),
        number=session.number,
        id=session.id,
        base_step=session.base_step,
        runs=tuple(f"{mode}_{number}" for mode in MODES for number in layout.run_numbers(runs, mode)),
        rollouts=tuple(layout.artefacts(names, ArtefactKind.ROLLOUT)),
        checkpoints=tuple(layout.artefacts(names, ArtefactKind.CKPT)),
    )


def grouped(files: Mapping[str, int]) -> list[FileGroup]:
    """Return the files by name; many files of one pattern make one entry."""
    patterns: dict[str, list[str]] = {}
    for name in sorted(files):
        patterns.setdefault(_NUMBER.sub("*", name), []).append(name)
    found = []
    for pattern, names in patterns.items():
        if len(names) > _GROUPED:
            found.append(FileGroup(pattern, len(names), sum(files[name] for name in names)))
        else:
            found += [FileGroup(name, 1, files[name]) for name in names]
    return found
