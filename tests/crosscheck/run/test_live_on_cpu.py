# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A session of two runs: who may take part, what is whose, how an end is learnt of, what is deleted, how to go on."""

import json
import os
import pickle
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rollout_fixtures import FakeManager, assert_same_batch, exchanged, make_config, make_prompts

from verl.crosscheck import errors
from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import (
    AgreementError,
    DamagedError,
    DirectoryError,
    MismatchError,
    PeerFailedError,
    PeerSilentError,
    ResumeError,
    SessionError,
    SpaceError,
    WaitTimeoutError,
)
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.session import claim
from verl.crosscheck.exchange.session.liveness import beat
from verl.utils.share_data import ShareDataTest


@pytest.fixture
def root(tmp_path):
    return tmp_path / "share"


@pytest.fixture
def other_host(monkeypatch):
    """Runs are judged as those of another host: by what is seen of them alone."""
    monkeypatch.setattr(claim, "is_running", lambda process: None)


class Side:
    """A run: what its trainer would do, step by step.

    Args:
        step: steps that were done before; its checkpoint `global_step_{step}` is in `own`.
    """

    def __init__(self, root, mode, *, own=None, step=0, clock=None, trainer=(), **rollout):
        self.config = make_config(root, mode, **rollout)
        self.config.trainer.update({"default_local_dir": str(own), "resume_mode": "disable", **dict(trainer)})
        if step:
            self.config.trainer.update(resume_mode="resume_path", resume_from_path=f"{own}/global_step_{step}")
        self.mode, self.own, self.step = mode, own, step
        self.share, self.worker = ShareDataTest(self.config, clock), FakeManager()
        self.worker.calls = 100 * step  # its answers are not those of before
        self.share.wrap_generate_sequences(mode, self.worker)
        self.share.begin_at(step)
        self.loaded = []

    def generate(self, **meta):
        return self.worker.generate_sequences(make_prompts(["1+1=", "2+2="], step=self.step + 1, **meta))

    def validate(self):
        prompts = make_prompts(["5+5="], step=self.step, validate=True)
        return self.worker.generate_sequences(prompts)

    def update(self, content=None):
        """Exchange the actor after the update of the step that `generate` belongs to; that step is then done."""
        self.step += 1
        content = content or f"weights {self.step}".encode()

        def dump(path):
            Path(path, "model.pt").write_bytes(content)

        def load(path):
            self.loaded.append(Path(path, "model.pt").read_bytes())

        return self.share.after_update_policy(self.mode, load, dump, {"global_step": self.step})

    def save_own(self):
        folder = self.own / f"global_step_{self.step}"
        folder.mkdir(parents=True)
        self.share.mark_checkpoint(folder)


def names_of(root, mode, number=1, session_number=1):
    return RunNames(root / "sessions" / f"session_{session_number}" / "runs" / f"{mode}_{number}")


def run_steps(a, b, steps):
    for _ in range(steps):
        a.generate()
        b.generate()
        b.update()
        a.update()


# ---------------------------------------------------------------- whose is what


def test_what_an_earlier_session_left_is_put_aside_and_never_taken(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    old = a.generate()
    b.generate()
    b.update(b"old")
    for side in (a, b):
        side.share.end()
    started = []

    def start_a():
        assert exchanged(root) == ["rollout_0"]  # of the old session, and not taken in 30 s
        started.append(Side(root, "ckpt"))
        assert exchanged(root) == []
        started.append(started[0].generate())

    b = Side(root, "rollout", clock=ManualClock({30.0: start_a}))
    assert exchanged(root) == ["rollout_0"]  # b wrote a checkpoint before, which went aside
    taken = b.generate()
    new = started[1]
    assert_same_batch(new, taken)
    assert old.batch["rollout_log_probs"].tolist() != new.batch["rollout_log_probs"].tolist()
    assert sorted(path.name for path in (root / "sessions" / "session_1").iterdir()) == [
        "ckpt_0",
        "rollout_0",
        "runs",
        "session.json",
    ]


def test_a_wait_that_only_an_old_artefact_could_end_says_so(root):
    a = Side(root, "ckpt")
    a.generate()
    a.share.end()
    with pytest.raises(WaitTimeoutError, match="the rollout_0 there is an earlier session's"):
        Side(root, "rollout", clock=ManualClock()).generate()


def test_artefacts_of_no_session_are_put_aside_too(root):
    root.mkdir(mode=0o700)
    (root / "rollout_0").write_bytes(b"whatever")
    (root / "rollout_7").mkdir()
    (root / ".staging-rollout_3-1-ab").write_bytes(b"half")
    (root / "notes.txt").write_text("mine")
    Side(root, "ckpt")
    assert exchanged(root) == ["notes.txt"]
    assert sorted(path.name for path in (root / "sessions" / "unknown").iterdir()) == ["rollout_0", "rollout_7"]


def test_artefacts_carry_session_and_producer(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    run_steps(a, b, 1)
    card = json.loads(names_of(root, "rollout").card.read_text())
    about = json.loads((root / "ckpt_0" / "manifest.json").read_text())["about"]
    assert (about["session"], about["producer"]) == (card["session_id"], card["run_id"])
    assert json.loads((root / "sessions/session_1/session.json").read_text())["id"] == card["session_id"]


def test_a_second_live_run_of_a_mode_is_refused_with_both_identities(root):
    a = Side(root, "ckpt")
    with pytest.raises(SessionError) as caught:
        Side(root, "ckpt")
    first = a.share._exchange.run.card
    assert first.identity in str(caught.value)
    assert str(caught.value).count("mode ckpt") == 3
    assert str(caught.value).count(f"pid {first.process['pid']}") == 2
    assert "trainer.share_data=rollout" in str(caught.value)


def test_on_another_host_a_second_run_watches_until_the_first_moves(root, other_host):
    Side(root, "ckpt")
    heartbeat = names_of(root, "ckpt").heartbeat
    with pytest.raises(SessionError):
        Side(root, "ckpt", clock=ManualClock({4.0: lambda: beat(heartbeat, 1)}))


def test_on_another_host_a_silent_run_is_given_up_and_cannot_come_back(root, other_host, capsys):
    a = Side(root, "ckpt")
    a.generate()
    b = Side(root, "rollout")
    b.generate()
    clock = ManualClock({float(s): (lambda s=s: beat(names_of(root, "rollout").heartbeat, s)) for s in range(100, 400)})
    a2 = Side(root, "ckpt", clock=clock)
    assert clock.monotonic_s() >= 180
    assert "did not say that it ended; looking for up to 180 s" in capsys.readouterr().out
    assert a2.share._exchange.run.slot.number == 2
    before = exchanged(root)
    with pytest.raises(SessionError, match=r"number 1 of mode ckpt .* was given up for dead and replaced by run"):
        a.generate()
    assert exchanged(root) == before


def test_a_start_that_has_to_watch_takes_one_silence_and_keeps_the_waiting_run_patient(root, other_host):
    """Both are of another host: the silent one, and the one that waits for it, which must not give up before."""
    a = Side(root, "ckpt")
    a.generate()
    patience = {"share_data_timeout_s": 7200}
    started = []

    def look(own_pulse, second):
        beat(own_pulse, second)
        b_clock._now_s += 1.0
        assert b.share._exchange.partner.peer.require_hope("rollout", 1) is not None

    def start_again():
        own_pulse = names_of(root, "rollout").heartbeat
        clock = ManualClock({float(s): (lambda s=s: look(own_pulse, s)) for s in range(1, 181)})
        started.append(Side(root, "ckpt", clock=clock))
        assert 180 <= clock.monotonic_s() < 182
        for _ in range(2):
            started[0].generate()
            started[0].step += 1

    pulse = names_of(root, "ckpt").heartbeat
    b_clock = ManualClock({1.0: lambda: beat(pulse, 1), 170.0: start_again})
    b = Side(root, "rollout", clock=b_clock, trainer=patience)
    b.generate()
    b.step = 1
    b.generate()
    assert started[0].share._exchange.run.slot.number == 2


def test_a_pause_of_the_one_that_waits_is_not_the_others_silence(root):
    """Both were stopped for long, or the file server was: nobody was there to see a change."""

    class Pausing(ManualClock):
        def sleep(self, duration_s):
            if 100 < self.monotonic_s() < 120:
                duration_s += 5000.0
            super().sleep(duration_s)

    a = Side(root, "ckpt")
    clock = Pausing({5150.0: a.generate})
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 600})
    b.generate()
    assert clock.monotonic_s() > 5000


def test_a_file_that_is_replaced_while_it_is_read_is_opened_again(root, monkeypatch):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    a.generate()
    opened, failures = os.open, iter([116, 116, 116])

    def stale(path, *args, **kwargs):
        error = next(failures, None) if str(path).endswith("progress.json") else None
        if error:
            raise OSError(error, "Stale file handle")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", stale)
    b.generate()
    assert next(failures, None) is None


def test_a_file_server_that_fails_for_a_while_is_no_end(root, monkeypatch):
    a = Side(root, "ckpt")
    clock = ManualClock({100.0: a.generate})
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 600})
    opened = os.open

    def failing(path, *args, **kwargs):
        if str(path).endswith("progress.json") and "ckpt_1" in str(path) and 20 < clock.monotonic_s() < 90:
            raise OSError(5, "Input/output error")
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", failing)
    b.generate()
    assert clock.monotonic_s() > 100


def test_a_lagging_listing_is_no_successor(root):
    first = Side(root, "ckpt")
    first.share.end()
    Side(root, "rollout")
    a = Side(root, "ckpt")

    class Lagging(filesystem.Filesystem):
        def names(self, folder):
            return [name for name in super().names(folder) if name != "ckpt_2"]

    place = a.share._exchange.run.slot
    assert place.number in (1, 2)
    with filesystem.replaced(Lagging()):
        place.require_current()


def test_an_old_session_that_cannot_be_read_is_in_nobodys_way(root):
    for _ in range(2):
        a = Side(root, "ckpt")
        a.generate()
        a.share.end()
    broken = root / "sessions" / "session_1" / "session.json"
    broken.write_text(broken.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    Side(root, "ckpt")
    assert exchanged(root) == []


def test_a_secret_in_an_error_is_not_told(root, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh12345678")
    a = Side(root, "ckpt")
    a.share.end(RuntimeError("401 for token hf_abcdefgh12345678 at https://me:pw@hub/x"))
    message = json.loads(names_of(root, "ckpt").end.read_text())["message"]
    assert message == "401 for token <left out> at https://<left out>@hub/x"


def test_an_error_that_cannot_say_what_it_is_still_is_an_end(root):
    class Odd(RuntimeError):
        cause = "no exception"

        def __str__(self):
            raise ValueError

    a = Side(root, "ckpt")
    a.share.end(Odd())
    assert json.loads(names_of(root, "ckpt").end.read_text())["error"] == "Odd"


# ---------------------------------------------------------------- agreement


def test_different_settings_stop_the_run_that_sees_them(root):
    Side(root, "ckpt")
    with pytest.raises(AgreementError) as caught:
        b = Side(root, "rollout", temperature=0.7, n=4)
        b.generate()
    text = str(caught.value)
    for part in ("actor_rollout_ref.rollout.temperature", "actor_rollout_ref.rollout.n", "0.7", "share_data_strict"):
        assert part in text


def test_not_strict_warns_and_goes_on(root, capsys):
    lenient = {"share_data_strict": False}
    a, b = Side(root, "ckpt", trainer=lenient), Side(root, "rollout", trainer=lenient, n=4)
    a.generate()
    other = make_prompts(["1+1=", "3+3="], step=1)
    b.worker.generate_sequences(other)
    out = capsys.readouterr().out
    assert "Warning: " in out
    assert "actor_rollout_ref.rollout.n" in out
    assert "1 of 2 prompts differ" in out
    assert "It is used all the same, since trainer.share_data_strict=False" in out
    with pytest.raises(MismatchError, match="its batch has 2 rows, expected 1"):  # nothing could be made of it
        a.generate()
        b.worker.generate_sequences(make_prompts(["1+1="], step=1))


def test_facts_are_compared_before_anything_is_used(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    a.share.tell_facts({"data": {"rows": 512}})
    b.share.tell_facts({"data": {"rows": 500}})
    a.generate()
    with pytest.raises(AgreementError, match=r"data\.rows"):
        b.generate()


def test_what_was_not_compared_is_said(root, capsys):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    a.generate()
    b.generate()
    out = capsys.readouterr().out
    assert "[ShareDataTest] this run agrees with run " in out
    assert "[ShareDataTest]   facts: this run does not know: its trainer reported none" in out


def test_a_run_that_goes_on_with_what_another_left_agrees_with_that_one(root, tmp_path, stopped):
    """The other run is not there yet, and its checkpoints of before are used."""
    config = {"trainer": {"share_data_keep_ckpts": None}, "own": tmp_path / "a", "step": 2}
    a = Side(root, "ckpt", **config)
    a.generate()
    a.update()
    assert a.loaded == [b"weights 3"]
    a.share.end()
    with pytest.raises(AgreementError, match=r"rollout\.temperature"):
        a = Side(root, "ckpt", **config, temperature=0.5)
        a.generate()
        a.update()


def test_facts_that_come_late_are_compared_then(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    b.share.tell_facts({"data": {"rows": 500}})
    a.generate()
    b.generate()
    b.update()
    a.update()
    a.share.tell_facts({"data": {"rows": 512}})
    a.generate()
    with pytest.raises(AgreementError, match=r"data\.rows"):
        b.generate()


# ---------------------------------------------------------------- how an end is learnt of


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (RuntimeError("NCCL timeout"), r"failed while training in step 1: RuntimeError: NCCL timeout\. So rollout_1"),
        (KeyboardInterrupt(), "was interrupted while training in step 1: KeyboardInterrupt: stopped by a signal"),
        (None, "finished without rollout_1.*total_training_steps"),
    ],
)
def test_the_end_of_the_other_run_ends_a_wait_at_once(root, error, message):
    clock = ManualClock()
    a, b = Side(root, "ckpt"), Side(root, "rollout", clock=clock)
    a.generate()
    b.generate()
    b.update()
    a.share.end(error)
    with pytest.raises(PeerFailedError, match=message) as caught:
        b.generate()
    assert clock.monotonic_s() < 10
    assert a.share._exchange.run.card.identity in str(caught.value)


def test_nothing_is_begun_for_a_run_that_has_failed(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    a.generate()
    b.generate()
    a.share.end(RuntimeError("engine died"))
    with pytest.raises(PeerFailedError, match="engine died"):
        b.update()  # saves nothing
    b.share.end(ValueError("NaN loss"))
    with pytest.raises(PeerFailedError, match="NaN loss"):
        a.generate()
    assert exchanged(root) == ["rollout_0"]
    assert a.worker.calls == 1


def test_the_first_word_on_an_end_counts(root):
    a = Side(root, "ckpt")
    a.share.end(RuntimeError("first"))
    a.share.end(None)
    assert json.loads(names_of(root, "ckpt").end.read_text())["message"] == "first"


def test_a_silent_run_counts_as_dead_after_the_silence(root):
    Side(root, "ckpt")
    clock = ManualClock()
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 7200})
    with pytest.raises(PeerSilentError, match="gave no sign of life for 18[01] s .* waited for rollout_0"):
        b.generate()
    assert 180 <= clock.monotonic_s() < 183


def test_a_run_that_beats_and_does_nothing_is_stuck(root):
    a = Side(root, "ckpt")
    a.share._exchange.run.report("generating", global_step=1)
    heartbeat = names_of(root, "ckpt").heartbeat
    clock = ManualClock({float(s): (lambda s=s: beat(heartbeat, s)) for s in range(5, 5000, 5)})
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 600})
    with pytest.raises(WaitTimeoutError, match=r"lives and is stuck: generating in step 1, without a change for 600 s"):
        b.generate()


def test_a_run_that_gets_on_slowly_is_waited_for(root):
    a = Side(root, "ckpt")
    run = a.share._exchange.run
    clock = ManualClock(
        {float(s): (lambda s=s: run.report(f"generating, {s}")) for s in range(170, 5000, 170)} | {5000.0: a.generate}
    )
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 600})
    b.generate()
    assert clock.monotonic_s() >= 5000


def test_what_the_other_run_published_is_waited_for_though_it_has_ended(root):
    """A listing may lag by a minute behind the word on the end."""
    a, clock = Side(root, "ckpt"), ManualClock()
    b = Side(root, "rollout", clock=clock, trainer={"share_data_timeout_s": 7200})
    a.generate()
    a.share.end()

    class Lagging(filesystem.Filesystem):
        def names(self, folder):
            return [name for name in super().names(folder) if name != "rollout_0" or clock.monotonic_s() > 60]

    with filesystem.replaced(Lagging()):
        b.generate()
    assert 60 < clock.monotonic_s() < 62


def test_the_end_is_told_on_a_full_disk_too(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    names = names_of(root, "ckpt")

    class Full(filesystem.Filesystem):
        """Takes nothing more, until something was removed."""

        def raw(self, path):
            if names.reserve.exists():
                raise OSError(28, "No space left on device")
            return super().raw(path)

    with filesystem.replaced(Full()):
        with pytest.raises(errors.PublishError, match="No space left on device"):
            a.generate()
        a.share.end(RuntimeError("No space left on device"))
    with pytest.raises(PeerFailedError, match="No space left on device"):
        b.generate()


# ---------------------------------------------------------------- bounded disk


def test_only_what_the_other_run_has_loaded_is_deleted(root):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    for step in range(1, 7):  # a reads slowly
        a.worker.generate_sequences(make_prompts(["1+1=", "2+2="], step=step))
        b.generate()
        b.update()
        if step <= 3:
            a.update()
    assert exchanged(root)[:4] == ["ckpt_3", "ckpt_4", "ckpt_5", "rollout_0"]
    for _ in range(3):
        a.update()
    run_steps(a, b, 1)
    assert [name for name in exchanged(root) if name.startswith("ckpt")] == ["ckpt_5", "ckpt_6"]


@pytest.mark.parametrize(("keep", "left"), [(None, 6), (2, 2), (4, 4)])
def test_the_newest_are_kept(root, keep, left):
    trainer = {"share_data_keep_ckpts": keep}
    a, b = Side(root, "ckpt", trainer=trainer), Side(root, "rollout", trainer=trainer)
    run_steps(a, b, 6)
    assert [n for n in exchanged(root) if n.startswith("ckpt")] == [f"ckpt_{i}" for i in range(6 - left, 6)]


def test_free_space_is_looked_at_before_a_save(root, monkeypatch):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    run_steps(a, b, 1)
    a.generate()
    b.generate()
    monkeypatch.setattr(filesystem.Filesystem, "free_bytes", lambda self, folder: 4)
    with pytest.raises(SpaceError, match=r"ckpt_1 will not fit: the last one took 9 B, 4 B are free, 5 B are missing"):
        b.update()
    assert "ckpt_1" not in exchanged(root)


def test_a_deletion_that_fails_is_told_and_repeated(root, monkeypatch, capsys):
    a, b = Side(root, "ckpt"), Side(root, "rollout")

    def refuse(self, path):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched:
        patched.setattr(filesystem.Filesystem, "remove", refuse)
        run_steps(a, b, 3)
    assert "Warning: " in capsys.readouterr().out
    run_steps(a, b, 1)
    assert [name for name in exchanged(root) if name.startswith("ckpt")] == ["ckpt_2", "ckpt_3"]


# ---------------------------------------------------------------- going on


@pytest.fixture
def stopped(root, tmp_path):
    """A session that both runs left after step 4, with own checkpoints at every step; all exchanged ones are kept."""
    keep = {"share_data_keep_ckpts": None}
    a, b = Side(root, "ckpt", own=tmp_path / "a", trainer=keep), Side(root, "rollout", own=tmp_path / "b", trainer=keep)
    made = []
    for _ in range(4):
        made.append(a.generate())
        b.generate()
        b.update()
        a.update()
        a.save_own()
        b.save_own()
    a.share.end(KeyboardInterrupt())
    b.share.end(KeyboardInterrupt())
    return made


def resumed(root, tmp_path, a_step, b_step, **trainer):
    trainer = {"share_data_keep_ckpts": None, **trainer}
    a = Side(root, "ckpt", own=tmp_path / "a", step=a_step, trainer=trainer)
    b = Side(root, "rollout", own=tmp_path / "b", step=b_step, trainer=trainer)
    return a, b


def test_both_go_on_where_they_were(root, tmp_path, stopped):
    a, b = resumed(root, tmp_path, 4, 4)
    run_steps(a, b, 1)
    assert {"rollout_4", "ckpt_4", "rollout_0"} <= set(exchanged(root))
    assert a.loaded == [b"weights 5"]
    assert len(list((root / "sessions").iterdir())) == 1


@pytest.mark.parametrize(("a_step", "b_step"), [(2, 4), (4, 2), (2, 3), (3, 1), (1, 1)])
def test_at_different_steps_what_is_there_is_used_again(root, tmp_path, stopped, a_step, b_step):
    a, b = resumed(root, tmp_path, a_step, b_step)
    for index in range(a_step, 4):
        assert_same_batch(a.generate(), stopped[index])  # the engine is not asked: the other run trained on these
        a.update()
    for index in range(b_step, 4):
        assert_same_batch(b.generate(), stopped[index])
        b.update(b"computed anew")
    assert a.worker.calls == 100 * a_step
    assert a.loaded == [f"weights {step}".encode() for step in range(a_step + 1, 5)]
    assert b.loaded == [f"weights {step}".encode() for step in range(b_step + 1, 5)]  # so that both hold the same
    run_steps(a, b, 1)
    assert a.loaded[-1] == b"weights 5"


def test_where_it_cannot_go_on_the_error_says_which_steps_there_are(root, tmp_path):
    a, b = Side(root, "ckpt", own=tmp_path / "a"), Side(root, "rollout", own=tmp_path / "b")
    for _ in range(5):
        run_steps(a, b, 1)
        a.save_own()
        b.save_own()
    a.share.end(KeyboardInterrupt())
    a = Side(root, "ckpt", own=tmp_path / "a", step=1)
    with pytest.raises(ResumeError) as caught:
        a.generate()
    message = str(caught.value)
    for part in (
        "begins after step 1 and needs ckpt_1",
        "There are ckpt_3, ckpt_4",
        "resume this run after step 3 or later",
        "the other run after step 1 or earlier",
    ):
        assert part in message
    a.share.end(caught.value)
    a = Side(root, "ckpt", own=tmp_path / "a", step=3)
    a.generate()
    a.update()
    assert a.loaded == [b"weights 4"]


@pytest.mark.parametrize("first", ["ckpt", "rollout"])
def test_the_first_that_is_started_again_waits_for_the_other(root, tmp_path, stopped, first):
    """The other one's end of before is not news."""
    started = {}

    def start_other():
        started["b"] = Side(root, "rollout", own=tmp_path / "b", step=4)
        started["b"].generate()
        started["b"].update()

    def start_a():
        started["a"] = Side(root, "ckpt", own=tmp_path / "a", step=4)
        started["a"].generate()

    clock = ManualClock({50.0: start_other if first == "ckpt" else start_a})
    if first == "ckpt":
        a = Side(root, "ckpt", own=tmp_path / "a", step=4, clock=clock)
        a.generate()
        a.update()
        assert a.loaded == [b"weights 5"]
    else:
        b = Side(root, "rollout", own=tmp_path / "b", step=4, clock=clock)
        b.generate()
    assert 50 <= clock.monotonic_s() < 52


def test_a_run_alone_goes_on_beside_one_that_waits(root, tmp_path):
    a, b = Side(root, "ckpt", own=tmp_path / "a"), Side(root, "rollout", own=tmp_path / "b")
    run_steps(a, b, 2)
    a.save_own()
    a.share.end(KeyboardInterrupt())
    a = Side(root, "ckpt", own=tmp_path / "a", step=2)
    run_steps(a, b, 1)
    assert a.loaded == [b"weights 3"]
    assert a.share._exchange.run.slot.number == 2


def test_a_fresh_run_beside_one_that_waits_begins_at_its_beginning(root, tmp_path):
    """A died before it had a checkpoint of its own."""
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    made = a.generate()
    b.generate()
    b.update()
    a.share.end(KeyboardInterrupt())
    a = Side(root, "ckpt")
    assert_same_batch(a.generate(), made)
    a.update()
    assert a.loaded == [b"weights 1"]


def test_fresh_runs_after_both_ended_begin_anew(root, tmp_path, stopped):
    a, b = Side(root, "ckpt", own=tmp_path / "c"), Side(root, "rollout", own=tmp_path / "d")
    run_steps(a, b, 1)
    assert exchanged(root) == ["ckpt_0", "rollout_0"]
    assert len(list((root / "sessions" / "session_1").glob("rollout_*"))) == 4


def test_a_run_of_another_step_cannot_join_a_new_session(root, tmp_path, stopped):
    Side(root, "rollout")
    with pytest.raises(ResumeError, match="begins after step 0, and this run begins after step 4"):
        Side(root, "ckpt", own=tmp_path / "a", step=4)


def test_two_runs_may_begin_a_session_from_a_step(root, tmp_path):
    for name in "ab":
        (tmp_path / name / "global_step_7").mkdir(parents=True)  # saved without a cross-check
    a, b = resumed(root, tmp_path, 7, 7)
    run_steps(a, b, 1)
    assert exchanged(root) == ["ckpt_0", "rollout_0"]
    assert a.loaded == [b"weights 8"]


def test_a_trainer_that_begins_elsewhere_is_told(root, tmp_path):
    a = Side(root, "ckpt")
    with pytest.raises(ResumeError, match=r"begins after step 3, .* found step 0"):
        a.share.begin_at(3)


@pytest.mark.parametrize("validated", [True, False])
@pytest.mark.parametrize("again", [True, False])
def test_validation_after_a_resume(root, tmp_path, validated, again):
    """Upstream validates right after a resume if told to, whether an undisturbed run would have or not."""
    trainer = {"test_freq": 2}
    a = Side(root, "ckpt", own=tmp_path / "a", trainer=trainer)
    b = Side(root, "rollout", own=tmp_path / "b", trainer=trainer)
    for _ in range(2 if validated else 1):
        run_steps(a, b, 1)
    for side in (a, b):
        side.save_own()
        if validated:
            side.validate()
        side.share.end(KeyboardInterrupt())
    a, b = resumed(root, tmp_path, a.step, b.step, test_freq=2)
    calls = a.worker.calls
    if again:
        a.validate()
        b.validate()
        # Recorded, it is read by both; else it is no part of the session, and each asks its own engine.
        assert a.worker.calls - calls == (0 if validated else 1)
        assert b.worker.calls - calls == (0 if validated else 1)
    run_steps(a, b, 1)
    assert a.loaded == [f"weights {a.step}".encode()]
    assert max(int(name[8:]) for name in exchanged(root) if name.startswith("rollout")) == (3 if validated else 1)


# ---------------------------------------------------------------- replay


def test_mode_rollout_replays_with_the_rollouts_alone(root, tmp_path, stopped):
    for path in root.glob("ckpt_*"):
        (path / "manifest.json").unlink()
    before = sorted(str(path) for path in root.rglob("*"))
    b = Side(root, "rollout", own=tmp_path / "r", trainer={"share_data_replay": True})
    for index in range(4):
        assert_same_batch(b.generate(), stopped[index])
        assert b.update() == pytest.approx({}, abs=0)
    assert b.worker.calls == 0
    with pytest.raises(DirectoryError, match=r"session 1 in .* holds no rollout_4 \(there is: 0 to 3\)"):
        b.generate()
    assert sorted(str(path) for path in root.rglob("*")) == before


def test_mode_ckpt_replays_under_the_recorded_weights(root, tmp_path, stopped):
    a = Side(root, "ckpt", own=tmp_path / "r", trainer={"share_data_replay": True})
    for _ in range(4):
        a.generate()
        a.update()
    assert a.worker.calls == 4
    assert a.loaded == [f"weights {step}".encode() for step in (1, 2, 3, 4)]


def test_a_replay_of_deleted_checkpoints_says_what_there_is(root, tmp_path):
    a, b = Side(root, "ckpt"), Side(root, "rollout")
    run_steps(a, b, 4)
    for side in (a, b):
        side.share.end()
    replay = Side(root, "ckpt", trainer={"share_data_replay": True})
    replay.generate()
    with pytest.raises(DirectoryError, match=r"holds no ckpt_0 \(there is: 2 to 3\)\. Record with .*keep_ckpts=null"):
        replay.update()


def test_a_session_that_was_put_aside_can_be_replayed_from_its_folder(root, tmp_path, stopped):
    for mode in ("ckpt", "rollout"):
        Side(root, mode)
    b = Side(root / "sessions" / "session_1", "rollout", trainer={"share_data_replay": True})
    assert_same_batch(b.generate(), stopped[0])


def test_a_replay_of_nothing_is_an_error(root):
    root.mkdir(mode=0o700)
    with pytest.raises(DirectoryError, match="holds no session of two runs"):
        Side(root, "rollout", trainer={"share_data_replay": True})


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize("name", ["card.json", "progress.json", "end.json", "session.json"])
@pytest.mark.parametrize("content", [b"", b'{"schema"', b"\xff\xfe", b"[]", b'{"schema": "verl-crosscheck/card"}'])
def test_a_broken_card_is_refused_with_its_path(root, name, content):
    Side(root, "ckpt")
    names = names_of(root, "ckpt")
    path = names.folder.parents[1] / name if name == "session.json" else names.folder / name
    path.write_bytes(content)
    with pytest.raises(DamagedError, match=name) as caught:
        Side(root, "rollout").generate()
    assert str(path) in str(caught.value)


def test_every_error_crosses_ray():
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert len(kinds) > 12
    for kind in kinds:
        copy = pickle.loads(pickle.dumps(kind("what failed")))
        assert type(copy) is kind
        assert str(copy) == "what failed"
        assert isinstance(copy, errors.CrossCheckError)


def test_a_card_holds_no_secret(root, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh12345678")
    config = make_config(root, "ckpt")
    OmegaConf.update(
        config, "ray_kwargs.ray_init.runtime_env.env_vars.WANDB_API_KEY", "0123456789abcdef", force_add=True
    )
    OmegaConf.update(config, "data.hub_token", "secret-value", force_add=True)
    OmegaConf.update(config, "data.note", "uses hf_abcdefgh12345678", force_add=True)
    ShareDataTest(config).wrap_generate_sequences("ckpt", FakeManager())
    text = names_of(root, "ckpt").card.read_text()
    for secret in ("hf_abcdefgh12345678", "0123456789abcdef", "secret-value"):
        assert secret not in text
