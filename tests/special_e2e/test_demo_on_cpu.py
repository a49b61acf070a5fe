# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The demo, as a user starts it: two real runs, start to end, interrupted, and with one side dying."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.record.container import read_about

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


def start_demo(out, *arguments):
    command = [sys.executable, "-m", "recipe.crosscheck.demo", "--out", str(out), *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def processes_of(out):
    """Processes whose command line names a folder of this demo, and all that descend from them."""
    found = set()
    for process in psutil.process_iter(["cmdline"]):
        if any(str(out) in part for part in process.info["cmdline"] or []):
            found |= {process, *process.children(recursive=True)}
    return found


def wait_for(condition, timeout_s=180.0):
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.2)
    return value


def still_there(processes):
    """Those of `processes` that have not ended; a killed one may take a moment to be gone."""
    psutil.wait_procs(processes, timeout=5)
    return [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("scenario", [1, pytest.param(2, marks=pytest.mark.extended)])
def test_both_runs_reach_the_end_with_equal_updates(tmp_path, scenario):
    steps = 4 if scenario == 1 else 2
    demo = start_demo(
        tmp_path, "--steps", str(steps), "--scenario", str(scenario), *(["--fault", "none"] if scenario == 2 else [])
    )
    out, _ = demo.communicate(timeout=300)
    assert demo.returncode == 0, out
    words = " ".join(out.split())
    if scenario == 1:
        # The default fault: A's engine has stale weights from step 2 on, and B trains on what it gives, as A does.
        assert "stale_weights, from step 2 on" in words
        assert "Rollout of A is at fault" in words and "since step 2" in words, out
    else:
        # A's engine generates nothing here, so nothing can be said of it.
        assert "at fault" not in words
        assert "Inconclusive" in words, out
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["steps"] == steps
    modes = {"a": "ckpt", "b": "rollout"} if scenario == 1 else {"a": "rollout", "b": "ckpt"}
    assert {name: summary[name]["mode"] for name in "ab"} == modes
    for a, b in zip(summary["a"]["steps"], summary["b"]["steps"], strict=True):
        # Equal weights and equal rollouts at the start of each step: two healthy runs agree to the last digit.
        assert (a["step"], a["grad_norm"], a["loss"], a["reward"]) == (
            b["step"],
            b["grad_norm"],
            b["loss"],
            b["reward"],
        )
        assert a["grad_norm"] > 0
    assert 0 < summary["exchange_s_per_step"] < 30  # the figure is for the benchmark; this only tells it from nonsense
    assert f"{summary['exchange_s_per_step']:.2f} s" in out

    share = tmp_path / "share"
    kept = range(steps - 2, steps)  # of the checkpoints the newest two, of the rollouts all
    names = [*(f"rollout_{index}" for index in range(steps)), *(f"ckpt_{index}" for index in kept)]
    assert sorted(p.name for p in share.iterdir()) == sorted([*names, "sessions"])
    for index in range(steps):
        about = read_about(share / f"rollout_{index}")
        assert (about["index"], about["call"], about["global_step"], about["rows"]) == (
            index,
            "training",
            index + 1,
            64,
        )
    for index in kept:
        assert read_checked(share / f"ckpt_{index}").about["global_step"] == index + 1
    session = share / "sessions" / "session_1"
    for mode in ("ckpt", "rollout"):
        end = json.loads((session / "runs" / f"{mode}_1" / "end.json").read_text())
        assert (end["state"], end["global_step"]) == ("finished", steps)
    consumer = (tmp_path / ("b" if scenario == 1 else "a") / "run.log").read_text()
    producer = (tmp_path / ("a" if scenario == 1 else "b") / "run.log").read_text()
    for index in range(steps):
        assert f"[ShareDataTest] Successfully load pre-generated data from {share}/rollout_{index}" in consumer
        assert f"[ShareDataTest] Successfully save ckpt to {share}/ckpt_{index}" in consumer
        assert f"[ShareDataTest] Successfully dump data in {share}/rollout_{index}" in producer
        assert f"[ShareDataTest] Successfully load ckpt from {share}/ckpt_{index}" in producer


@pytest.mark.parametrize(
    "numbers",
    [
        pytest.param([signal.SIGINT, signal.SIGINT], id="ctrl-c twice"),
        pytest.param([signal.SIGTERM], id="kill", marks=pytest.mark.extended),
    ],
)
def test_an_interrupt_ends_everything(tmp_path, numbers):
    out_dir = tmp_path / "with space, \u00e4"
    demo = start_demo(out_dir)
    log = out_dir / "a" / "run.log"
    wait_for(lambda: log.exists() and "[ShareDataTest] dump path set to" in log.read_text())
    processes = processes_of(out_dir)
    assert len(processes) > 10, "two drivers with their Ray should be there"
    for number in numbers:
        demo.send_signal(number)
        time.sleep(0.7)
    out, _ = demo.communicate(timeout=90)
    assert demo.returncode == 130, out
    assert "Both runs have ended" in out
    assert "Traceback" not in out
    assert still_there(processes) == []


def test_a_dead_run_ends_the_other_and_shows_why(tmp_path):
    demo = start_demo(tmp_path)
    log = tmp_path / "b" / "run.log"
    wait_for(lambda: log.exists() and "[ShareDataTest] dump path set to" in log.read_text())
    processes = processes_of(tmp_path)
    main = next(p for p in processes if f"hydra.run.dir='{tmp_path}/b/hydra'" in p.cmdline())
    os.kill(main.pid, signal.SIGKILL)
    out, _ = demo.communicate(timeout=90)
    assert demo.returncode == 1, out
    assert "Run B was killed by signal 9" in out
    assert str(log) in out
    assert still_there(processes) == []


def test_wrong_arguments_are_explained(tmp_path):
    demo = start_demo(tmp_path, "--steps", "1")
    out, _ = demo.communicate(timeout=60)
    assert demo.returncode == 2
    assert "--steps: at least 2" in out
