# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""This run's side of a session: its place, what it reports, and the word on how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import DamagedError, DirectoryError, PublishError, SessionError
from verl.crosscheck.exchange import artefacts, layout
from verl.crosscheck.exchange.layout import WRITES, ArtefactKind
from verl.crosscheck.exchange.session import cards, claim
from verl.crosscheck.exchange.session.cards import Card, End, Progress, Start
from verl.crosscheck.exchange.session.claim import RunSlot

_NEXT = {ArtefactKind.ROLLOUT: "calls", ArtefactKind.CKPT: "updates"}
"""Field of `Progress` with the index of the next artefact of a kind."""


class OwnRun:
    """A run that has its place. The main program makes one with `open_run`, the trainer another with `attach`.

    Only the trainer reports; both may tell of the end, and the first word counts.
    """

    def __init__(
        self, place: RunSlot, card: Card, progress: Progress | None = None, redact: Callable[[str], str] = str
    ) -> None:
        self.place, self.card, self._redact = place, card, redact
        start = card.start
        kinds = {ArtefactKind.ROLLOUT: start.calls, ArtefactKind.CKPT: start.updates}
        writes = WRITES[place.mode]
        self._progress = progress or Progress(
            phase="starting",
            calls=start.calls,
            updates=start.updates,
            published={writes: kinds[writes]},
            taken={kind: count for kind, count in kinds.items() if kind != writes},
        )

    @property
    def progress(self) -> Progress:
        """What was reported last."""
        return self._progress

    @property
    def start(self) -> Start:
        return self.card.start

    def report(self, phase: str, **changes: Any) -> None:
        """Tell the other run what this one is doing; `changes` are further fields of `Progress`.

        Raises:
            PublishError: it could not be told.
            DirectoryError: the directory is gone.
        """
        self._progress = replace(
            self._progress, phase=phase, reports=self._progress.reports + 1, reported_unix_s=time.time(), **changes
        )
        with self._told():
            cards.write_progress(self.place.names, self._progress)

    def report_published(self, kind: ArtefactKind, index: int, phase: str) -> None:
        """Tell that an artefact of this run is there."""
        count = max(self._progress.published.get(kind, 0), index + 1)
        self.report(phase, published={**self._progress.published, kind: count}, **{_NEXT[kind]: index + 1})

    def report_taken(self, kind: ArtefactKind, index: int, phase: str) -> None:
        """Tell that this run will not need an artefact of the other one again, which may now delete it."""
        self.report(phase, taken={**self._progress.taken, kind: index + 1}, **{_NEXT[kind]: index + 1})

    def tell_facts(self, facts: Mapping[str, Any]) -> None:
        """Tell what only the trainer knows of model, tokenizer and data. Raises as `report` does."""
        with self._told():
            cards.write_facts(self.place.names, facts)
        self.report(self._progress.phase, facts=True)

    def end(self, error: BaseException | None) -> bool:
        """Tell how the run ended, unless that has been told. Whether it is told now: there may be nowhere to."""
        try:
            last = cards.read_progress(self.place.names)
        except (DamagedError, OSError):
            last = None
        step, phase = (last.global_step, last.phase) if last else (None, "starting")
        end = End.of(error, self._redact)
        end = replace(end, global_step=step, phase=phase, reported_unix_s=time.time())
        try:
            cards.write_end(self.place.names, end)
        except OSError:
            return False
        return True

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise DirectoryError(
                f"{self.place.names.folder} is gone, so the exchange directory {self.place.root} was removed or "
                "unmounted. Start both runs again with a new one"
            ) from None
        except OSError as e:
            raise PublishError(
                f"{self.place.names.folder} could not be written ({e.strerror}), so the other run would not learn how "
                "this one gets on, and this run stops. Check free space and permissions there"
            ) from e


def open_run(
    root: Path,
    card: Card,
    *,
    silence_s: float,
    clock: Clock,
    tell: Callable[[str], object] = lambda line: None,
    claimed: Callable[[RunSlot], object] = lambda place: None,
    redact: Callable[[str], str] = str,
) -> OwnRun:
    """Take a place for `card` and clear the directory of what earlier runs left of the kind that it will write.

    Args:
        claimed: called once the place is taken, from when on the run must beat: clearing may take long.
        redact: takes secrets out of the message of an error before it is told.

    Raises:
        SessionError, ResumeError, DamagedError: see `session.claim`.
        DirectoryError: the file system failed.
    """
    with _usable(root):
        place = claim.claim(root, card, silence_s=silence_s, clock=clock, tell=tell)
        run = OwnRun(place, cards.read_card(place.names), redact=redact)
    try:
        claimed(place)
        with _usable(root):
            moved = artefacts.put_aside(place)
        run.report("starting")  # from now on what lies there of this run's kind is this session's
    except BaseException as e:
        run.end(e)  # the other run may have seen this one already
        raise
    if moved:
        tell(f"{moved} artefacts of earlier sessions were put into {layout.Layout(root).sessions}")
    return run


@contextmanager
def _usable(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as e:
        raise DirectoryError(
            f"trainer.share_data_dir={str(root)!r} cannot be used: {e}. Check the mount, the quota and the free space"
        ) from e


def attach(folder: Path, redact: Callable[[str], str] = str) -> OwnRun:
    """The run whose folder another process of it, which opened it, passed on.

    Raises:
        SessionError: there is no such run.
        DamagedError: its files are not what they should be.
    """
    names = layout.RunNames(folder)
    try:
        card = cards.read_card(names)
        found = claim.read_session(folder.parent.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise SessionError(f"{folder} is no folder of a run that takes part in a cross-check; it was removed") from None
    numbers = layout.run_numbers([folder.name], card.mode)
    if not numbers or layout.runs_folder(found.folder) != folder.parent:
        raise SessionError(f"{folder} is not where the card of a run in mode {card.mode} lies")
    root = found.folder.parent.parent
    place = RunSlot(root, found, card.mode, numbers[0], card.run_id)
    return OwnRun(place, card, cards.read_progress(names), redact)
