# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A run as real processes: what it is given, and that none of it stays."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
import pytest

from verl.crosscheck.clock import SystemClock
from verl.crosscheck.pair.commands import parse
from verl.crosscheck.pair.plan import PairRequest, pairs
from verl.crosscheck.pair.process import MARK, end_all, environment, start

CLOCK = SystemClock()


@pytest.fixture
def started(tmp_path):
    """Starts run A of scenario 1 with a command; whatever a test leaves of it is ended."""
    with ExitStack() as stack:

        def started(text, env=None, inherited=None):
            command = parse(text, "--a")
            side = pairs(PairRequest(command, command, env or {}, {}, (1,), 2, tmp_path, tmp_path / "o t"))[0].sides[0]
            run = start(side, inherited)
            stack.callback(run.close, CLOCK, 0.0)
            return run

        yield started


def python(tmp_path, code, name="program.py"):
    path = tmp_path / name
    path.write_text(code)
    return shlex.join([sys.executable, "-S", str(path)])


def until(condition):
    deadline_s = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)


def text_of(run):
    return run.side.log.read_text()


def gone(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


TELL = "import json, os, sys; print(json.dumps([sys.argv[1:], dict(os.environ), os.getcwd(), os.getsid(0)]))"


def test_what_a_run_is_given(started, tmp_path):
    inherited = {**os.environ, "RAY_ADDRESS": "other:6379", "KEPT": "yes"}
    run = started(f"{python(tmp_path, TELL)} 'own word'", {"OWN": "x y"}, inherited)
    until(lambda: run.poll() is not None)
    words, env, cwd, session = json.loads(text_of(run))
    values = dict(each.partition("=")[::2] for each in words)
    ray_dir = Path(values["++ray_kwargs.ray_init._temp_dir"].strip("'"))
    assert words[0] == "own word"
    assert words[1] == "trainer.share_data=ckpt"
    assert values["hydra.run.dir"] == f"'{tmp_path}/o t/runs/scenario_1/a/hydra'"
    assert values["trainer.share_data_dir"].strip("'") == str(tmp_path / "scenario_1")
    assert ray_dir.is_dir()
    assert len(str(ray_dir)) < 20
    assert (env["OWN"], env["KEPT"], "RAY_ADDRESS" in env) == ("x y", "yes", False)
    assert env["TENSORBOARD_DIR"].startswith(str(run.side.folder))
    assert (cwd, session) == (str(Path.cwd()), run.pid)
    kept = run.side.folder / "command.sh"
    assert kept.stat().st_mode & 0o777 == 0o600
    again = subprocess.run(["sh", str(kept)], capture_output=True, text=True, check=True, env=inherited).stdout
    assert json.loads(again)[0] == words
    assert json.loads(again)[1]["OWN"] == "x y"
    run.close(CLOCK, 1.0)
    assert not ray_dir.exists()


def test_a_cluster_that_is_named_for_a_run_is_joined(started, tmp_path):
    run = started(python(tmp_path, TELL), {"RAY_ADDRESS": "mine:6379"})
    until(lambda: run.poll() is not None)
    words, env, _, _ = json.loads(text_of(run))
    assert env["RAY_ADDRESS"] == "mine:6379"
    assert not any("_temp_dir" in word for word in words)


def test_a_variable_of_a_side_wins(started, tmp_path):
    run = started(python(tmp_path, TELL), {"TENSORBOARD_DIR": "/tb"})
    assert environment(run.side, {"A": "1"}, "m") == {
        "A": "1",
        "PYTHONUNBUFFERED": "1",
        "VERL_FILE_LOGGER_PATH": str(run.side.folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": "/tb",
        MARK: "m",
    }


ORPHAN = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"], start_new_session=True)
print("child", child.pid, flush=True)
os._exit(0)
"""


def test_what_lost_its_parent_is_found_and_nothing_else(started, tmp_path):
    stranger = subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    try:
        run = started(python(tmp_path, ORPHAN))
        until(lambda: run.poll() is not None)
        child = int(text_of(run).split()[-1])
        assert not gone(child)
        run.close(CLOCK, 4.0)
        assert gone(child)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_the_training_is_asked_to_end_and_not_the_script_around_it(started, training, tmp_path):
    (tmp_path / "run.sh").write_text(f'echo before\n{training("stays in step 1")} "$@"\necho after $?\n')
    (tmp_path / "scenario_1").mkdir(mode=0o700)
    run = started(f"bash {tmp_path / 'run.sh'}")
    until(lambda: "starting ckpt" in text_of(run))
    until(lambda: list(tmp_path.rglob("progress.json")))
    run.ask_to_end()
    until(lambda: run.poll() is not None)
    assert "KeyboardInterrupt" in text_of(run)
    assert "after 1" in text_of(run)
    assert '"interrupted"' in next(tmp_path.rglob("end.json")).read_text()


def test_what_does_not_listen_is_killed(started, training):
    run = started(training("ignores signals"))
    until(lambda: "deaf" in text_of(run))
    end_all([run], CLOCK, 0.4)
    assert run.poll() == -signal.SIGKILL
    assert gone(run.pid)


def test_hurry(started, training):
    run = started(training("ignores signals"))
    until(lambda: "deaf" in text_of(run))
    began_s = time.monotonic()
    end_all([run], CLOCK, 1000.0, lambda: True)
    assert run.poll() == -signal.SIGKILL
    assert time.monotonic() - began_s < 100


def test_a_training_that_the_overrides_did_not_reach(started, training, tmp_path):
    good, deaf = tmp_path / "good.sh", tmp_path / "deaf.sh"
    good.write_text(f'{training("hangs")} "$@"\n:\n')
    deaf.write_text(
        f"{training('hangs')} trainer.share_data=no trainer.share_data_dir=x trainer.total_training_steps=1\n:\n"
    )
    runs = [started(f"bash {script}") for script in (good, deaf)]
    until(lambda: all("starting" in text_of(run) for run in runs))
    assert runs[0].without_overrides() == ""
    assert "main_ppo.py" in runs[1].without_overrides()
    assert "trainer.share_data=no" in runs[1].without_overrides()


def test_a_program_that_is_not_there(started):
    run = started("no-such-program x")
    until(lambda: run.poll() is not None)
    assert run.poll() == 127
    assert "command not found" in text_of(run)
