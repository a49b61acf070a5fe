# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""This run in its session: it takes a slot, reports its progress, and writes how it ended."""

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
from verl.crosscheck.exchange.session import claim, run_files
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.exchange.session.run_files import Card, End, Progress, Start

_NEXT = {ArtefactKind.ROLLOUT: "calls", ArtefactKind.CKPT: "updates"}
"""Field of `Progress` with the index of the next artefact of a kind."""


class OwnRun:
    """A run that has a slot. The main program makes one with `open_run`, the trainer another with `attach`.

    Only the trainer reports. Both may write the end; the first one counts.
    """

    def __init__(
        self, slot: RunSlot, card: Card, progress: Progress | None = None, redact: Callable[[str], str] = str
    ) -> None:
        self.slot, self.card, self._redact = slot, card, redact
        start = card.start
        kinds = {ArtefactKind.ROLLOUT: start.calls, ArtefactKind.CKPT: start.updates}
        writes = WRITES[slot.mode]
        self._progress = progress or Progress(
            phase="starting",
            calls=start.calls,
            updates=start.updates,
            published={writes: kinds[writes]},
            taken={kind: count for kind, count in kinds.items() if kind != writes},
        )

    @property
    def progress(self) -> Progress:
        """The last report."""
        return self._progress

    @property
    def start(self) -> Start:
        return self.card.start

    def report(self, phase: str, **changes: Any) -> None:
        """Report to the other run what this one is doing; `changes` are further fields of `Progress`.

        Raises:
            PublishError: the report could not be written.
            DirectoryError: the directory is gone.
        """
        self._progress = replace(
            self._progress, phase=phase, reports=self._progress.reports + 1, reported_unix_s=time.time(), **changes
        )
        with self._reporting():
            run_files.write_progress(self.slot.names, self._progress)

    def report_published(self, kind: ArtefactKind, index: int, phase: str) -> None:
        """Report that an artefact of this run is there."""
        count = max(self._progress.published.get(kind, 0), index + 1)
        self.report(phase, published={**self._progress.published, kind: count}, **{_NEXT[kind]: index + 1})

    def report_taken(self, kind: ArtefactKind, index: int, phase: str) -> None:
        """Report that this run does not need an artefact of the other run again, so that run may delete it."""
        self.report(phase, taken={**self._progress.taken, kind: index + 1}, **{_NEXT[kind]: index + 1})

    def report_facts(self, facts: Mapping[str, Any]) -> None:
        """Report what only the trainer knows of model, tokenizer and data. Raises as `report` does."""
        with self._reporting():
            run_files.write_facts(self.slot.names, facts)
        self.report(self._progress.phase, facts=True)

    def end(self, error: BaseException | None) -> bool:
        """Write how the run ended, unless that is written already. Return whether it is written now.

        It is not if the directory is gone or the file system fails.
        """
        try:
            last = run_files.read_progress(self.slot.names)
        except (DamagedError, OSError):
            last = None
        step, phase = (last.global_step, last.phase) if last else (None, "starting")
        end = End.of(error, self._redact)
        end = replace(end, global_step=step, phase=phase, reported_unix_s=time.time())
        try:
            run_files.write_end(self.slot.names, end)
        except OSError:
            return False
        return True

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise DirectoryError(
                f"{self.slot.names.folder} is gone, so the exchange directory {self.slot.root} was removed or "
                "unmounted. Start both runs again with a new one"
            ) from None
        except OSError as e:
            raise PublishError(
                f"{self.slot.names.folder} could not be written ({e.strerror}), so the other run would not learn how "
                "this one gets on, and this run stops. Check free space and permissions there"
            ) from e


def open_run(
    root: Path,
    card: Card,
    *,
    silence_s: float,
    clock: Clock,
    announce: Callable[[str], object] = lambda line: None,
    claimed: Callable[[RunSlot], object] = lambda slot: None,
    redact: Callable[[str], str] = str,
) -> OwnRun:
    """Take a slot for `card`, and clear the directory of older artefacts of the kind that the run will write.

    Args:
        announce: is given a line for people when it takes long.
        claimed: called when the slot is taken. From then on the run needs a heartbeat, since clearing may take long.
        redact: removes secrets from the message of an error before it is written.

    Raises:
        SessionError, ResumeError, DamagedError: see `session.claim`.
        DirectoryError: the file system failed.
    """
    with _usable(root):
        slot = claim.claim(root, card, silence_s=silence_s, clock=clock, announce=announce)
        run = OwnRun(slot, run_files.read_card(slot.names), redact=redact)
    try:
        claimed(slot)
        with _usable(root):
            moved = artefacts.put_aside(slot)
        run.report("starting")  # from now on what lies there of this run's kind is this session's
    except BaseException as e:
        run.end(e)  # the other run may have seen this one already
        raise
    if moved:
        announce(f"{moved} artefacts of earlier sessions were put into {layout.Layout(root).sessions}")
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
    """Return the run that another process, the main program, opened in `folder`.

    Raises:
        SessionError: there is no such run.
        DamagedError: its files are not what they should be.
    """
    names = layout.RunNames(folder)
    try:
        card = run_files.read_card(names)
        found = claim.read_session(folder.parent.parent)
    except (FileNotFoundError, NotADirectoryError):
        raise SessionError(f"{folder} is no folder of a run that takes part in a cross-check; it was removed") from None
    numbers = layout.run_numbers([folder.name], card.mode)
    if not numbers or layout.runs_folder(found.folder) != folder.parent:
        raise SessionError(f"{folder} is not where the card of a run in mode {card.mode} lies")
    root = found.folder.parent.parent
    slot = RunSlot(root, found, card.mode, numbers[0], card.run_id)
    return OwnRun(slot, card, run_files.read_progress(names), redact)
