# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Waiting has an end, costs little, and notices quickly. No test here sleeps."""

import shutil

import pytest

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import DirectoryError, WaitTimeoutError
from verl.crosscheck.exchange.layout import MANIFEST
from verl.crosscheck.exchange.session.wait import LONGEST_POLL_S, REPORT_EVERY_S, Wait


def make_wait(clock, timeout_s=100.0):
    reports = []
    return Wait(timeout_s, reports.append, clock), reports


def test_what_is_there_is_not_waited_for(tmp_path):
    (tmp_path / "rollout_0").touch()
    clock = ManualClock()
    wait, _ = make_wait(clock)
    assert wait.until_listed(tmp_path / "rollout_0") == 0.0
    assert clock.sleeps_s == []


def test_only_what_a_run_makes_is_waited_for(tmp_path):
    wait, _ = make_wait(ManualClock())
    with pytest.raises(ValueError, match="no name of a rollout or a checkpoint"):
        wait.until_listed(tmp_path / "portable.json")


@pytest.mark.parametrize("arrival_s", [0.01, 0.5, 5.0, 80.0])
def test_it_notices_within_one_percent_of_the_wait(tmp_path, arrival_s):
    wait, _ = make_wait(ManualClock({arrival_s: (tmp_path / "rollout_0").touch}))
    waited_s = wait.until_listed(tmp_path / "rollout_0")
    assert arrival_s <= waited_s <= arrival_s * 1.0101 + 0.002


def test_it_looks_at_most_once_a_second_in_the_long_run(tmp_path):
    clock = ManualClock({1000.0: (tmp_path / "rollout_0").touch})
    wait, _ = make_wait(clock, timeout_s=5000.0)
    wait.until_listed(tmp_path / "rollout_0")
    assert max(clock.sleeps_s) == LONGEST_POLL_S
    assert len(clock.sleeps_s) < 2000


def test_the_deadline_ends_it_and_says_what_to_check(tmp_path):
    (tmp_path / "rollout_0").touch()
    clock = ManualClock()
    wait, _ = make_wait(clock, timeout_s=7.0)
    with pytest.raises(WaitTimeoutError) as caught:
        wait.until_listed(tmp_path / "rollout_1")
    message = str(caught.value)
    assert clock.monotonic_s() == pytest.approx(7.0, abs=0.1)
    for part in ("waited 7 s", "rollout_1", str(tmp_path), "newest there is rollout_0", "trainer.share_data=ckpt"):
        assert part in message
    assert isinstance(caught.value, TimeoutError)


def test_progress_of_the_other_run_extends_the_deadline(tmp_path):
    (tmp_path / ".staging-ckpt_0-1").mkdir()
    shard = tmp_path / ".staging-ckpt_0-1" / "model.pt"
    events = {float(s): (lambda s=s: shard.write_bytes(b"x" * s)) for s in range(5, 60, 5)}
    wait, _ = make_wait(ManualClock({**events, 62.0: (tmp_path / "ckpt_0").touch}), timeout_s=8.0)
    assert wait.until_listed(tmp_path / "ckpt_0") >= 62.0


def test_what_this_run_writes_meanwhile_is_no_progress_of_the_other(tmp_path):
    events = {float(s): (tmp_path / f"rollout_{s}").touch for s in range(5, 60, 5)}
    clock = ManualClock({**events, 7.0: (tmp_path / ".staging-rollout_9-1").touch})
    wait, _ = make_wait(clock, timeout_s=8.0)
    with pytest.raises(WaitTimeoutError, match="nothing changed there for the last 8 s"):
        wait.until_listed(tmp_path / "ckpt_0")


def test_no_progress_after_some_is_a_timeout(tmp_path):
    clock = ManualClock({5.0: (tmp_path / "rollout_5").touch})
    wait, _ = make_wait(clock, timeout_s=10.0)
    with pytest.raises(WaitTimeoutError, match="nothing changed there for the last 10 s"):
        wait.until_listed(tmp_path / "rollout_0")
    assert clock.monotonic_s() == pytest.approx(15.0, abs=0.3)


def test_it_reports_once_in_a_while(tmp_path):
    wait, reports = make_wait(ManualClock({95.0: (tmp_path / "ckpt_0").touch}))
    wait.until_listed(tmp_path / "ckpt_0")
    assert [round(r.waited_s / REPORT_EVERY_S) for r in reports] == [1, 2, 3]
    assert reports[0].path == tmp_path / "ckpt_0"


def test_a_folder_is_waited_for_until_it_is_complete(tmp_path):
    ckpt = tmp_path / "ckpt_0"
    ckpt.mkdir()
    wait, _ = make_wait(ManualClock({3.0: (ckpt / MANIFEST).touch}))
    assert wait.until_listed(ckpt, marker=MANIFEST) == pytest.approx(3.0, rel=0.02)


def test_a_folder_never_completed_says_so(tmp_path):
    (tmp_path / "ckpt_0").mkdir()
    wait, _ = make_wait(ManualClock(), timeout_s=3.0)
    with pytest.raises(WaitTimeoutError, match="ckpt_0 is there and not complete, since it has no manifest.json"):
        wait.until_listed(tmp_path / "ckpt_0", marker=MANIFEST)


@pytest.mark.parametrize("make", [lambda p: p.symlink_to("nowhere"), lambda p: p.touch()])
def test_what_is_no_folder_is_not_complete(tmp_path, make):
    make(tmp_path / "ckpt_0")
    wait, _ = make_wait(ManualClock(), timeout_s=3.0)
    with pytest.raises(WaitTimeoutError, match="ckpt_0 is there and not complete"):
        wait.until_listed(tmp_path / "ckpt_0", marker=MANIFEST)


def test_a_removed_directory_ends_it(tmp_path):
    root = tmp_path / "share"
    root.mkdir()
    wait, _ = make_wait(ManualClock({2.0: lambda: shutil.rmtree(root)}))
    with pytest.raises(DirectoryError, match="is gone"):
        wait.until_listed(root / "rollout_0")
