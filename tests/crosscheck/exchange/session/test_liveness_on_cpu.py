# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The pulse of a run, and whether a process is still the one that was meant."""

import json
import os
import subprocess
import sys
import threading

import pytest

from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.session import liveness
from verl.crosscheck.exchange.session.liveness import Heartbeat, beat


class Counting(filesystem.Filesystem):
    """Notes what is written, and fails as told."""

    def __init__(self, fail_first=0):
        self.fail_left, self.written = fail_first, []
        self.enough = threading.Event()

    def overwrite(self, path, content):
        if self.fail_left:
            self.fail_left -= 1
            raise OSError(5, "Input/output error")
        super().overwrite(path, content)
        self.written.append(content)
        if len(self.written) == 3:
            self.enough.set()


def pulses():
    return {thread for thread in threading.enumerate() if thread.name == "crosscheck-heartbeat"}


def test_it_beats_in_place_until_it_is_stopped(tmp_path):
    path = tmp_path / "heartbeat"
    path.write_bytes(b"%020d\n" % 0)
    inode = path.stat().st_ino
    disk = Counting(fail_first=2)  # which ends nothing
    before = pulses()
    with filesystem.replaced(disk), Heartbeat(path, interval_s=0.001):
        assert disk.enough.wait(30)
    counts = [int(content) for content in disk.written]
    assert counts == sorted(set(counts))
    assert path.stat().st_ino == inode
    assert int(path.read_bytes()) == counts[-1]
    assert len(path.read_bytes()) == 21
    assert pulses() <= before


def test_stopping_what_never_started_is_fine(tmp_path):
    Heartbeat(tmp_path / "none").stop()


def test_a_beat_makes_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        beat(tmp_path / "gone", 1)
    assert list(tmp_path.iterdir()) == []


def test_this_process_runs_and_one_that_ended_does_not():
    assert liveness.is_running(liveness.this_process()) is True
    script = (
        "import json; from verl.crosscheck.exchange.session import liveness; print(json.dumps(liveness.this_process()))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    other = json.loads(done.stdout.splitlines()[-1])
    assert other["pid"] != os.getpid()
    assert liveness.is_running(other) is False


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ({"start": 1}, False),  # the pid was given to another process
        ({"pid": 2**22 + 1}, False),
        ({"pid": "../../etc"}, False),
        ({"boot": "another"}, None),
        ({"namespace": "pid:[1]"}, None),
        ({"start": None}, None),
        ({"boot": None}, None),
    ],
)
def test_what_this_host_cannot_know_it_does_not_say(change, answer):
    assert liveness.is_running({**liveness.this_process(), **change}) is answer


def test_a_zombie_does_not_run():
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert liveness._start(child.pid) is None
    child.wait()
