# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""When a pair must be ended, and what is said of its end: no processes, and time that passes by sleeping alone."""

from dataclasses import replace
from pathlib import Path

import pytest

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.inspection.directory_contents import DirectoryContents
from verl.crosscheck.inspection.run_state import RunState, WatchedRun
from verl.crosscheck.inspection.status import Status
from verl.crosscheck.pair import watch
from verl.crosscheck.pair.commands import parse
from verl.crosscheck.pair.plan import PairRequest, pairs
from verl.crosscheck.pair.process import error_line, last_lines, last_words
from verl.crosscheck.pair.watch import TimeLimits, follow

STEPS = 2
LIMITS = TimeLimits(grace_s=60, stall_s=1000, total_s=None)


class FakeRun:
    """A run whose state at each moment is told beforehand: it goes on as long as `states` has no later one."""

    def __init__(self, side, clock, states, unreached="", log=lambda: 0):
        self.side, self._clock, self._states, self._unreached, self._log = side, clock, states, unreached, log

    def now(self):
        now_s = self._clock.monotonic_s()
        return [state for moment_s, state in sorted(self._states.items()) if moment_s <= now_s][-1]

    def poll(self):
        return self.now()[0]

    def run(self):
        return replace(self.now()[1], mode=self.side.mode)

    def log_bytes(self):
        return self._log()

    def without_overrides(self):
        return self._unreached


NOTHING = WatchedRun("")


def doing(phase, step=1, **more):
    return WatchedRun("", RunState.RUNNING, phase=phase, global_step=step, **more)


def ended(state, step=STEPS, **more):
    return WatchedRun("", state, phase="training", global_step=step, **more)


WELL = ended(RunState.FINISHED)


@pytest.fixture(autouse=True)
def looks_as_seldom_as_always(monkeypatch):
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 1.0)


@pytest.fixture
def watched(tmp_path):
    """Follows two runs with the given states by second, each an exit status and a run; returns the outcome."""

    def watched(a, b, limits=LIMITS, a_more=None, b_more=None, log="", shown=lambda sight: None):
        command = parse("bash run.sh", "--a"), parse("python -m verl.trainer.main_ppo", "--b")
        pair = pairs(PairRequest(*command, {}, {}, (1,), STEPS, tmp_path, tmp_path))[0]
        for side in pair.sides:
            side.folder.mkdir(parents=True, exist_ok=True)
            side.log.write_text(log)
        clock = ManualClock()
        runs = [
            FakeRun(side, clock, states, **(more or {}))
            for side, states, more in zip(pair.sides, (a, b), (a_more, b_more), strict=True)
        ]

        def look():
            return Status(str(tmp_path), "", False, None, tuple(run.run() for run in runs), {}, None, no_contents())

        return follow(pair, runs, look, limits, clock, shown)

    return watched


def no_contents():
    return DirectoryContents(0, 0, None, None, (), (), (), (), (), None, None)


def test_both_finish(watched):
    taken = replace(WELL, taken={"ckpt": 2})
    given = replace(WELL, published={"ckpt": 2})
    outcome = watched({0: (None, doing("generating")), 7: (0, taken)}, {0: (None, NOTHING), 9: (0, given)})
    assert (outcome.ok, outcome.words, outcome.elapsed_s) == (True, "both runs finished 2 steps", 9.0)
    assert outcome.compared
    assert outcome.cause is None


def test_no_update_was_compared(watched):
    assert not watched({0: (0, replace(WELL, taken={"ckpt": 0}))}, {0: (0, WELL)}).compared


def test_the_other_run_has_time_to_end_by_itself(watched):
    failed = ended(RunState.FAILED, 1, error="RuntimeError", message="out of memory")
    follows = ended(RunState.FAILED, 1, error="PeerFailedError", message="the other run failed")
    a = {0: (None, doing("training")), 5: (1, failed)}
    b = {0: (None, doing("waiting for rollout_1")), 64: (1, follows)}
    for pair in ((a, b), (b, a)):
        outcome = watched(*pair)
        assert outcome.elapsed_s == 64.0
        assert outcome.error == "RuntimeError: out of memory"
        assert outcome.words.endswith("ended with status 1, while training in step 1")
        assert not outcome.ok
    assert outcome.cause.label == "B"


def test_and_no_more_than_that(watched):
    a = {0: (None, doing("training")), 5: (-9, ended(RunState.DIED, 1))}
    outcome = watched(a, {0: (None, doing("waiting for rollout_1"))})
    assert outcome.elapsed_s == 65.0
    assert outcome.words == "A was killed by signal 9, while training in step 1; B was ended 60 s later"


def test_a_run_that_failed_and_whose_process_stays_is_the_cause(watched):
    failed = ended(RunState.FAILED, 1, error="RuntimeError", message="out of memory")
    follows = ended(RunState.FAILED, 1, error="PeerFailedError", message="the other run failed")
    outcome = watched({0: (None, failed)}, {0: (None, doing("training")), 3: (1, follows)})
    assert (outcome.cause.label, outcome.error) == ("A", "RuntimeError: out of memory")
    assert outcome.words == "A failed, while training in step 1; A was ended 60 s later"


def test_a_command_that_fails_before_it_takes_part(watched):
    log = "$ bash run.sh\n(TaskRunner pid=7) \x1b[31mValueError: no such model\x1b[0m\ncleaning up\n"
    a = {0: (None, NOTHING), 2: (3, NOTHING)}
    outcome = watched(a, {0: (None, doing("starting"))}, log=log)
    assert (outcome.words, outcome.elapsed_s) == ("A ended with status 3 before it took part", 2.0)
    assert outcome.error == "ValueError: no such model"
    assert outcome.tail[-1] == "cleaning up"


def test_a_command_that_ends_well_and_takes_no_part(watched):
    outcome = watched({0: (None, NOTHING), 2: (0, NOTHING)}, {0: (None, doing("waiting for rollout_0"))})
    assert outcome.elapsed_s == 2.0
    assert 'A\'s command ended without taking part: the training command in run.sh must end in "$@"' in outcome.words
    outcome = watched({0: (0, WELL)}, {0: (0, NOTHING)})
    assert "B's command ended without taking part: --b must hand the overrides at its end on" in outcome.words


def test_a_training_without_the_overrides_is_not_waited_for(watched):
    outcome = watched(
        {0: (None, NOTHING)},
        {0: (None, doing("waiting for rollout_0"))},
        a_more={"unreached": "python -m verl.trainer.main_ppo x=1"},
    )
    assert outcome.elapsed_s == 0.0
    assert "started a training without the overrides (python -m verl.trainer.main_ppo x=1)" in outcome.words
    assert outcome.cause.label == "A"


def test_a_run_that_takes_part_has_them(watched):
    more = {"unreached": "python -m verl.trainer.main_ppo"}
    assert watched({0: (None, doing("training")), 2: (0, WELL)}, {0: (0, WELL)}, a_more=more).ok


def test_nothing_happens(watched):
    a, b = {0: (None, doing("x")), 100: (None, doing("y"))}, {0: (None, doing("z"))}
    outcome = watched(a, b)
    assert outcome.elapsed_s == 1100.0
    assert outcome.words == "nothing happened in either run for 16 min (--stall-limit)"


def test_a_log_that_grows_is_something(watched):
    sizes = iter([0] * 900 + [1] * 10_000)
    outcome = watched({0: (None, NOTHING)}, {0: (None, NOTHING)}, a_more={"log": lambda: next(sizes)})
    assert outcome.elapsed_s == 1900.0


def test_the_time_limit(watched):
    limits = replace(LIMITS, total_s=30)
    outcome = watched({0: (None, doing("x"))}, {0: (0, WELL)}, limits)
    assert (outcome.elapsed_s, outcome.words) == (30.0, "not done after 30 s (--time-limit)")
    assert watched({0: (None, doing("x")), 30: (0, WELL)}, {0: (0, WELL)}, limits).ok  # done in time


def test_fewer_steps_than_asked_for(watched):
    outcome = watched({0: (0, WELL)}, {0: (0, ended(RunState.FINISHED, 1))})
    assert outcome.words == "B ended after 1 of 2 steps and reported no error"
    resumed = replace(ended(RunState.FINISHED, 122), after_step=120)
    assert watched({0: (0, resumed)}, {0: (0, resumed)}).ok


def test_an_end_that_was_not_told(watched):
    outcome = watched({0: (0, ended(RunState.DIED))}, {0: (0, WELL)})
    assert outcome.words == "A ended with status 0, and its run died"


def test_what_show_raises_ends_the_following(watched):
    def interrupt(sight):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        watched({0: (None, NOTHING)}, {0: (None, NOTHING)}, shown=interrupt)


def test_the_end_of_a_log(tmp_path):
    log = tmp_path / "run.log"
    assert (last_lines(log, 3), error_line(log), last_words(log)) == ([], "", "")
    log.write_bytes(
        b"x" * 1_000_000 + b"\nTraceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory\n"
        b"\x1b[36m(TaskRunner pid=9, ip=1.2.3.4)\x1b[0m  10%|#\r 20%|##\r\n\n" + b"\xff" * 400 + b"\n"
    )
    assert error_line(log) == "torch.OutOfMemoryError: CUDA out of memory"
    assert last_lines(log, 2)[0] == " 20%|##"
    assert len(last_lines(log, 1)[0]) == 300
    log.write_text("(TaskRunner pid=9) INFO\tloading\n")
    assert last_words(log) == "INFO loading"
    log.write_text("bash: line 1: pyhton: command not found\n")
    assert error_line(log) == "bash: line 1: pyhton: command not found"
    log.write_text("An Error of mine is not one\n")
    assert error_line(log) == ""
    assert Path(log).exists()
