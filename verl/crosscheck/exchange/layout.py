# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every name on disk. No other module builds or parses a name of the exchange."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from verl.crosscheck.settings import ShareMode

MANIFEST = "manifest.json"
"""The last file that is written into a checkpoint; lists the others."""

SESSION = "session.json"
"""In a session's folder: its id, number and first step."""

STAGING_PREFIX = ".staging-"
"""Prefix of what is being written or deleted. Readers ignore it, and a crash leaves nothing else behind."""

CHECKPOINT_MARK = "crosscheck.json"
"""In a run's *own* checkpoint `global_step_{n}`: the session and the indexes at which it was saved."""


class ArtefactKind(str, Enum):
    """What one run makes for the other."""

    ROLLOUT = "rollout"
    """The result of one call of `generate_sequences`: a file."""
    CKPT = "ckpt"
    """The actor after one update: a folder."""

    def __str__(self) -> str:
        return self.value


WRITES: Mapping[str, ArtefactKind] = {ShareMode.CKPT: ArtefactKind.ROLLOUT, ShareMode.ROLLOUT: ArtefactKind.CKPT}
"""The kind of artefact that a run of a mode writes, alone; it takes what a run of the other mode writes."""

OTHER: Mapping[str, ShareMode] = {ShareMode.CKPT: ShareMode.ROLLOUT, ShareMode.ROLLOUT: ShareMode.CKPT}
"""The mode of the run that a run of a mode is paired with."""

_NOT_IN_A_HOST_NAME = re.compile(r"[^A-Za-z0-9_.-]|^[.]")
_ARTEFACT = re.compile(r"(rollout|ckpt)_(0|[1-9][0-9]{0,15})")
_SESSION = re.compile(r"session_([1-9][0-9]{0,8})")
_RUN = re.compile(r"(rollout|ckpt)_([1-9][0-9]{0,8})")
_STEP = re.compile(r"step_(0|[1-9][0-9]{0,15})(?:[.]json)?")


@dataclass(frozen=True)
class RunNames:
    """The files that a run keeps about itself. Each has one writer and is replaced as a whole."""

    folder: Path

    @property
    def card(self) -> Path:
        """Its identity; never changes."""
        return self.folder / "card.json"

    @property
    def facts(self) -> Path:
        """What only its trainer knows of model, tokenizer and data; never changes."""
        return self.folder / "facts.json"

    @property
    def heartbeat(self) -> Path:
        """A count that grows while the run lives."""
        return self.folder / "heartbeat"

    @property
    def progress(self) -> Path:
        """Its phase and step, and what it has published and taken."""
        return self.folder / "progress.json"

    @property
    def reserve(self) -> Path:
        """Space that is kept for `end`, since a run may fail because the disk is full."""
        return self.folder / "reserve"

    @property
    def end(self) -> Path:
        """How it ended; missing until then."""
        return self.folder / "end.json"

    @property
    def all_evidence(self) -> Path:
        """Folder of the evidence of its steps."""
        return self.folder / "evidence"

    def evidence(self, global_step: int) -> Path:
        """Return the folder of one step's evidence; replaced if the step is done again."""
        return self.all_evidence / f"step_{global_step}"

    @property
    def comparisons(self) -> Path:
        """Folder of its comparisons with the other run."""
        return self.folder / "comparison"

    def comparison(self, global_step: int) -> Path:
        """Return the file of one step's comparison."""
        return self.comparisons / f"step_{global_step}.json"


@dataclass(frozen=True)
class Layout:
    """Names below one exchange directory, or below the folder of an earlier session."""

    root: Path

    def rollout(self, index: int) -> Path:
        """Return the file of the `index`-th call of `generate_sequences`, counted from 0."""
        return self.root / f"rollout_{index}"

    def ckpt(self, index: int) -> Path:
        """Return the folder of the actor after its `index`-th update, counted from 0."""
        return self.root / f"ckpt_{index}"

    def artefact(self, kind: ArtefactKind, index: int) -> Path:
        """Return the file or folder of an artefact of either kind."""
        return self.root / f"{kind}_{index}"

    @property
    def sessions(self) -> Path:
        """Folder of all sessions that used this directory."""
        return self.root / "sessions"

    def session(self, number: int) -> Path:
        """Return the folder of the `number`-th session, counted from 1. It holds the session's runs, and also its
        artefacts once a later session has begun."""
        return self.sessions / f"session_{number}"

    @property
    def unknown(self) -> Path:
        """Folder of artefacts that belong to no session of this directory."""
        return self.sessions / "unknown"

    @property
    def doctor(self) -> Path:
        """Folder of the notes that `verl-crosscheck doctor` leaves, one for each host. Runs ignore it."""
        return self.root / "doctor"

    def doctor_note(self, host: str) -> Path:
        """Return the file of one host's note."""
        return self.doctor / f"{_NOT_IN_A_HOST_NAME.sub('_', host)[:200]}.json"


def runs_folder(session: Path) -> Path:
    """Return the folder of the runs that took part in a session."""
    return session / "runs"


def run_folder(session: Path, mode: ShareMode, number: int) -> Path:
    """Return the folder of a mode's `number`-th run in a session, counted from 1; the highest is the current run."""
    return runs_folder(session) / f"{mode}_{number}"


def candidate(session: Path, mode: ShareMode) -> Path:
    """Return the file of a count that grows while a new run watches whether the current run of a mode is dead."""
    return runs_folder(session) / f"candidate_{mode}"


def session_numbers(names: Iterable[str]) -> list[int]:
    """Return the numbers of the sessions among file `names`, ascending."""
    return sorted(int(match.group(1)) for match in map(_SESSION.fullmatch, names) if match)


def run_numbers(names: Iterable[str], mode: ShareMode) -> list[int]:
    """Return the numbers of the runs of `mode` among file `names`, ascending."""
    return sorted(int(match.group(2)) for match in map(_RUN.fullmatch, names) if match and match.group(1) == mode)


def steps(names: Iterable[str]) -> list[int]:
    """Return the global steps of the evidence, or of the comparisons, among file `names`, ascending."""
    return sorted(int(match.group(1)) for match in map(_STEP.fullmatch, names) if match)


def is_run(name: str) -> bool:
    """Return whether a name in a session's folder of runs is that of a run."""
    return _RUN.fullmatch(name) is not None


def staging(final: Path, writer: str) -> Path:
    """Return where `writer`, a name unique to the process, prepares `final`: beside it, so that a rename is atomic."""
    return final.with_name(f"{STAGING_PREFIX}{final.name}-{writer}")


def is_staged(path: Path) -> bool:
    """Return whether `path` is, or lies in, something staged."""
    return any(part.startswith(STAGING_PREFIX) for part in path.parts)


def is_exchanged(path: Path) -> bool:
    """Return whether `path` is a checkpoint of the exchange, by its name and its manifest."""
    match = _ARTEFACT.fullmatch(path.name)
    return match is not None and match.group(1) == ArtefactKind.CKPT and (path / MANIFEST).is_file()


def is_of_kind(name: str, kind: ArtefactKind) -> bool:
    """Return whether a file name is that of an artefact of `kind`, complete or staged."""
    match = _ARTEFACT.match(name.removeprefix(STAGING_PREFIX))
    return match is not None and match.group(1) == kind


def staged_of_kind(names: Iterable[str], kind: ArtefactKind) -> list[str]:
    """Return the names of staged artefacts of `kind`."""
    prefix = f"{STAGING_PREFIX}{kind}_"
    return sorted(name for name in names if name.startswith(prefix))


def staged_sessions(names: Iterable[str]) -> list[str]:
    """Return the names of staged sessions among `names`."""
    return sorted(name for name in names if name.startswith(f"{STAGING_PREFIX}session_"))


def artefacts(names: Iterable[str], kind: ArtefactKind) -> list[int]:
    """Return the indexes of the artefacts of `kind` among file `names`, ascending."""
    prefix = f"{kind}_"
    matches = (_ARTEFACT.fullmatch(name) for name in names if name.startswith(prefix))
    return sorted(int(match.group(2)) for match in matches if match)


def kind_and_index(name: str) -> tuple[ArtefactKind, int] | None:
    """Return kind and index of an artefact's file name; None for any other name."""
    match = _ARTEFACT.fullmatch(name)
    return (ArtefactKind(match.group(1)), int(match.group(2))) if match else None
