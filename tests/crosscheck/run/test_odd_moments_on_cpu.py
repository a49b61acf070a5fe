# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rare moments that `scripts/torture` came upon, one by one and at once."""

import os
from pathlib import Path

import pytest
from rollout_fixtures import FakeManager, make_config, make_prompts

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import DamagedError, DirectoryError, PeerFailedError, PublishError, SessionError
from verl.crosscheck.exchange import artefacts, filesystem
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.publish import publish_folder, publish_json
from verl.crosscheck.exchange.session import claim, run_files
from verl.utils.share_data import ShareDataTest


@pytest.fixture
def root(tmp_path):
    return tmp_path / "share"


def side(root, mode):
    share, worker = ShareDataTest(make_config(root, mode), ManualClock()), FakeManager()
    share.wrap_generate_sequences(mode, worker)
    return share, worker


def write(path):
    Path(path, "model.pt").write_bytes(b"weights")


def names_of(root, mode, number=1):
    return RunNames(root / "sessions" / "session_1" / "runs" / f"{mode}_{number}")


def test_a_start_that_fails_after_the_claim_is_told(root, monkeypatch):
    _, b = side(root, "rollout")
    with monkeypatch.context() as patched:
        patched.setattr(
            artefacts, "sweep", lambda folder, kind: (_ for _ in ()).throw(OSError(5, "Input/output error"))
        )
        with pytest.raises(DirectoryError, match="Input/output error"):
            side(root, "ckpt")
    with pytest.raises(PeerFailedError, match="DirectoryError: .*Input/output error"):
        b.generate_sequences(make_prompts(["1+1="]))


def test_what_is_left_of_a_deletion_is_removed_at_the_next_step(root, monkeypatch):
    a, engine = side(root, "ckpt")
    b, taker = side(root, "rollout")

    def step(number):
        engine.generate_sequences(make_prompts(["1+1="], step=number))
        taker.generate_sequences(make_prompts(["1+1="], step=number))
        b.after_update_policy("rollout", write, write)
        a.after_update_policy("ckpt", lambda path: None, write)

    def refuse(self, path):
        raise OSError(5, "Input/output error")

    step(1)
    step(2)
    with monkeypatch.context() as patched:
        patched.setattr(filesystem.Filesystem, "rmdir", refuse)
        step(3)
    assert [path.name for path in root.glob(".staging-ckpt_0*")]
    step(4)
    assert not list(root.glob(".staging-*"))


def test_a_run_replaced_during_a_save_publishes_nothing(root, monkeypatch):
    """Its successor has swept its folder away, and upstream's workers have made it anew for the rest of their files."""
    _, engine = side(root, "ckpt")
    b, taker = side(root, "rollout")
    engine.generate_sequences(make_prompts(["1+1="]))
    taker.generate_sequences(make_prompts(["1+1="]))
    monkeypatch.setattr(claim, "is_running", lambda process: None)  # as if of other hosts, and silent

    def save(path):
        Path(path, "rank_0.pt").write_bytes(b"half")
        side(root, "rollout")
        Path(path).mkdir()
        Path(path, "rank_1.pt").write_bytes(b"other half")

    with pytest.raises(SessionError, match="It wrote nothing since"):
        b.after_update_policy("rollout", write, save)
    assert not [path.name for path in root.iterdir() if "ckpt" in path.name]


@pytest.mark.parametrize("taken", ["folder", "file"])
def test_a_taken_name_is_found_out_though_the_listing_does_not_show_it(tmp_path, taken, monkeypatch):
    publish_folder(tmp_path / "ckpt_0", write, {})
    (tmp_path / "rollout_0").write_bytes(b"theirs")
    monkeypatch.setattr(filesystem.Filesystem, "names", lambda self, folder: [])
    with pytest.raises(PublishError, match="already exists and was not made by this run"):
        if taken == "folder":
            publish_folder(tmp_path / "ckpt_0", write, {})
        else:
            publish_json(tmp_path / "rollout_0", {}, replace=False)


def test_an_end_is_told_whatever_the_error_says(root):
    a, _ = side(root, "ckpt")
    a.end(ValueError("caf\udce9.parquet is no file"))
    assert "caf?.parquet" in run_files.read_end(names_of(root, "ckpt")).message


def test_a_pipe_in_the_place_of_a_heartbeat_is_no_sign_of_life(tmp_path):
    os.mkfifo(tmp_path / "heartbeat")
    assert run_files.read_pulse(RunNames(tmp_path).heartbeat) == b""


def test_a_directory_on_its_way_out_is_said_to_be_gone(root):
    a, _ = side(root, "ckpt")
    place = a._exchange.run.slot
    (place.session.folder / "session.json").unlink()
    with pytest.raises(DirectoryError, match="session.json is gone"):
        place.require_current()


def test_a_rollout_that_says_no_kind_of_call_is_damaged(root):
    a, engine = side(root, "ckpt")
    engine.generate_sequences(make_prompts(["1+1="]))
    content = (root / "rollout_0").read_bytes()
    (root / "rollout_0").write_bytes(content.replace(b"training", b"trAining", 1))
    with pytest.raises(DamagedError, match="rollout_0 does not say what it answers"):
        a._exchange.recorded(0)
