# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every name on disk, and nothing else. Nobody builds or takes apart a name of the exchange anywhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from verl.crosscheck.settings import ShareMode

MANIFEST = "manifest.json"
"""Last file written into a checkpoint; lists the others."""

SESSION = "session.json"
"""In a session's folder: its id."""

STAGING_PREFIX = ".staging-"
"""What is being written, or taken away. A reader never looks inside, and a crash leaves nothing else behind."""

CHECKPOINT_MARK = "crosscheck.json"
"""In a run's *own* checkpoint `global_step_{n}`: where in the exchange it was saved."""


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
    """Files that one run keeps about itself. Each has one writer, and is replaced as a whole."""

    folder: Path

    @property
    def card(self) -> Path:
        """Who it is; never changes."""
        return self.folder / "card.json"

    @property
    def facts(self) -> Path:
        """What only its trainer knows of model, tokenizer and data; never changes."""
        return self.folder / "facts.json"

    @property
    def heartbeat(self) -> Path:
        """A count that grows while it lives."""
        return self.folder / "heartbeat"

    @property
    def progress(self) -> Path:
        """In which phase of which step it is, and what it has published and taken."""
        return self.folder / "progress.json"

    @property
    def reserve(self) -> Path:
        """Space that the word on its end will take: a run may fail because the disk is full."""
        return self.folder / "reserve"

    @property
    def end(self) -> Path:
        """How it ended; there as soon as it has."""
        return self.folder / "end.json"

    @property
    def all_evidence(self) -> Path:
        """Folder of what it remembers of its steps."""
        return self.folder / "evidence"

    def evidence(self, global_step: int) -> Path:
        """What it remembers of one step; replaced if the step is done again."""
        return self.all_evidence / f"step_{global_step}"

    @property
    def comparisons(self) -> Path:
        """Folder of what it found where it held its steps against the other run's."""
        return self.folder / "comparison"

    def comparison(self, global_step: int) -> Path:
        """What it found in one step."""
        return self.comparisons / f"step_{global_step}.json"


@dataclass(frozen=True)
class Layout:
    """Names below one exchange directory, or below the folder of a session that was put aside."""

    root: Path

    def rollout(self, index: int) -> Path:
        """File of the `index`-th call of `generate_sequences`, counted from 0."""
        return self.root / f"rollout_{index}"

    def ckpt(self, index: int) -> Path:
        """Folder of the actor after its `index`-th update, counted from 0."""
        return self.root / f"ckpt_{index}"

    def artefact(self, kind: ArtefactKind, index: int) -> Path:
        """Either of them."""
        return self.root / f"{kind}_{index}"

    @property
    def sessions(self) -> Path:
        """Folder of all sessions that used this directory."""
        return self.root / "sessions"

    def session(self, number: int) -> Path:
        """Folder of the `number`-th session, counted from 1: who took part, and, once it is over, its artefacts."""
        return self.sessions / f"session_{number}"

    @property
    def unknown(self) -> Path:
        """Where artefacts go that belong to no session of this directory."""
        return self.sessions / "unknown"

    @property
    def doctor(self) -> Path:
        """Folder of the notes that `verl-crosscheck doctor` leaves, one for each host. No run looks there."""
        return self.root / "doctor"

    def doctor_note(self, host: str) -> Path:
        """The note of one host."""
        return self.doctor / f"{_NOT_IN_A_HOST_NAME.sub('_', host)[:200]}.json"


def runs_folder(session: Path) -> Path:
    """Folder of the runs that took part in a session."""
    return session / "runs"


def run_folder(session: Path, mode: ShareMode, number: int) -> Path:
    """Folder of the `number`-th run of a mode in a session, counted from 1; the highest number is the current run."""
    return runs_folder(session) / f"{mode}_{number}"


def candidate(session: Path, mode: ShareMode) -> Path:
    """A count that grows while somebody waits to see whether the current run of a mode is dead, to take its place."""
    return runs_folder(session) / f"candidate_{mode}"


def session_numbers(names: Iterable[str]) -> list[int]:
    """Numbers of the sessions among file `names`, ascending."""
    return sorted(int(match.group(1)) for match in map(_SESSION.fullmatch, names) if match)


def run_numbers(names: Iterable[str], mode: ShareMode) -> list[int]:
    """Numbers of the runs of `mode` among file `names`, ascending."""
    return sorted(int(match.group(2)) for match in map(_RUN.fullmatch, names) if match and match.group(1) == mode)


def steps(names: Iterable[str]) -> list[int]:
    """Global steps of the evidence, or of the comparisons, among file `names`, ascending."""
    return sorted(int(match.group(1)) for match in map(_STEP.fullmatch, names) if match)


def is_run(name: str) -> bool:
    """Whether a name in a session's folder of runs is that of a run."""
    return _RUN.fullmatch(name) is not None


def staging(final: Path, writer: str) -> Path:
    """Where `writer` (a name unique to the process) prepares `final`: beside it, so that a rename is atomic."""
    return final.with_name(f"{STAGING_PREFIX}{final.name}-{writer}")


def is_staged(path: Path) -> bool:
    """Whether `path` is, or lies in, something that is being prepared for the other run."""
    return any(part.startswith(STAGING_PREFIX) for part in path.parts)


def is_exchanged(path: Path) -> bool:
    """Whether `path` is a checkpoint of the exchange, by its name and its manifest."""
    match = _ARTEFACT.fullmatch(path.name)
    return match is not None and match.group(1) == ArtefactKind.CKPT and (path / MANIFEST).is_file()


def is_of_kind(name: str, kind: ArtefactKind) -> bool:
    """Return whether a file name is that of an artefact of `kind`, complete or staged."""
    match = _ARTEFACT.match(name.removeprefix(STAGING_PREFIX))
    return match is not None and match.group(1) == kind


def staged_of_kind(names: Iterable[str], kind: ArtefactKind) -> list[str]:
    """Names of what is being prepared, or taken away, of `kind`."""
    prefix = f"{STAGING_PREFIX}{kind}_"
    return sorted(name for name in names if name.startswith(prefix))


def staged_sessions(names: Iterable[str]) -> list[str]:
    """Names, among those in the folder of all sessions, of what is being begun or taken away."""
    return sorted(name for name in names if name.startswith(f"{STAGING_PREFIX}session_"))


def artefacts(names: Iterable[str], kind: ArtefactKind) -> list[int]:
    """Return the indexes of the artefacts of `kind` among file `names`, ascending."""
    prefix = f"{kind}_"
    matches = (_ARTEFACT.fullmatch(name) for name in names if name.startswith(prefix))
    return sorted(int(match.group(2)) for match in matches if match)


def kind_and_index(name: str) -> tuple[ArtefactKind, int] | None:
    """What an artefact's file name says; None for any other name."""
    match = _ARTEFACT.fullmatch(name)
    return (ArtefactKind(match.group(1)), int(match.group(2))) if match else None
