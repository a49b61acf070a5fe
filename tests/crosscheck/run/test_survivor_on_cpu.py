# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A run that lives on while the other one is started again."""

from pathlib import Path

import pytest
from rollout_fixtures import FakeManager, make_config, make_prompts

from verl.crosscheck.exchange import artefacts
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.run_files import Start
from verl.crosscheck.identity import CallKind
from verl.crosscheck.run.indexing import CallIndex, CallKey, index_of_call
from verl.utils.share_data import ShareDataTest


class Side:
    """A run, step by step; resumed after `step`, from the checkpoint in `own` that `save_own` left."""

    def __init__(self, root, mode, own, step=0):
        config = make_config(root, mode)
        config.trainer.update({"default_local_dir": str(own), "resume_mode": "disable"})
        if step:
            config.trainer.update(resume_mode="resume_path", resume_from_path=f"{own}/global_step_{step}")
        self.mode, self.own, self.step = mode, own, step
        self.share, self.worker = ShareDataTest(config), FakeManager()
        self.share.wrap_generate_sequences(mode, self.worker)
        self.share.begin_at(step)

    def generate(self):
        self.step += 1
        return self.worker.generate_sequences(make_prompts(["1+1="], step=self.step))

    def update(self):
        self.share.after_update_policy(
            self.mode, lambda path: None, lambda path: Path(path, "model.pt").write_bytes(b"weights"), {}
        )

    def save_own(self):
        self.share.mark_checkpoint(self.own / f"global_step_{self.step}")


def step_both(a, b):
    a.generate()
    b.generate()
    b.update()
    a.update()
    a.save_own()
    b.save_own()


@pytest.mark.parametrize("again", ["ckpt", "rollout"])
def test_what_the_survivor_used_long_ago_may_be_gone_when_the_other_run_comes_back(tmp_path, again):
    """Both began at step 0, and ckpt_0 was deleted after both were done with it: no loss for either."""
    root = tmp_path / "share"
    sides = {mode: Side(root, mode, tmp_path / mode) for mode in ("ckpt", "rollout")}
    for _ in range(5):
        step_both(sides["ckpt"], sides["rollout"])
    assert "ckpt_0" not in {path.name for path in root.iterdir()}
    sides[again].share.end(RuntimeError("lost"))
    sides[again] = Side(root, again, tmp_path / again, step=5)
    step_both(sides["ckpt"], sides["rollout"])
    assert {"rollout_5", "ckpt_5"} <= {path.name for path in root.iterdir()}


def test_an_artefact_that_is_put_aside_between_listing_and_reading_is_not_damaged(tmp_path, monkeypatch):
    """The other run clears the directory at its start, just while this one looks at what an earlier session left."""
    root = tmp_path / "share"
    old = {mode: Side(root, mode, tmp_path / mode) for mode in ("ckpt", "rollout")}
    step_both(old["ckpt"], old["rollout"])
    for side in old.values():
        side.share.end()
    live_side = Side(root, "ckpt", tmp_path / "new").share._exchange
    read = artefacts.read_manifest

    def put_aside_first(folder):
        monkeypatch.undo()
        Side(root, "rollout", tmp_path / "new")
        return read(folder)

    monkeypatch.setattr(artefacts, "read_manifest", put_aside_first)
    assert (root / "ckpt_0").exists()
    assert not live_side.is_ours(root / "ckpt_0")
    assert not (root / "ckpt_0").exists()


@pytest.mark.parametrize(("step", "exchanged"), [(3, True), (5, True), (4, False)])
def test_the_validation_after_the_last_step_is_the_sessions_also_after_a_resume(step, exchanged):
    """With a test_freq of 3 and 5 steps, upstream validates after 3 and after 5."""
    index = CallIndex(Start(step, calls=step, updates=step, session="s"), test_freq=3, last_step=5)
    at = index_of_call(index, CallKey(CallKind.VALIDATION, step), lambda at: None)
    assert (at is not None) == exchanged


def test_what_is_published_just_before_an_end_is_not_missed(tmp_path, monkeypatch):
    """The other run publishes its last artefact, says so and ends, all while this one looks."""
    root = tmp_path / "share"
    a, b = (Side(root, mode, tmp_path / mode) for mode in ("ckpt", "rollout"))

    def last_words():
        monkeypatch.undo()
        a.generate()
        a.share.end()

    def before(read):
        def reading(names):
            found = read(names)
            last_words()
            return found

        return reading

    monkeypatch.setattr(run_files, "read_progress", before(run_files.read_progress))
    monkeypatch.setattr(run_files, "read_end", before(run_files.read_end))
    b.share._exchange.partner.peer.require_hope("rollout", 0)
    b.generate()
