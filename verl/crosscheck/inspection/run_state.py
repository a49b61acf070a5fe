# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Judge one run by its files: who it is, whether it lives, what it does.

That a run lives is certain for a process of this host, and for a run whose files change while they are watched.
Otherwise only file times are known, by a clock that is not this host's. So each state names its `StateSource`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import Session
from verl.crosscheck.exchange.session.liveness import is_running
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Progress
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S, ShareMode

DEFAULT_SILENCE_S = 180.0
"""`trainer.share_data_silence_s`, for a card that does not say."""

FRESH_S = 3 * HEARTBEAT_INTERVAL_S
"""A sign of life of this age, by file times, needs no second look."""

LOOK_EVERY_S = 0.25


class RunState(str, Enum):
    """The state of a run."""

    NO_RUN = "no_run"
    """No run of this mode has taken part in the session."""
    STARTING = "starting"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    """Somebody stopped it."""
    DIED = "died"
    """Its process is gone from this host, and it reported no end."""
    SILENT = "silent"
    """It reported no end, and gave no sign of life for longer than the other run waits."""
    UNREADABLE = "unreadable"
    """Its files are not what they should be."""

    @property
    def words(self) -> str:
        return "no run yet" if self is RunState.NO_RUN else self.value

    @property
    def lives(self) -> bool:
        return self in (RunState.STARTING, RunState.RUNNING)

    @property
    def needs_somebody(self) -> bool:
        return not self.lives and self not in (RunState.NO_RUN, RunState.FINISHED)


class StateSource(str, Enum):
    """What a state was judged by."""

    NOTHING = "nothing"
    END = "end"
    """The run's own report of its end."""
    PROCESS = "process"
    """The processes of this host."""
    WATCHED = "watched"
    """Its files changed while they were watched."""
    FILE_TIMES = "file_times"
    """The times of its files against this host's clock."""


@dataclass(frozen=True)
class WatchedRun:
    """A run. Fields without a value are empty or None.

    Args:
        number: which run of its mode in the session it is: 3 has been started again twice.
        after_step: steps that were done before it.
        others_before: number of the last run of the other mode that was over before this one began; see `Card`.
        total_steps: what its configuration sets; None if that leaves it to the number of epochs.
        phase_s: how long it has been in its phase, in seconds.
        last_sign_s: seconds since something of it changed; None if nothing tells.
        published, taken: how many artefacts it has made visible, and how many of the other run's it has done with.
        error, message: how it failed.
        problem: why it is unreadable.
    """

    mode: ShareMode
    state: RunState = RunState.NO_RUN
    evidence: StateSource = StateSource.NOTHING
    number: int | None = None
    run_id: str = ""
    host: str = ""
    pid: int | None = None
    started: str = ""
    device: str = ""
    world_size: int | None = None
    strategy: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    after_step: int = 0
    others_before: int = 0
    phase: str = ""
    phase_s: float | None = None
    global_step: int | None = None
    total_steps: int | None = None
    last_sign_s: float | None = None
    published: Mapping[str, int] = field(default_factory=dict)
    taken: Mapping[str, int] = field(default_factory=dict)
    error: str = ""
    message: str = ""
    problem: str = ""


@dataclass
class _Seen:
    signs: tuple[object, ...]
    since_s: float
    changed: bool = False


class RunProbe:
    """Looks at runs, and remembers what it saw.

    Args:
        wall_s: this host's wall clock, in seconds since 1970.
    """

    def __init__(self, clock: Clock, wall_s: Callable[[], float] = time.time) -> None:
        self._clock, self._wall_s = clock, wall_s
        self._seen: dict[Path, _Seen] = {}

    def look(self, session: Session, mode: ShareMode) -> tuple[WatchedRun, Card | None]:
        """Return the current run of a mode in a session, and its card if that can be read.

        Raises:
            DirectoryError: the session's folder is gone.
        """
        names = session.newest(mode)
        if names is None:
            return WatchedRun(mode), None
        number = int(names.folder.name.rpartition("_")[2])
        try:
            card = run_files.read_card(names)
            progress, end = run_files.read_progress(names), run_files.read_end(names)
        except (DamagedError, OSError) as e:
            problem = str(e)
            return WatchedRun(mode, RunState.UNREADABLE, number=number, problem=problem), None
        return self._run(names, number, card, progress, end), card

    def watch(self, session: Session, modes: Iterable[ShareMode], longest_s: float) -> None:
        """Look again at runs whose state is doubtful by file times, until each changes or `longest_s` is over."""
        start_s = self._clock.monotonic_s()
        while any([self._in_doubt(self.look(session, mode)[0]) for mode in modes]):  # all of them, each time
            if self._clock.monotonic_s() - start_s >= longest_s:
                return
            self._clock.sleep(LOOK_EVERY_S)

    @staticmethod
    def _in_doubt(run: WatchedRun) -> bool:
        if run.evidence is not StateSource.FILE_TIMES:
            return False
        return run.last_sign_s is None or run.last_sign_s > FRESH_S

    def _run(self, names: RunNames, number: int, card: Card, progress: Progress | None, end: End | None) -> WatchedRun:
        seen = self._notice(names, (progress, end, run_files.read_pulse(names.heartbeat)))
        if seen.changed:
            last_sign_s: float | None = self._clock.monotonic_s() - seen.since_s
        else:
            last_sign_s = self._age_s(names.heartbeat, names.progress, names.end, names.card)
        state, evidence = _judge(card, progress, end, last_sign_s, changed=seen.changed)
        trainer = _trainer(card)
        total = trainer.get("total_training_steps")
        return WatchedRun(
            mode=card.mode,
            state=state,
            evidence=evidence,
            number=number,
            run_id=card.run_id,
            host=card.host,
            pid=card.process.get("pid"),
            started=card.started,
            device=card.device,
            world_size=card.world_size,
            strategy=card.strategy,
            versions={str(name): str(version) for name, version in card.versions.items()},
            after_step=card.start.global_step,
            others_before=card.others_before,
            phase=progress.phase if progress else "starting",
            phase_s=self._age_s(names.progress, names.card),
            global_step=progress.global_step if progress else None,
            total_steps=total if type(total) is int and total > 0 else None,
            last_sign_s=last_sign_s,
            published=progress.published if progress else {},
            taken=progress.taken if progress else {},
            error=end.error if end else "",
            message=end.message if end else "",
        )

    def _notice(self, names: RunNames, signs: tuple[object, ...]) -> _Seen:
        seen = self._seen.get(names.folder)
        if seen is None:
            seen = self._seen[names.folder] = _Seen(signs, self._clock.monotonic_s())
        elif seen.signs != signs:
            seen.signs, seen.since_s, seen.changed = signs, self._clock.monotonic_s(), True
        return seen

    def _age_s(self, *paths: Path) -> float | None:
        """Return the seconds since the newest of these files was written; None if that lies in the future."""
        times = []
        for path in paths:
            with suppress(OSError):
                times.append(path.lstat().st_mtime)
        age_s = self._wall_s() - max(times) if times else None
        return None if age_s is None or age_s < -HEARTBEAT_INTERVAL_S else max(age_s, 0.0)


def silence_s_of(card: Card) -> float:
    """Return how many seconds the other run waits for a sign of life."""
    silence_s = _trainer(card).get("share_data_silence_s")
    if isinstance(silence_s, int | float) and not isinstance(silence_s, bool):
        return float(silence_s)
    return DEFAULT_SILENCE_S


def _judge(
    card: Card, progress: Progress | None, end: End | None, last_sign_s: float | None, *, changed: bool
) -> tuple[RunState, StateSource]:
    if end is not None:
        ended = {
            EndState.FINISHED: RunState.FINISHED,
            EndState.FAILED: RunState.FAILED,
            EndState.INTERRUPTED: RunState.INTERRUPTED,
        }
        return ended[end.state], StateSource.END
    alive = RunState.STARTING if progress is None or progress.phase == "starting" else RunState.RUNNING
    here = is_running(card.process)
    if here is not None:
        return (alive if here else RunState.DIED), StateSource.PROCESS
    evidence = StateSource.WATCHED if changed else StateSource.FILE_TIMES
    silent = last_sign_s is not None and last_sign_s >= silence_s_of(card)
    return (RunState.SILENT if silent else alive), evidence


def _trainer(card: Card) -> Mapping[str, Any]:
    trainer = card.config.get("trainer")
    return trainer if isinstance(trainer, Mapping) else {}
