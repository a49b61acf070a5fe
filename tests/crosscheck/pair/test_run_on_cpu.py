# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck run` with commands that behave as trainings do; the report has tests of its own."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from verl.crosscheck.cli import main
from verl.crosscheck.pair import play, watch

TRAIN = "python -m verl.trainer.main_ppo"


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Runs the command line in an empty folder; the result has `exit_code`, `stdout` and `stderr`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "END_GRACE_S", 4.0)

    def call(*arguments):
        result = CliRunner(env={"COLUMNS": "80"}).invoke(
            main, ["run", *map(str, arguments)], prog_name="verl-crosscheck"
        )
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def report(monkeypatch):
    """Takes the place of the report: remembers its arguments, and has the exit status 10 if no other is given."""

    class Report:
        def __init__(self):
            self.calls, self.status = [], 10

        def write(self, request, compared, language):
            self.calls.append(play.report_arguments(request, compared, language))
            return self.status

    found = Report()
    monkeypatch.setattr(play, "write_report", found.write)
    return found


def test_a_scenario_and_the_control(call, report, training, tmp_path):
    a, b = training(), training("is well")
    options = ("--steps", 2, "--dir", "my runs", "--control", "--scenarios", 2, "--lang", "zh")
    result = call("--a", a, "--b", b, *options)
    root = tmp_path / "my runs"
    assert result.exit_code == 10
    assert report.calls == [
        [
            "report",
            *(f"{root}/scenario_2", "--scenario", "2"),
            *("--control", f"{root}/control"),
            *("--output", f"{root}/report.html", "--lang", "zh"),
        ]
    ]
    lines = result.stdout.splitlines()
    assert [line.partition(":")[0] for line in lines if " of 2)" in line] == [
        "Control (1 of 2)",
        "Scenario 2 (2 of 2)",
    ]
    assert [line.partition(" (")[0] for line in lines if "both runs finished" in line] == [
        "Control: both runs finished 2 steps",
        "Scenario 2: both runs finished 2 steps",
    ]
    assert "A (rollout) finished; B (ckpt) finished" in result.stdout
    assert "\x1b" not in result.stdout
    assert sorted(path.name for path in root.iterdir()) == ["control", "runs", "scenario_2"]
    log = (root / "runs" / "scenario_2" / "b" / "run.log").read_text()
    assert "starting ckpt" in log
    assert "step 2" in log


def test_a_failure_ends_both_and_is_shown(call, report, training, tmp_path):
    report.status = 0
    result = call("--a", training("fails in step 2"), "--b", training("waits in step 2"), "--dir", "d", "--steps", 3)
    assert result.exit_code == 1  # a run that failed is never "no fault seen"
    assert "Scenario 1: A ended with status 1, while training in step 2" in result.stdout
    assert "RuntimeError: out of memory" in result.stdout
    assert "The last lines of the log of A:" in result.stdout
    assert f"The whole log: {tmp_path}/d/runs/scenario_1/a/run.log" in result.stdout
    assert "1 pair of runs not started" in result.stdout
    assert report.calls[0][1:2] == [f"{tmp_path}/d/scenario_1"]  # the first step was compared: the report is made


def test_a_command_that_fails_at_once(call, report, training):
    result = call("--a", training("fails at once"), "--b", training("hangs"), "--dir", "d")
    assert result.exit_code == 1
    assert "A ended with status 3 before it took part" in result.stdout
    assert "ValueError: no such model" in result.stdout
    assert "No report: no update of two runs was compared." in result.stdout
    assert report.calls == []


def test_a_command_that_has_nothing_to_do_with_it(call, report, training):
    result = call("--a", training("hangs"), "--b", "true", "--dir", "d", "--scenarios", "2")
    assert result.exit_code == 1
    assert "Warning: --b names neither verl.trainer.main_ppo nor a shell script" in result.stdout
    assert "B's command ended without taking part: --b must hand the overrides" in result.stdout
    assert report.calls == []


def test_a_peer_that_stays_is_ended(call, report, training):
    began = set(psutil.pids())
    result = call(
        *("--a", training("fails in step 1"), "--b", training("stays in step 1")),
        *("--dir", "d", "--scenarios", 1, "--grace", 0.1),
    )
    assert result.exit_code == 1
    assert "B was ended 0.1 s later" in result.stdout
    assert "Ending both runs" in result.stdout
    left = [psutil.Process(pid) for pid in set(psutil.pids()) - began if psutil.pid_exists(pid)]
    assert not [each for each in left if any("main_ppo.py" in word for word in each.cmdline())]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_signals_end_both_runs(training, tmp_path, number):
    arguments = ["--a", training("stays in step 1"), "--b", training("stays in step 1"), "--dir", "d", "--steps", "1"]
    # Tests that were started with nohup ignore SIGHUP, and so would what they start.
    unignored = "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)"
    program = f"{unignored}; import sys; from _verl_overlay.command import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "run", *arguments],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    progress = tmp_path / "d" / "scenario_1"
    deadline_s = time.monotonic() + 60
    while len(list(progress.rglob("progress.json"))) < 2:
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    runs = [each.pid for each in psutil.Process(process.pid).children()]
    assert len(runs) == 2
    process.send_signal(number)
    told, _ = process.communicate(timeout=180)
    assert process.returncode == 128 + number
    assert "Interrupted. Both runs have ended" in told
    assert not [pid for pid in runs if psutil.pid_exists(pid)]
    assert sorted('"interrupted"' in path.read_text() for path in progress.rglob("end.json"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--b", TRAIN], "Missing option '--a'"),
        (["--a", TRAIN], "Missing option '--b'"),
        (["--a", TRAIN, "--b", TRAIN, "--scenarios", "3"], "'3'; expected 1, 2, or 1,2."),
        (["--a", TRAIN, "--b", TRAIN, "--scenarios", "1,1"], "'1,1'; expected"),
        (["--a", TRAIN, "--b", TRAIN, "--scenarios", ""], "''; expected"),
        (["--a", TRAIN, "--b", TRAIN, "--steps", "0"], "0 is not in the range x>=1"),
        (["--a", TRAIN, "--b", TRAIN, "--a-env", "1X=2"], "'1X=2'; expected KEY=VALUE"),
        (["--a", TRAIN, "--b", f"{TRAIN} trainer.share_data=ckpt"], "--b already says trainer.share_data=ckpt"),
        (["--a", f"{TRAIN} | tee x", "--b", TRAIN], "would not reach the training"),
        (["--a", "pyhton x", "--b", TRAIN], "--a: command not found: pyhton"),
        (["--a", "true x.port=81", "--b", "true y.port=81"], "both runs would use port 81"),
        (["--a", TRAIN, "--b", TRAIN, "--two-sites"], "--two-sites needs --dir"),
        (["--a", "true", "--b", "true", "--dir", "."], "--dir"),
        (["--a", "true", "--b", "true", "--dir", "new", "--out", "."], "--out"),
        (["--a", "true", "--b", "true", "--dir", "theirs/x"], "theirs"),
    ],
)
def test_wrong_usage_starts_nothing(call, tmp_path, monkeypatch, arguments, said):
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    (tmp_path / "theirs").write_text("a file")
    result = call(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]


def test_two_sites_starts_nothing_and_prints_what_can_be_typed(call, tmp_path):
    result = call(
        *("--a", f"{TRAIN} a='x y'", "--b", "bash run.sh", "--a-env", "KEY=it's", "--control", "--steps", 4),
        *("--two-sites", "--dir", "/mnt/my share"),
    )
    assert result.exit_code == 0
    assert list(tmp_path.iterdir()) == []
    blocks = [line for line in result.stdout.replace("\\\n", "").splitlines() if line and not line.startswith("#")]
    control = [shlex.split(line) for line in blocks[:2]]
    assert [words[:3] for words in control] == [
        ["bash", "run.sh", "trainer.share_data=ckpt"],
        ["bash", "run.sh", "trainer.share_data=rollout"],
    ]
    assert blocks[2] == "export KEY='it'\"'\"'s'"
    first = shlex.split(blocks[3])
    assert first[3:6] == ["a=x y", "trainer.share_data=ckpt", "trainer.share_data_dir='/mnt/my share/scenario_1'"]
    assert "trainer.total_training_steps=4" in first
    assert shlex.split(blocks[-1]) == [
        *("verl-crosscheck", "report", "/mnt/my share/scenario_1", "/mnt/my share/scenario_2"),
        *("--control", "/mnt/my share/control", "--output", "/mnt/my share/report.html", "--lang", "en"),
    ]
