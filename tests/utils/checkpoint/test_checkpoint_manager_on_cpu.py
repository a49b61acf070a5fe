# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The run's own checkpoints are kept as if there were no exchange; exchanged ones are loaded without their device."""

import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from verl.crosscheck.exchange.layout import Layout, staging
from verl.utils.checkpoint import checkpoint_manager
from verl.utils.checkpoint import checkpoint_manager__upstream as upstream
from verl.utils.checkpoint import fsdp_checkpoint_manager__upstream as fsdp_upstream
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


# ---------------------------------------------------------------- random state


def test_a_random_state_of_another_kind_of_device_is_passed_over(monkeypatch, capsys):
    torch.manual_seed(3)
    random.seed(3)
    state = {**BaseCheckpointManager.get_rng_state(), "npu": torch.zeros(4, dtype=torch.uint8)}
    expected = (torch.rand(2).tolist(), random.random())
    for module in (checkpoint_manager, upstream):
        monkeypatch.setattr(module, "get_device_name", lambda: "cuda")
    BaseCheckpointManager.load_rng_state(state)
    assert (torch.rand(2).tolist(), random.random()) == expected
    assert capsys.readouterr().out == (
        "[ShareDataTest] the checkpoint's random state is of npu, so that of cuda stays as it is\n"
    )


def test_a_random_state_of_the_own_kind_of_device_is_upstreams_business(monkeypatch, capsys):
    told = []
    device = SimpleNamespace(set_rng_state=told.append)
    for module in (checkpoint_manager, upstream):
        monkeypatch.setattr(module, "get_device_name", lambda: "npu")
    monkeypatch.setattr(upstream, "get_torch_device", lambda: device)
    state = {"cpu": torch.get_rng_state(), "numpy": np.random.get_state(), "random": random.getstate(), "npu": "state"}
    BaseCheckpointManager.load_rng_state(state)
    assert told == ["state"]
    assert capsys.readouterr().out == ""


# ---------------------------------------------------------------- where tensors go


class Loader(FSDPCheckpointManager):
    """Upstream's loading of the scheduler's part, which needs neither model nor process group."""

    def __init__(self):
        self.checkpoint_load_contents = ["extra"]
        self.model = self.optimizer = self.lr_scheduler = None
        self.rank, self.world_size = 0, 1


@pytest.mark.parametrize(("name", "place"), [("ckpt_3", "cpu"), ("global_step_3", None)])
def test_exchanged_checkpoints_are_loaded_into_main_memory_and_own_ones_as_ever(tmp_path, monkeypatch, name, place):
    asked = []

    def load(path, map_location=None, weights_only=None):
        asked.append(map_location)
        return {"lr_scheduler": None}

    folder = tmp_path / name
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    (folder / "extra_state_world_size_1_rank_0.pt").write_bytes(b"")
    monkeypatch.setattr(torch, "load", load)
    monkeypatch.setattr(torch.distributed, "barrier", lambda: None)
    monkeypatch.setattr(fsdp_upstream, "get_fsdp_state_ctx", lambda *args: nullcontext())
    Loader().load_checkpoint(str(folder))
    assert asked == [place]
    assert torch.load is load
