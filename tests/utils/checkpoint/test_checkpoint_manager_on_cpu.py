# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The run's own checkpoints are kept as if there were no exchange."""

from pathlib import Path

import pytest

from verl.crosscheck.exchange.layout import Layout, staging
from verl.utils.checkpoint.checkpoint_manager import (
    BaseCheckpointManager,
    find_latest_ckpt_path,
    get_checkpoint_tracker_filename,
)
from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager


@pytest.fixture
def manager():
    """A manager's book-keeping, without a model."""
    made = object.__new__(BaseCheckpointManager)
    made.previous_saved_paths = []
    return made


def save(manager, path, keep):
    """The order of calls in upstream's managers around a save."""
    manager.ensure_checkpoint_capacity(keep)
    Path(path).mkdir(parents=True)
    manager.register_checkpoint(str(path), keep)


def test_the_managers_are_built_on_the_forks_base():
    assert issubclass(FSDPCheckpointManager, BaseCheckpointManager)
    assert callable(find_latest_ckpt_path)
    assert callable(get_checkpoint_tracker_filename)


def test_exchanged_saves_push_out_no_own_checkpoint(manager, tmp_path):
    for step in range(1, 9):
        exchanged = staging(Layout(tmp_path).ckpt(step), "writer")
        save(manager, exchanged, None)
        exchanged.rename(Layout(tmp_path).ckpt(step))
        if step % 2 == 0:
            save(manager, tmp_path / "own" / f"global_step_{step}" / "actor", 2)
    kept = sorted(p.parent.name for p in (tmp_path / "own").glob("*/actor"))
    assert kept == ["global_step_6", "global_step_8"]
    assert all(Layout(tmp_path).ckpt(step).exists() for step in range(1, 9))
