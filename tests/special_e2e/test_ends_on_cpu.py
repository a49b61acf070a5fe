# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Real runs that are killed or interrupted: what the other run learns of it, and how a pair goes on."""

import json
import signal
import time
from contextlib import ExitStack

import psutil
import pytest

from recipe.crosscheck import demo_task, interrupted, launch, make_data

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
        *demo_task.overrides(data),
        f"trainer.share_data={mode}",
        f"trainer.share_data_dir={folder / 'share'}",
        "trainer.total_training_steps=2",
    ]
    return stack.enter_context(launch.running(folder / "run", overrides))


def end_of(folder, mode):
    path = folder / "share" / "sessions" / "session_1" / "runs" / f"{mode}_1" / "end.json"
    return json.loads(path.read_text()) if path.exists() else None


def test_a_killed_trainer_and_ctrl_c_are_told_within_seconds(tmp_path):
    data = make_data.write(tmp_path / "data")
    killed, stopped = tmp_path / "killed", tmp_path / "stopped"
    with ExitStack() as stack:
        a, b = start(stack, killed, data, "ckpt"), start(stack, stopped, data, "rollout")

        until(lambda: "waiting for" in a.log() or a.poll() is not None, "mode ckpt waits")
        [trainer] = [
            process
            for process in psutil.Process(a.process.pid).children(recursive=True)
            if any("TaskRunner" in part for part in process.cmdline())
        ]
        trainer.kill()
        assert until(lambda: end_of(killed, "ckpt"), "the end is told") < TOLD_WITHIN_S
        end = end_of(killed, "ckpt")
        assert (end["state"], end["global_step"], end["phase"]) == ("failed", 1, "waiting for ckpt_0")
        assert "Actor" in end["error"]

        until(lambda: "Waiting for shared data" in b.log() or b.poll() is not None, "mode rollout waits")
        b.process.send_signal(signal.SIGINT)
        assert until(lambda: end_of(stopped, "rollout"), "the end is told") < TOLD_WITHIN_S
        end = end_of(stopped, "rollout")
        assert (end["state"], end["error"], end["phase"]) == (
            "interrupted",
            "KeyboardInterrupt",
            "waiting for rollout_0",
        )


def test_a_pair_one_of_which_was_killed_goes_on_to_the_same_numbers(tmp_path):
    """The other moments are tried by scripts/torture."""
    data = make_data.write(tmp_path / "data")
    expected = interrupted.undisturbed(tmp_path / "undisturbed", data)
    case = interrupted.Case("b", "saving ckpt", alone=True)
    outcome = interrupted.disturbed(tmp_path / "disturbed", data, case, expected)
    assert outcome.different == []
    assert outcome.resumed_at == {"b": interrupted.KILLED_INDEX}
    assert sorted(expected["a"]) == list(range(1, interrupted.STEPS + 1))
    assert all(len(values) > 10 for values in expected["a"].values())
