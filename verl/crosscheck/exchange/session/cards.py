# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a run says of itself in the exchange directory: who it is, what it is doing, how it ended.

Each part is a file of its own with one writer, replaced as a whole, so that no reader sees half of one and no two
processes of a run get in each other's way: the main program claims the card, beats and tells of the end, the trainer
reports progress.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import CrossCheckError, DamagedError
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.documents import Fields, fits, read_document
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.publish import publish_json

SCHEMA_VERSION = 1
MAX_MESSAGE_CHARS = 4000
END_RESERVE_BYTES = 64 * 1024
"""More than the longest `end.json`, in blocks of any usual size, with the folder that grows by its names."""

_NUMBER_OR_NULL = (int, type(None))


class EndState(str, Enum):
    """How a run ended."""

    FINISHED = "finished"
    """It did all its steps."""
    FAILED = "failed"
    """It raised an error."""
    INTERRUPTED = "interrupted"
    """Somebody stopped it."""


@dataclass(frozen=True)
class Start:
    """Where in the exchange a run begins.

    Args:
        global_step: steps that were done before.
        calls, updates: index of its first rollout and of its first checkpoint.
        session: id of the session that it goes on with; None if it begins one, or joins one from its beginning.
    """

    global_step: int = 0
    calls: int = 0
    updates: int = 0
    session: str | None = None


@dataclass(frozen=True)
class Card:
    """Who a run is. Written once, before anything else of it is visible.

    Args:
        mode: "ckpt" or "rollout".
        process: what identifies its main program on its host: pid, start, boot and pid namespace; see `processes`.
        started: wall-clock time of its host, for people; never compared.
        others_before: number of the last run of the other mode in the session that was over when this one began: it is
            another one that this run waits for. 0 if there was none.
        config: its resolved configuration without secrets.
    """

    run_id: str
    session_id: str
    mode: str
    host: str
    process: dict[str, Any]
    started: str
    versions: dict[str, str]
    device: str
    world_size: int
    strategy: str
    start: Start
    others_before: int
    config: dict[str, Any]

    @property
    def identity(self) -> str:
        """As people would tell it from another one."""
        return f"run {self.run_id[:8]} (mode {self.mode}, {self.host}, pid {self.process.get('pid')}, {self.started})"


@dataclass(frozen=True)
class Progress:
    """What a run is doing.

    Args:
        phase: in words: "generating", "waiting for ckpt_3", "training" ...
        global_step: the trainer's step; None before the first.
        calls, updates: indexes of the next rollout and of the next checkpoint.
        published: how many artefacts of a kind are visible to the other run, counting from index 0; by kind.
        taken: likewise of the other run's, those that are in use and not needed again. This is the acknowledgement
            that lets the writer delete.
        reports: grows with every report, so that two equal ones differ.
        facts: whether `facts.json` was written before.
        told: wall-clock seconds of its host, for people; never compared.
    """

    phase: str
    global_step: int | None = None
    calls: int = 0
    updates: int = 0
    published: dict[str, int] = field(default_factory=dict)
    taken: dict[str, int] = field(default_factory=dict)
    reports: int = 0
    facts: bool = False
    told: float = 0.0


@dataclass(frozen=True)
class End:
    """How a run ended.

    Args:
        error: class of the error; empty if there was none.
        message: what it said, or what to know of the end.
        global_step, phase: from its last report.
        told: wall-clock seconds of its host, for people.
    """

    state: EndState
    error: str = ""
    message: str = ""
    global_step: int | None = None
    phase: str = ""
    told: float = 0.0

    @classmethod
    def of(cls, error: BaseException | None, redact: Callable[[str], str] = str) -> End:
        """Of a run that ended with `error`, or without one; `redact` takes secrets out of what it says."""
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


_CARD: Fields = {
    "run_id": (str,),
    "session_id": (str,),
    "mode": (str,),
    "host": (str,),
    "process": (dict,),
    "started": (str,),
    "versions": (dict,),
    "device": (str,),
    "world_size": (int,),
    "strategy": (str,),
    "start": (dict,),
    "others_before": (int,),
    "config": (dict,),
}
_START: Fields = {"global_step": (int,), "calls": (int,), "updates": (int,), "session": (str, type(None))}
_PROGRESS: Fields = {
    "phase": (str,),
    "global_step": _NUMBER_OR_NULL,
    "calls": (int,),
    "updates": (int,),
    "published": (dict,),
    "taken": (dict,),
    "reports": (int,),
    "facts": (bool,),
    "told": (float, int),
}
_END: Fields = {
    "state": (str,),
    "error": (str,),
    "message": (str,),
    "global_step": _NUMBER_OR_NULL,
    "phase": (str,),
    "told": (float, int),
}


def write_card(run: RunNames, card: Card) -> None:
    publish_json(run.card, _document("card", asdict(card)), replace=False)


def read_card(run: RunNames) -> Card:
    """Raises FileNotFoundError, or DamagedError with the path and what is wrong."""
    data = read_document(run.card, _schema("card"), SCHEMA_VERSION, _CARD)
    start = data["start"]
    wrong = [name for name, types in _START.items() if not fits(start.get(name, ...), types)]
    if wrong or data["mode"] not in ("ckpt", "rollout"):
        raise DamagedError(f"{run.card} has no valid {wrong[0] if wrong else 'mode'}. Nothing of it was used")
    known = {name: start[name] for name in _START}
    return Card(**{**_known(Card, data), "start": Start(**known)})


def write_progress(run: RunNames, progress: Progress) -> None:
    """Not flushed to the disk: what a lost node forgets is told again by the next report, or not needed."""
    publish_json(run.progress, _document("progress", asdict(progress)), replace=True, durable=False)


def read_progress(run: RunNames) -> Progress | None:
    """None if there is none yet. Raises DamagedError."""
    try:
        data = read_document(run.progress, _schema("progress"), SCHEMA_VERSION, _PROGRESS)
    except FileNotFoundError:
        return None
    for name in ("published", "taken"):
        if not all(fits(count, (int,)) for count in data[name].values()):
            raise DamagedError(f"{run.progress} has counts that are none in {name!r}. Nothing of it was used")
    return Progress(**_known(Progress, data))


def write_end(run: RunNames, end: End) -> bool:
    """Whether this was the first word on it: a later one changes nothing. On a full disk it takes the reserve.

    Raises:
        OSError: the file system's own.
    """
    document = _document("end", {**asdict(end), "state": end.state.value})
    try:
        try:
            publish_json(run.end, document, replace=False)
        except OSError as e:
            if e.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            filesystem.active().unlink(run.reserve)
            publish_json(run.end, document, replace=False)
    except CrossCheckError:
        return False
    return True


def read_end(run: RunNames) -> End | None:
    """None if it has not ended. Raises DamagedError."""
    try:
        data = read_document(run.end, _schema("end"), SCHEMA_VERSION, _END)
    except FileNotFoundError:
        return None
    try:
        state = EndState(data["state"])
    except ValueError:
        raise DamagedError(f"{run.end} says {data['state']!r:.40}, which is no way to end") from None
    return End(**{**_known(End, data), "state": state})


def write_facts(run: RunNames, facts: Mapping[str, Any]) -> None:
    publish_json(run.facts, _document("facts", {"facts": dict(facts)}), replace=True)


def read_facts(run: RunNames) -> dict[str, Any] | None:
    """None if there are none. Raises DamagedError."""
    try:
        facts: dict[str, Any] = read_document(run.facts, _schema("facts"), SCHEMA_VERSION, {"facts": (dict,)})["facts"]
    except FileNotFoundError:
        return None
    return facts


def read_heartbeat(run: RunNames) -> bytes:
    """Whatever stands there: only that it changes has a meaning. Empty if there is none."""
    return read_pulse(run.heartbeat)


def read_signs(run: RunNames) -> tuple[bytes, ...]:
    """All of a run that changes while it lives, unread: only that it changes has a meaning."""
    return tuple(read_pulse(path) for path in (run.heartbeat, run.progress, run.end))


def read_pulse(path: Path, size_bytes: int = 8192) -> bytes:
    """The start of a file, whatever it is; empty if it cannot be read."""
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


def _schema(part: str) -> str:
    return f"verl-crosscheck/{part}"


def _document(part: str, content: Mapping[str, Any]) -> dict[str, Any]:
    return {"schema": _schema(part), "schema_version": SCHEMA_VERSION, **content}


def _known(kind: Any, data: Mapping[str, Any]) -> dict[str, Any]:
    return {each.name: data[each.name] for each in fields(kind)}
