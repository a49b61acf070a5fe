# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Runs that start, die, end, come back and go on in any order: who may write, and what belongs to whom."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import ResumeError, SessionError
from verl.crosscheck.exchange import artefacts, layout
from verl.crosscheck.exchange.artefacts import lost, removable
from verl.crosscheck.exchange.layout import OTHER, WRITES, Layout
from verl.crosscheck.exchange.publish import publish_file, publish_folder
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.exchange.session.claim import current_session
from verl.crosscheck.exchange.session.liveness import beat
from verl.crosscheck.exchange.session.own_run import attach, open_run
from verl.crosscheck.exchange.session.run_files import Card, Start
from verl.crosscheck.identity import CallKind
from verl.crosscheck.run.indexing import CallIndex, CallKey, index_of_call
from verl.crosscheck.settings import NEVER_DELETED

SILENCE_S = 180.0
MODES = st.sampled_from(["ckpt", "rollout"])


class World(ManualClock):
    """Time, in which the runs that live on other hosts beat while somebody waits."""

    def __init__(self):
        super().__init__()
        self.beating = {}
        self._beats = 0

    def sleep(self, duration_s):
        super().sleep(duration_s)
        self._beats += 1
        for run in self.beating.values():
            beat(run.slot.names.heartbeat, self._beats)


def card(mode, run_id, start):
    process = {"pid": 1, "start": 1, "boot": "of another host", "namespace": "another"}
    return Card(run_id, "", mode, "host", process, "now", {}, "cpu", 1, "fsdp", start, 0, {})


def publish(run, index):
    """What the trainer's side does: look whether the place is still this run's, and publish."""
    run.slot.require_current()
    kind, about = WRITES[run.slot.mode], {"index": index, **run.slot.stamp}
    path = Layout(run.slot.root).artefact(kind, index)
    if kind == "ckpt":
        publish_folder(path, lambda stage: (stage / "model.pt").write_bytes(b"x"), about)
    else:
        publish_file(path, lambda file: write_record(file, Record(about=about)))
    run.report_published(kind, index, "training")


class Sessions(RuleBasedStateMachine):
    """Runs on hosts of their own: only what they leave in the directory tells of them."""

    @initialize()
    def begin(self):
        self.root = Path(tempfile.mkdtemp())
        self.root.chmod(0o700)
        self.clock = World()
        self.live = {}
        """The run that lives, by mode."""
        self.silent = []
        """Runs that were lost without a word, and may come back."""
        self.marks = {"ckpt": [], "rollout": []}
        """Sessions that an own checkpoint of a mode was saved in, as Start of a resumed run."""
        self.made = {}
        """Run that published an artefact, and the session, by (session id, kind, index)."""
        self.started = 0

    def teardown(self):
        if hasattr(self, "root"):
            shutil.rmtree(self.root)

    def _open(self, mode, start):
        self.started += 1
        run = open_run(self.root, card(mode, f"run {self.started}", start), silence_s=SILENCE_S, clock=self.clock)
        self.live[mode] = self.clock.beating[mode] = run
        return run

    # ------------------------------------------------------------ what happens

    @rule(mode=MODES)
    def starts_anew(self, mode):
        before, other = self.live.get(mode), self.live.get(OTHER[mode])
        try:
            run = self._open(mode, Start())
        except SessionError:
            assert before is not None, "refused though no run of its mode lives"
            return
        except ResumeError:
            assert other is not None
            assert other.slot.session.base_step != 0
            return
        assert before is None, "took the place of a run that lives"
        assert run.slot.session.base_step == 0
        assert other is None or run.slot.session.id == other.slot.session.id

    @rule(mode=MODES, data=st.data())
    def is_resumed(self, mode, data):
        if not self.marks[mode]:
            return
        start = data.draw(st.sampled_from(self.marks[mode]))
        before, other, current = self.live.get(mode), self.live.get(OTHER[mode]), current_session(self.root)
        try:
            run = self._open(mode, start)
        except SessionError:
            assert before is not None
            return
        except ResumeError:
            assert other is not None
            assert other.slot.session.id != start.session
            assert other.slot.session.base_step != start.global_step
            return
        assert before is None
        if current is not None and current.id == start.session:
            assert run.slot.session.id == start.session
            assert run.start == start
        else:
            assert run.start == Start(start.global_step)  # as in a new session, whatever its mark says
            assert run.slot.session.base_step == start.global_step

    @precondition(lambda self: self.live)
    @rule(mode=MODES, failed=st.booleans())
    def ends(self, mode, failed):
        if mode in self.live:
            run = self.live.pop(mode)
            del self.clock.beating[mode]
            run.end(RuntimeError("boom") if failed else None)

    @precondition(lambda self: self.live)
    @rule(mode=MODES)
    def dies_silently(self, mode):
        if mode in self.live:
            self.silent.append(self.live.pop(mode))
            del self.clock.beating[mode]

    @precondition(lambda self: self.silent)
    @rule(data=st.data())
    def comes_back(self, data):
        """A run that was stopped goes on: if nobody took its place it is as before, else it may write nothing."""
        run = data.draw(st.sampled_from(self.silent))
        mode, current = run.slot.mode, current_session(self.root)
        newest = run.slot.session.newest(mode).folder == run.slot.names.folder
        before = self._files()
        if newest and current.id == run.slot.session.id:
            run.slot.require_current()
            self.silent.remove(run)
            self.live[mode] = self.clock.beating[mode] = run
            return
        with pytest.raises(SessionError, match="It wrote nothing since"):
            publish(run, run.progress.published[WRITES[mode]])
        assert self._files() == before

    @precondition(lambda self: self.live)
    @rule(mode=MODES)
    def publishes(self, mode):
        if mode not in self.live:
            return
        run, kind = self.live[mode], WRITES[mode]
        index = run.progress.published[kind]
        path = Layout(self.root).artefact(kind, index)
        if path.exists():  # made by an earlier run of the session: gone on with, not made again
            assert artefacts.session_of(path) == run.slot.session.id
            run.report_published(kind, index, "training")
            return
        publish(run, index)
        self.made[run.slot.session.id, kind, index] = run.card.run_id

    @precondition(lambda self: self.live)
    @rule(mode=MODES)
    def saves_an_own_checkpoint(self, mode):
        if mode not in self.live:
            return
        run = self.live[mode]
        done = run.progress.published | run.progress.taken
        step = run.slot.session.base_step + done["ckpt"]
        if step:
            self.marks[mode].append(Start(step, done["rollout"], done["ckpt"], run.slot.session.id))

    @precondition(lambda self: self.live)
    @rule(mode=MODES)
    def takes(self, mode):
        """A reader accepts what its own session made, and nothing else."""
        if mode not in self.live:
            return
        run, kind = self.live[mode], WRITES[OTHER[mode]]
        index = run.progress.taken[kind]
        path = Layout(self.root).artefact(kind, index)
        ours = path.exists() and artefacts.session_of(path) == run.slot.session.id
        assert ours == ((run.slot.session.id, kind, index) in self.made and path.exists())
        if ours:
            run.report_taken(kind, index, "training")

    @precondition(lambda self: self.live)
    @rule(mode=MODES)
    def another_process_of_it_attaches(self, mode):
        if mode in self.live:
            run = self.live[mode]
            other = attach(run.slot.names.folder)
            assert (other.slot, other.card, other.progress) == (run.slot, run.card, run.progress)

    # ------------------------------------------------------------ what must always be

    def _files(self):
        return {
            path: path.stat().st_mtime_ns
            for path in self.root.rglob("*")
            if path.is_file() and path.name not in ("heartbeat", "progress.json")
        }

    @invariant()
    def whoever_lives_has_its_place(self):
        for mode, run in getattr(self, "live", {}).items():
            current = current_session(self.root)
            if run.slot.session.id == current.id:
                run.slot.require_current()
                assert run.slot.session.newest(mode).folder == run.slot.names.folder
            else:
                with pytest.raises(SessionError):
                    run.slot.require_current()

    @invariant()
    def two_that_live_are_of_one_session(self):
        if len(getattr(self, "live", {})) == 2:
            assert len({run.slot.session.id for run in self.live.values()}) == 1

    @invariant()
    def a_run_that_has_its_place_finds_only_its_sessions_artefacts_of_its_kind(self):
        for mode, run in getattr(self, "live", {}).items():
            kind = WRITES[mode]
            for index in layout.artefacts([path.name for path in self.root.iterdir()], kind):
                assert artefacts.session_of(Layout(self.root).artefact(kind, index)) == run.slot.session.id

    @invariant()
    def nothing_is_lost(self):
        """Every artefact is in the directory or in its session's folder, once."""
        if not hasattr(self, "made"):
            return
        found = {}
        for path in [*self.root.iterdir(), *self.root.glob("sessions/*/*")]:
            if (named := layout.kind_and_index(path.name)) is not None:
                key = (artefacts.session_of(path), *named)
                assert key not in found, f"twice: {path} and {found[key]}"
                found[key] = path
        assert found.keys() == self.made.keys()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


# ---------------------------------------------------------------- retention


@given(st.sets(st.integers(0, 40)), st.integers(0, 45), st.none() | st.integers(-1, 10))
def test_what_may_go(present, taken, keep):
    gone = removable(present, taken, keep)
    assert gone == sorted(set(gone))
    assert set(gone) <= present
    assert all(index < taken for index in gone)
    assert not set(gone) & set(sorted(present)[-NEVER_DELETED:])
    assert removable(present - set(gone), taken, keep) == []
    if keep is not None:
        kept = present - set(gone)
        newest = sorted(present)[-max(keep, NEVER_DELETED) :]
        assert kept == set(newest) | {index for index in present if index >= taken}


@given(st.integers(2, 5), st.lists(st.booleans(), max_size=60))
def test_in_the_long_run_all_but_the_newest_go(keep, reads):
    """The writer publishes, the reader follows now and then; never more is kept than it has not read, or `keep`."""
    present, made, taken = set(), 0, 0
    for read in [*reads, *[True] * (len(reads) + 1)]:
        present.add(made)
        made += 1
        taken = min(made, taken + 2) if read else taken
        present -= set(removable(present, taken, keep))
        assert len(present) <= max(keep, made - taken)
    assert present == set(range(max(0, made - keep), made))


@given(st.integers(0, 20), st.integers(0, 20), st.sets(st.integers(0, 25)))
def test_what_is_lost(first_needed, first_made, present):
    gone = lost(first_needed, first_made, present)
    assert gone == [index for index in range(first_needed, first_made) if index not in present]


# ---------------------------------------------------------------- which call is which


class Course:
    """Upstream's sequence of calls."""

    def __init__(self, steps, test_freq, val_before_train, save_freq):
        self.steps, self.test_freq, self.save_freq = steps, test_freq, save_freq
        self.val_before_train = val_before_train

    def validates(self, step):
        if step == 0:
            return self.val_before_train
        return self.test_freq > 0 and (step == self.steps or step % self.test_freq == 0)

    def saves(self, step):
        return step == self.steps or step % self.save_freq == 0

    def calls(self, start):
        """(what happens, call) from a start on: `save` after a step, `call` otherwise."""
        if self.val_before_train:
            yield "call", CallKey(CallKind.VALIDATION, start.global_step)
        for step in range(start.global_step + 1, self.steps + 1):
            yield "call", CallKey(CallKind.TRAINING, step)
            yield "update", step
            if self.saves(step):
                yield "save", step
            if self.validates(step):
                yield "call", CallKey(CallKind.VALIDATION, step)


class Run:
    """A run of a course: its own checkpoint, and how far it is. What both runs have exchanged is in two mappings.

    Args:
        recorded: calls by index of the rollout.
        checkpoints: indexes of the updates that were published.
    """

    def __init__(self, course, recorded, checkpoints):
        self.course, self.recorded, self.checkpoints = course, recorded, checkpoints
        self.mark = Start()
        self.start()

    def start(self):
        self.index = CallIndex(self.mark, self.course.test_freq, self.course.steps)
        self.events = list(self.course.calls(self.mark))
        self.updates = self.mark.updates

    def advance(self):
        """Whether it got on, and need not wait."""
        if not self.events:
            return False
        what, detail = self.events[0]
        if (what == "call" and not self.call(detail)) or (what == "update" and not self.update()):
            return False
        if what == "save":
            self.mark = Start(detail, self.index.next, self.updates, "session")
        self.events.pop(0)
        return True


class Producer(Run):
    """Mode ckpt: each call of the session becomes a rollout, unless it is one already."""

    def call(self, asked):
        at = index_of_call(self.index, asked, self.recorded.get)
        if at is not None:
            assert self.recorded.setdefault(at, asked) == asked, f"rollout_{at} answers another call"
        return True

    def update(self):
        there = self.updates in self.checkpoints
        self.updates += there
        return there


class Consumer(Run):
    """Mode rollout: waits for each call of the session."""

    def start(self):
        super().start()
        self.awaited = None

    def call(self, asked):
        at = index_of_call(self.index, asked, self.recorded.get) if self.awaited is None else self.awaited
        if at is None:
            return True
        while at in self.recorded and self.index.passes_over(asked, self.recorded[at]):
            at += 1
        self.awaited = None if at in self.recorded else at
        if self.awaited is not None:
            return False
        assert self.recorded[at] == asked, f"rollout_{at} answers {self.recorded[at]}, and {asked} was asked"
        return True

    def update(self):
        self.checkpoints.add(self.updates)
        self.updates += 1
        return True


INTERRUPTIONS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.sampled_from([(0,), (1,), (0, 1)])), max_size=4
)
"""After so many events of the one and of the other run these are started again."""


@settings(max_examples=400, deadline=None)
@given(st.integers(1, 7), st.sampled_from([-1, 1, 2, 3, 4]), st.booleans(), st.integers(1, 3), INTERRUPTIONS)
def test_both_runs_agree_on_which_index_answers_which_call(steps, test_freq, before, save_freq, interruptions):
    """Whatever is interrupted where, and resumed: the call that a rollout answers asks for it, and none is missing.

    Runs that validate do so after a resume as well: one that does not is an error of its own, see
    `answers.VALIDATE_AFTER_RESUME`.
    """
    course = Course(steps, test_freq, before or test_freq > 0, save_freq)
    exchanged = ({}, set())
    runs = (Producer(course, *exchanged), Consumer(course, *exchanged))
    for *counts, victims in interruptions:
        for run, count in zip(runs, counts, strict=True):
            for _ in range(count):
                run.advance()
        for victim in victims:
            runs[victim].start()
    while any([run.advance() for run in runs]):
        pass
    recorded, checkpoints = exchanged
    for run in runs:
        assert not run.events, f"{type(run).__name__} waits in vain for {run.events[0]}; there is {recorded}"
    expected = [detail for what, detail in course.calls(Start()) if what == "call"]
    assert recorded == dict(enumerate(expected))
    assert checkpoints == set(range(steps))
