# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Real runs that are killed or interrupted: what the other run learns of it, and how a pair goes on."""

import json
import os
import re
import signal
import time
from contextlib import ExitStack

import psutil
import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data
from torture import interrupted

pytestmark = pytest.mark.slow

LIMIT_S = 300
TOLD_WITHIN_S = 10


def until(condition, what, limit_s=LIMIT_S):
    """Seconds until the condition holds."""
    start_s = time.monotonic()
    while not condition():
        assert time.monotonic() - start_s < limit_s, f"{what} within {limit_s} s"
        time.sleep(0.05)
    return time.monotonic() - start_s


def start(stack, folder, data, mode):
    overrides = [
        *task_overrides(data),
        f"trainer.share_data={mode}",
        f"trainer.share_data_dir={folder / 'share'}",
        "trainer.total_training_steps=2",
    ]
    return stack.enter_context(launch.running(folder / "run", overrides))


def end_of(folder, mode):
    path = folder / "share" / "sessions" / "session_1" / "runs" / f"{mode}_1" / "end.json"
    return json.loads(path.read_text()) if path.exists() else None


def kill_the_trainer(run):
    [trainer] = [
        process
        for process in psutil.Process(run.pid).children(recursive=True)
        if any("TaskRunner" in part for part in process.cmdline())
    ]
    trainer.kill()


def test_a_killed_trainer_and_signals_are_told_within_seconds(tmp_path):
    """Each run alone in a directory of its own, waiting for another that never comes."""
    data = write_data(tmp_path / "data")
    ways = {
        "killed": ("ckpt", kill_the_trainer, "failed", "waiting for ckpt_0"),
        "interrupted": ("rollout", lambda run: os.kill(run.pid, signal.SIGINT), "interrupted", "rollout_0"),
        "terminated": ("rollout", lambda run: os.kill(run.pid, signal.SIGTERM), "interrupted", "rollout_0"),
    }
    with ExitStack() as stack:
        runs = {name: start(stack, tmp_path / name, data, mode) for name, (mode, *_) in ways.items()}
        for name, (mode, end_it, state, phase) in ways.items():
            run = runs[name]
            until(lambda run=run: re.search("waiting for|Waiting for", run.log()) or run.poll() is not None, "a wait")
            end_it(run)
            told_s = until(lambda name=name, mode=mode: end_of(tmp_path / name, mode), "the end is told")
            assert told_s < TOLD_WITHIN_S
            end = end_of(tmp_path / name, mode)
            assert (end["state"], end["global_step"]) == (state, 1)
            assert end["phase"].endswith(phase)
    assert "Actor" in end_of(tmp_path / "killed", "ckpt")["error"]
    assert end_of(tmp_path / "interrupted", "rollout")["error"] == "KeyboardInterrupt"
    assert end_of(tmp_path / "terminated", "rollout")["error"] == "SystemExit"


@pytest.mark.extended
def test_a_pair_one_of_which_was_killed_goes_on_to_the_same_numbers(tmp_path):
    """The other moments are tried by scripts/torture."""
    data = write_data(tmp_path / "data")
    expected = interrupted.undisturbed(tmp_path / "undisturbed", data)
    case = interrupted.Case("b", "saving ckpt", alone=True)
    outcome = interrupted.disturbed(tmp_path / "disturbed", data, case, expected)
    assert outcome.different == []
    assert outcome.resumed_at == {"b": interrupted.KILLED_INDEX}
    assert sorted(expected["a"]) == list(range(1, interrupted.STEPS + 1))
    assert all(len(values) > 10 for values in expected["a"].values())
