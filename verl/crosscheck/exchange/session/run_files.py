# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The files that a run writes about itself in the exchange directory: card, progress, facts, end.

Each file has one writer and is replaced as a whole, so that no reader sees half of one and no two processes of a run
disturb each other: the main program writes the card, the heartbeat and the end, the trainer writes the progress.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.documents import Count, D, Document, Seconds, read_document
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.publish import publish_document
from verl.crosscheck.settings import ShareMode

MAX_MESSAGE_CHARS = 4000
END_RESERVE_BYTES = 64 * 1024
"""Size of the file that is deleted to make room for `end.json` on a full disk: more than the longest one takes."""


class EndState(str, Enum):
    """How a run ended."""

    FINISHED = "finished"
    """It did all its steps."""
    FAILED = "failed"
    """It raised an error."""
    INTERRUPTED = "interrupted"
    """It was stopped by a signal."""


class Start(msgspec.Struct, frozen=True):
    """The step and the indexes at which a run begins.

    Args:
        global_step: number of steps done before.
        calls, updates: indexes of its first rollout and of its first checkpoint.
        session: id of the session that it resumes; None if it begins one, or joins one at its beginning.
    """

    COMPLETE: ClassVar[bool] = True

    global_step: Count = 0
    calls: Count = 0
    updates: Count = 0
    session: str | None = None


class Card(Document, frozen=True):
    """The identity of a run. Written once, before any other file of the run is visible.

    Args:
        process: identity of its main program on its host: pid, start, boot and pid namespace; see `liveness`.
        started: wall-clock time of its host, for people; never compared.
        others_before: number of the last run of the other mode in the session that was over when this one began; this
            run waits for a later one. 0 if there was none.
        config: its resolved configuration without secrets.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/card"

    run_id: str
    session_id: str
    mode: ShareMode
    host: str
    process: dict[str, Any]
    started: str
    versions: dict[str, str]
    device: str
    world_size: Count
    strategy: str
    start: Start
    others_before: Count
    config: dict[str, Any]

    @property
    def identity(self) -> str:
        """The run in a message: start of its id, mode, host, pid and time of its start."""
        return f"run {self.run_id[:8]} (mode {self.mode}, {self.host}, pid {self.process.get('pid')}, {self.started})"


class Progress(Document, frozen=True):
    """The progress of a run, as it reported last.

    Args:
        phase: in words: "generating", "waiting for ckpt_3", "training" ...
        global_step: the trainer's step; None before the first.
        calls, updates: indexes of the next rollout and of the next checkpoint.
        published: by kind, how many of its artefacts are visible to the other run, counted from index 0.
        taken: by kind, how many artefacts of the other run it has loaded and does not need again. This acknowledgement
            allows the writer to delete them.
        reports: number of this report, so that two reports always differ.
        facts: whether `facts.json` is there.
        reported_unix_s: wall-clock seconds of its host, for people; never compared.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/progress"
    COMPLETE: ClassVar[bool] = True

    phase: str
    global_step: Count | None = None
    calls: Count = 0
    updates: Count = 0
    published: dict[str, Count] = msgspec.field(default_factory=dict)
    taken: dict[str, Count] = msgspec.field(default_factory=dict)
    reports: Count = 0
    facts: bool = False
    reported_unix_s: Seconds = msgspec.field(default=0.0, name="told")


class End(Document, frozen=True):
    """How a run ended.

    Args:
        error: class of the error; empty if there was none.
        message: the message of the error, or a note.
        global_step, phase: from its last report.
        reported_unix_s: wall-clock seconds of its host, for people.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/end"
    COMPLETE: ClassVar[bool] = True

    state: EndState
    error: str = ""
    message: str = ""
    global_step: Count | None = None
    phase: str = ""
    reported_unix_s: Seconds = msgspec.field(default=0.0, name="told")

    @classmethod
    def of(cls, error: BaseException | None, redact: Callable[[str], str] = str) -> End:
        """Return the end of a run, with or without an error; `redact` removes secrets from the message."""
        if error is None:
            return cls(EndState.FINISHED)
        cause = getattr(error, "cause", None)  # what Ray wraps around the error of a task
        error = cause if isinstance(cause, BaseException) else error
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        message = redact(_text_of(error))
        message = "stopped by a signal" if interrupted and not message.strip() else message
        if len(message) > MAX_MESSAGE_CHARS:
            half = MAX_MESSAGE_CHARS // 2
            message = f"{message[:half]} [...] {message[-half:]}"
        name = type(error).__name__
        return cls(EndState.INTERRUPTED if interrupted else EndState.FAILED, name, message)


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as e:
        return f"(it cannot say what it is: {type(e).__name__})"


class Facts(Document, frozen=True):
    """What only the trainer of a run knows of its model, tokenizer and data."""

    SCHEMA: ClassVar[str] = "verl-crosscheck/facts"

    facts: dict[str, Any]


def write_card(run: RunNames, card: Card) -> None:
    publish_document(run.card, card, replace=False)


def read_card(run: RunNames) -> Card:
    """Return the card.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it is not what it should be.
    """
    return read_document(run.card, Card)


def write_progress(run: RunNames, progress: Progress) -> None:
    """Replace the progress. Not flushed to the disk: what a lost node loses comes again with the next report."""
    publish_document(run.progress, progress, replace=True, durable=False)


def read_progress(run: RunNames) -> Progress | None:
    """Return the progress; None if there is none yet. Raises DamagedError."""
    return _if_there(run.progress, Progress)


def write_end(run: RunNames, end: End) -> bool:
    """Write how a run ended, unless that has been written. On a full disk the file takes the place of the reserve.

    Returns whether it was written now.

    Raises:
        OSError: the file system's own.
    """
    try:
        try:
            publish_document(run.end, end, replace=False)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            filesystem.active().unlink(run.reserve)
            publish_document(run.end, end, replace=False)
    except CrossCheckError:
        return False
    return True


def read_end(run: RunNames) -> End | None:
    """Return the end; None if the run has not ended. Raises DamagedError."""
    return _if_there(run.end, End)


def write_facts(run: RunNames, facts: Mapping[str, Any]) -> None:
    publish_document(run.facts, Facts(dict(facts)), replace=True)


def read_facts(run: RunNames) -> dict[str, Any] | None:
    """Return the facts; None if there are none. Raises DamagedError."""
    found = _if_there(run.facts, Facts)
    return None if found is None else found.facts


def _if_there(path: Path, kind: type[D]) -> D | None:
    try:
        return read_document(path, kind)
    except FileNotFoundError:
        return None


def read_signs(run: RunNames) -> tuple[bytes, ...]:
    """Return the raw content of all files that change while a run lives. Only a change of it has a meaning."""
    return tuple(read_pulse(path) for path in (run.heartbeat, run.progress, run.end))


def read_pulse(path: Path, size_bytes: int = 8192) -> bytes:
    """Return the start of any file, such as the heartbeat; empty if it cannot be read. Only a change has a meaning."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe must not block us
    except OSError:
        return b""
    try:
        return os.read(descriptor, size_bytes)
    except OSError:
        return b""
    finally:
        os.close(descriptor)
