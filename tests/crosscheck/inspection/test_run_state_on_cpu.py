# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether a run of another host lives, by its files."""

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.exchange.session.liveness import beat
from verl.crosscheck.inspection import run_state, status
from verl.crosscheck.inspection.run_state import RunProbe, RunState


def look(pair, clock=None, wait_s=0.0, wall_s=None):
    clock = clock or ManualClock()
    probe = RunProbe(clock, wall_s) if wall_s else RunProbe(clock)
    return status.Observer(pair.root, clock, wait_s, probe).look()


def states(found):
    return [run.state for run in found.runs]


def test_fresh_files_of_another_host_need_no_second_look(pair):
    pair.start("ckpt", "elsewhere")
    clock = ManualClock()
    found = look(pair, clock, wait_s=60.0)
    assert (states(found)[0], found.runs[0].evidence) == (RunState.STARTING, run_state.StateSource.FILE_TIMES)
    assert clock.sleeps_s == []


def test_old_files_are_watched_and_a_heartbeat_settles_it(pair):
    a = pair.start("ckpt", "elsewhere")
    a.report("generating", global_step=1)
    pair.age(a, 3600)
    clock = ManualClock({4.0: lambda: beat(a.slot.names.heartbeat, 7)})
    found = look(pair, clock, wait_s=6.0)
    assert (states(found)[0], found.runs[0].evidence) == (RunState.RUNNING, run_state.StateSource.WATCHED)
    assert found.runs[0].last_sign_s <= 0.25
    assert not found.attention
    assert 4.0 <= clock.monotonic_s() <= 4.5


def test_old_files_that_stay_as_they_are_mean_silence(pair):
    a = pair.start("ckpt", "elsewhere", trainer={"share_data_silence_s": 100.0})
    pair.age(a, 120)
    clock = ManualClock()
    found = look(pair, clock, wait_s=6.0)
    assert states(found)[0] is RunState.SILENT
    assert found.attention
    assert 6.0 <= clock.monotonic_s() <= 6.5
    assert "has been silent for 120 s" in found.summary or "has been silent for 2 min" in found.summary


def test_two_runs_in_doubt_are_watched_at_the_same_time(pair):
    a, b = pair.start("ckpt", "elsewhere"), pair.start("rollout", "elsewhere")
    pair.age(a, 3600), pair.age(b, 3600)
    clock = ManualClock({2.0: lambda: beat(a.slot.names.heartbeat, 7), 4.0: lambda: beat(b.slot.names.heartbeat, 7)})
    found = look(pair, clock, wait_s=6.0)
    assert states(found) == [RunState.STARTING, RunState.STARTING]
    assert 4.0 <= clock.monotonic_s() <= 4.5


def test_quiet_for_less_than_the_other_run_would_wait_is_not_silence(pair):
    a = pair.start("ckpt", "elsewhere")
    pair.age(a, 120)
    assert states(look(pair))[0] is RunState.STARTING


def test_file_times_ahead_of_this_host_are_called_so(pair, call):
    a = pair.start("ckpt", "elsewhere")
    pair.age(a, -900)
    clock = ManualClock()
    found = look(pair, clock, wait_s=2.0)
    assert found.runs[0].last_sign_s is None
    assert clock.monotonic_s() >= 2.0  # it looked whether anything moves
    assert "ahead of this host's clock" in call("status", pair.root, "--wait", 0, columns=120).stdout
