# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Where a session's evidence of a step lies: with the newest run of a mode that did that step."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl.crosscheck.evidence.files import load
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.exchange.layout import RunNames


def runs_newest_first(session: Path, mode: str) -> Iterator[RunNames]:
    """The runs of `mode` in the folder of a session; a resumed run comes before the one whose place it took."""
    for number in reversed(layout.run_numbers(filesystem.active().names(layout.runs_folder(session)), mode)):
        yield RunNames(layout.run_folder(session, mode, number))


def load_of_step(session: Path, mode: str, global_step: int) -> StepEvidence:
    """The evidence of a step.

    Raises:
        FileNotFoundError: no run of `mode` recorded that step.
        DamagedError: it is somebody else's, or not as it was written.
        OSError: the file system's own.
    """
    for names in runs_newest_first(session, mode):
        path = names.evidence(global_step)
        if path.exists():
            require_own_file(path)
            return load(path)
    raise FileNotFoundError(f"no run of mode {mode} in {session} recorded step {global_step}")
