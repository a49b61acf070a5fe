# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The other run as this one sees it: whether it lives, what progress it makes, how it ended.

All is judged from changes seen, by the monotonic clock of this run: clocks of two hosts differ and jump, and are never
compared.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError, DirectoryError, PeerFailedError, PeerSilentError, UnreadableError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Progress
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S, ShareMode

LOOK_EVERY_S = 1.0
LONGEST_GAP_S = 2 * HEARTBEAT_INTERVAL_S
"""Most of the time between two looks that counts as silence. After a longer gap this run itself was suspended, or the
file system did not answer, so that a change could not be seen."""


@dataclass(frozen=True)
class Sighting:
    """The other run at the last look.

    Args:
        number: which run of its mode in the session it is.
        silent_s: how long none of its files has changed, without gaps in which this run did not look.
        idle_s: how long it has not reported progress, likewise.
    """

    number: int
    card: Card
    progress: Progress | None
    end: End | None
    silent_s: float
    idle_s: float

    @property
    def doing(self) -> str:
        """What it reported to be doing, in words."""
        if self.progress is None:
            return "starting"
        step = "" if self.progress.global_step is None else f" in step {self.progress.global_step}"
        return f"{self.progress.phase}{step}"


class Peer:
    """The current run of the other mode in a session. When a run replaces its predecessor, the new one is watched.

    Args:
        session: the session's folder.
        mode: the other run's.
        silence_s: the run counts as dead after that long without a change.
        before: number of the last run of that mode that was over when this run began; runs up to it are ignored.
    """

    def __init__(self, session: Path, mode: ShareMode, silence_s: float, clock: Clock, before: int = 0) -> None:
        self.mode = mode
        self._before = before
        self._session, self._silence_s, self._clock = session, silence_s, clock
        self._seen: dict[str, object] = {}
        self._looked_s: dict[str, float] = {}
        self._unchanged: dict[str, float] = {}
        self._last: tuple[Progress | None, End | None] = (None, None)
        self._card: tuple[int, Card] | None = None

    def look(self) -> Sighting | None:
        """Return the other run as it is now; None if none has joined the session since this run began.

        Raises:
            DamagedError: a file of it is not what it should be.
            DirectoryError: the session's folder is gone.
        """
        number = newest_run(self._session, self.mode)
        if number is None or number <= self._before:
            return None
        names = layout.RunNames(layout.run_folder(self._session, self.mode, number))
        if self._card is None or self._card[0] != number:
            self._card = (number, run_files.read_card(names))
            self._seen.clear()
            self._last = (None, None)
        with suppress(UnreadableError):  # nothing new is known then
            end = run_files.read_end(names)  # read first: a progress that is read after the end is the last one
            self._last = (run_files.read_progress(names), end)
        progress, end = self._last
        idle_s = self._unchanged_s("progress", self._last)
        pulse = (
            run_files.read_pulse(names.heartbeat),
            run_files.read_pulse(layout.candidate(self._session, self.mode)),
        )
        silent_s = min(idle_s, self._unchanged_s("heartbeat", pulse))
        return Sighting(number, self._card[1], progress, end, silent_s, idle_s)

    def before(self) -> str:
        """Return in words how the last run of that mode ended before this one began; empty if there was none."""
        if self._before == 0:
            return ""
        names = layout.RunNames(layout.run_folder(self._session, self.mode, self._before))
        try:
            end = run_files.read_end(names)
        except DamagedError:
            end = None
        how = "died" if end is None else end.state.value if end.state is not EndState.INTERRUPTED else "was interrupted"
        at = "" if end is None or end.global_step is None else f" in step {end.global_step}"
        return f"not there: the last run in mode {self.mode} {how}{at}, and none was started since"

    def require_hope(self, kind: ArtefactKind, index: int) -> Sighting | None:
        """Return the other run if an artefact may still come from it; None if no run has joined yet.

        Raises:
            PeerFailedError: it has ended, and did not publish the artefact.
            PeerSilentError: none of its files has changed for `silence_s`.
        """
        seen = self.look()
        if seen is None:
            return None
        awaited = f"{kind}_{index}"
        if seen.end is not None and not self._published(seen, kind, index):
            raise PeerFailedError(_how_it_ended(seen, seen.end, awaited))
        if seen.silent_s >= self._silence_s:
            raise PeerSilentError(
                f"the other run, {seen.card.identity}, gave no sign of life for {seen.silent_s:.0f} s while this run "
                f"waited for {awaited}; it was last seen {seen.doing}. Look there for an out-of-memory kill "
                "or a lost node, then start it again: with trainer.resume_mode=auto both go on where they were. If it "
                "lives and the file system hides changes for that long, raise trainer.share_data_silence_s"
            )
        return seen

    def _published(self, seen: Sighting, kind: ArtefactKind, index: int) -> bool:
        """Return whether it reported the artefact, which the listing may not show yet."""
        known = seen.progress is not None and index < seen.progress.published.get(kind, 0)
        return known and seen.silent_s < self._silence_s

    def _unchanged_s(self, what: str, found: object) -> float:
        now_s = self._clock.monotonic_s()
        if what not in self._seen or self._seen[what] != found:
            self._seen[what], self._unchanged[what] = found, 0.0
        else:
            self._unchanged[what] += min(now_s - self._looked_s[what], LONGEST_GAP_S)
        self._looked_s[what] = now_s
        return self._unchanged[what]


def newest_run(session: Path, mode: ShareMode) -> int | None:
    """Return the number of the current run of a mode in a session; None if there is none.

    Raises:
        DirectoryError: the session's folder is gone.
    """
    try:
        numbers = layout.run_numbers(filesystem.active().names(layout.runs_folder(session)), mode)
    except OSError as e:
        raise DirectoryError(
            f"{layout.runs_folder(session)} cannot be listed any more ({e.strerror}): the exchange directory was "
            "removed or unmounted. Start both runs again with a new one"
        ) from None
    return numbers[-1] if numbers else None


def _how_it_ended(seen: Sighting, end: End, awaited: str) -> str:
    who = f"the other run, {seen.card.identity},"
    at = seen.doing
    if end.state is EndState.FINISHED:
        return (
            f"{who} finished without {awaited}, which this run waits for. Give both runs the same number of steps "
            "(trainer.total_training_steps, trainer.total_epochs)"
        )
    how = "was interrupted" if end.state is EndState.INTERRUPTED else "failed"
    return (
        f"{who} {how} while {at}: {end.error}: {end.message.rstrip('.')}. So {awaited} will not come, and this run "
        "stops as well. Repair that, then start both again; with trainer.resume_mode=auto they go on where they were"
    )
