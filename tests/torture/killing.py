# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Kills a real run at a named moment of its exchange, from inside, so that the moment is exact.

Ray calls `install` in each of the run's workers (`worker_process_setup_hook`); in the one that is the trainer, the
moment comes: the main program and the trainer die by SIGKILL, as on a lost node, and nobody says a word.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from recipe.crosscheck.launch import override

VARIABLE = "CROSSCHECK_KILL_AT"
MOMENTS = (
    "saving rollout",
    "saving ckpt",
    "waiting for rollout",
    "waiting for ckpt",
    "loading rollout",
    "loading ckpt",
)


def overrides(moment: str, index: int) -> list[str]:
    """Hydra overrides of a run that is to die at a moment of `MOMENTS`, with the artefact of an index."""
    assert moment in MOMENTS
    runtime_env = "ray_kwargs.ray_init.runtime_env"
    return [
        f"+{runtime_env}.worker_process_setup_hook=torture.killing.install",
        "+" + override(f"{runtime_env}.env_vars.{VARIABLE}", f"{moment}_{index}"),
    ]


def install() -> None:
    """Wait for the moment, in a process of a run."""
    from verl.crosscheck.exchange import filesystem
    from verl.crosscheck.exchange.session.own_run import OwnRun
    from verl.crosscheck.run import exchanging

    moment = os.environ[VARIABLE]
    runs: list[OwnRun] = []
    names = vars(exchanging)
    report, load_answer = OwnRun.report, names["load_answer"]

    def die_at(now: str) -> None:
        if now == moment and runs:
            os.kill(runs[0].card.process["pid"], signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)

    def reported(run: OwnRun, phase: str, **changes: Any) -> None:
        runs[:] = [run]
        report(run, phase, **changes)
        if not phase.startswith("saving"):  # which is said before; it is the rename in the middle of it that counts
            die_at(phase)

    def loaded(path: Path, *args: Any, **kwargs: Any) -> Any:
        die_at(f"loading {path.name}")
        return load_answer(path, *args, **kwargs)

    class Disk(filesystem.Filesystem):
        """Dies before an artefact gets its name."""

        def link(self, source: Path, target: Path) -> None:
            die_at(f"saving {target.name}")
            super().link(source, target)

        def rename(self, source: Path, target: Path) -> None:
            die_at(f"saving {target.name}")
            super().rename(source, target)

    setattr(OwnRun, "report", reported)  # noqa: B010  a method of a class, for all of the process
    names["load_answer"] = loaded
    filesystem._active = Disk()
