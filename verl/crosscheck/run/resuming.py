# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Finds where in the exchange a run begins: its own checkpoints note it.

Upstream's trainer resumes from `global_step_{n}` in `trainer.default_local_dir`, or from `trainer.resume_from_path`.
Into each such folder a cross-checked run writes one small file more.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, ClassVar

from omegaconf import OmegaConf

from verl.crosscheck.errors import PublishError, ResumeError
from verl.crosscheck.exchange.documents import Count, Document, read_document
from verl.crosscheck.exchange.layout import CHECKPOINT_MARK
from verl.crosscheck.exchange.publish import publish_document
from verl.crosscheck.exchange.session.run_files import Start

_TRACKER = "latest_checkpointed_iteration.txt"
_STEP = re.compile(r"global_step_([0-9]+)")


class CheckpointMark(Document, frozen=True):
    """Where in the exchange a run's own checkpoint was saved.

    Args:
        session: id of the session.
        calls, updates: indexes of the next rollout and of the next exchanged checkpoint.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/mark"

    session: str
    calls: Count
    updates: Count


def start_of(config: Any) -> Start:
    """Return where the run of a whole configuration begins, as its checkpoints say.

    Raises:
        DamagedError: the mark of its checkpoint is not what it should be.
    """
    folder = _resumed_folder(config)
    step = _STEP.search(folder.name) if folder else None
    if folder is None or step is None:
        return Start()
    global_step = int(step.group(1))
    try:
        mark = read_document(folder / CHECKPOINT_MARK, CheckpointMark)
    except FileNotFoundError:  # saved without a cross-check
        return Start(global_step)
    return Start(global_step, mark.calls, mark.updates, mark.session)


def mark_checkpoint(folder: Path, session: str, calls: int, updates: int) -> None:
    """Write where in the exchange a run's own checkpoint is saved. Call it before the checkpoint is saved: a run that
    dies in between must not leave a checkpoint without a mark.

    Args:
        folder: the checkpoint's; made if missing.
        calls, updates: indexes of the next rollout and of the next exchanged checkpoint.

    Raises:
        PublishError: it could not be written.
    """
    path = folder / CHECKPOINT_MARK
    try:
        folder.mkdir(parents=True, exist_ok=True)
        publish_document(path, CheckpointMark(session, calls, updates), replace=True)
    except OSError as e:
        raise PublishError(
            f"{path} could not be written ({e.strerror}), so a run resumed from that checkpoint would not know where "
            "in the exchange it goes on. Check free space and permissions of trainer.default_local_dir"
        ) from e


def own_checkpoint(config: Any, global_step: int) -> Path:
    """Return the folder into which upstream's trainer saves after a step."""
    return Path(str(config.trainer.default_local_dir)).absolute() / f"global_step_{global_step}"


def last_step(config: Any) -> int | None:
    """Return the steps of the whole run; None if that is not known. Once it has its data, upstream's trainer writes
    them into the actor's section, since `trainer.total_training_steps` may be left to follow from the epochs."""
    for key in ("actor_rollout_ref.actor.optim.total_training_steps", "trainer.total_training_steps"):
        steps = OmegaConf.select(config, key)
        if isinstance(steps, int) and steps > 0:
            return steps
    return None


def require_start(start: Start, global_step: int) -> None:
    """Return if the trainer begins after the step that was announced to the other run.

    Raises:
        ResumeError: it begins after another one.
    """
    if global_step != start.global_step:
        raise ResumeError(
            f"the trainer begins after step {global_step}, and the main program, which looked for the run's "
            f"checkpoint, found step {start.global_step}. Are trainer.default_local_dir and trainer.resume_from_path "
            "absolute paths on a file system that all nodes share?"
        )


def _resumed_folder(config: Any) -> Path | None:
    """Return the checkpoint that upstream's trainer will resume from, by upstream's rules; None if it starts anew."""
    mode = OmegaConf.select(config, "trainer.resume_mode")
    if mode == "resume_path":
        path = OmegaConf.select(config, "trainer.resume_from_path")
        return Path(path).absolute() if isinstance(path, str) else None
    base = OmegaConf.select(config, "trainer.default_local_dir")
    if mode != "auto" or base is None:
        return None
    try:
        step = int((Path(base) / _TRACKER).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    folder = Path(base).absolute() / f"global_step_{step}"
    return folder if os.path.isdir(folder) else None  # noqa: PTH112
