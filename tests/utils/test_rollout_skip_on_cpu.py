# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rollout skip: names, one file a call, and what a file that does not fit gets."""

import pytest
from omegaconf import OmegaConf
from rollout_fixtures import FakeManager, assert_same_batch, make_config, make_prompts

from verl.crosscheck.errors import DamagedError, DirectoryError, MismatchError, PublishError, SettingsError
from verl.crosscheck.exchange import publish
from verl.utils.rollout_skip import RolloutSkip


def skipped(directory, **rollout):
    """A fresh manager behind rollout skip, as a new run has it."""
    manager = FakeManager()
    RolloutSkip(make_config(directory, skip_rollout=True, **rollout), manager).wrap_generate_sequences()
    return manager


def ask(manager, text="1+1=", **meta_info):
    return manager.generate_sequences(make_prompts([text, text], **meta_info))


def names(directory):
    return sorted(p.name for p in directory.iterdir())


def test_each_call_has_its_own_file_and_later_runs_generate_nothing(tmp_path):
    first, later = skipped(tmp_path), skipped(tmp_path)
    made = [ask(first, "1+1=", validate=True), ask(first, "2+2=", step=1), ask(first, "3+3=", step=2)]
    assert names(tmp_path) == [f"exp_proj_GBS8_N2_{i}" for i in range(3)]
    taken = [ask(later, "1+1=", validate=True), ask(later, "2+2=", step=1), ask(later, "3+3=", step=2)]
    for one, other in zip(made, taken, strict=True):
        assert_same_batch(one, other)
        assert one.meta_info == other.meta_info
    assert (first.calls, later.calls) == (3, 0)


def test_a_call_past_the_last_file_generates_and_saves(tmp_path):
    ask(skipped(tmp_path), "1+1=")
    later = skipped(tmp_path)
    ask(later, "1+1=")
    assert later.calls == 0
    ask(later, "2+2=")
    assert later.calls == 1
    assert names(tmp_path) == ["exp_proj_GBS8_N2_0", "exp_proj_GBS8_N2_1"]


def test_without_index_all_calls_share_one_file_as_upstream_has_it(tmp_path):
    manager = skipped(tmp_path, skip_index=False)
    made = ask(manager, "1+1=", step=1)
    assert_same_batch(made, ask(manager, "2+2=", step=2))
    assert manager.calls == 1
    assert names(tmp_path) == ["exp_proj_GBS8__N2"]


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"data.gen_batch_size": 24}, "exp_proj_GBS24_N2_0"),
        ({"data.experiment_name": "mine"}, "mine_proj_GBS8_N2_0"),
        ({"data.project_name": "ours"}, "exp_ours_GBS8_N2_0"),
        ({"actor_rollout_ref.rollout.n": 5}, "exp_proj_GBS8_N5_0"),
        ({"trainer.experiment_name": "team/../run"}, "team-..-run_proj_GBS8_N2_0"),
    ],
)
def test_names(tmp_path, changes, name):
    config = make_config(tmp_path)
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    manager = FakeManager()
    RolloutSkip(config, manager).wrap_generate_sequences()
    ask(manager)
    assert names(tmp_path) == [name]


def test_the_own_uid_is_kept(tmp_path):
    for uid in (["a0", "a1"], ["b0", "b1"]):
        manager = FakeManager(echo=True)
        RolloutSkip(make_config(tmp_path), manager).wrap_generate_sequences()
        own = make_prompts(["1+1=", "2+2="], uid=uid)
        own.union(manager.generate_sequences(own))


def test_other_prompts_are_refused_and_nothing_is_generated(tmp_path):
    ask(skipped(tmp_path), "1+1=")
    later = skipped(tmp_path)
    with pytest.raises(MismatchError, match=r"it asks '1\+1=', expected '9\+9='.*rm /.*exp_proj_GBS8_N2_0"):
        ask(later, "9+9=")
    assert later.calls == 0


@pytest.mark.parametrize("content", [b"", b"\x80\x05N.", b"{}", bytes(200)])
@pytest.mark.parametrize("indexed", [True, False])
def test_a_damaged_or_foreign_file_is_named_and_kept(tmp_path, content, indexed):
    path = tmp_path / ("exp_proj_GBS8_N2_0" if indexed else "exp_proj_GBS8__N2")
    path.write_bytes(content)
    manager = skipped(tmp_path, skip_index=indexed)
    with pytest.raises(DamagedError, match=path.name):
        ask(manager)
    assert manager.calls == 0
    assert path.read_bytes() == content


def test_a_failed_save_is_an_error(tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish.os, "fsync", full)
    with pytest.raises(PublishError, match="exp_proj_GBS8_N2_0 was not saved.*No space left"):
        ask(skipped(tmp_path))
    assert names(tmp_path) == []


def test_an_unusable_directory_names_the_key(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryError, match="actor_rollout_ref.rollout.skip_dump_dir="):
        RolloutSkip(make_config(tmp_path / "file"), FakeManager())


def test_workers_without_the_method_are_left_alone(tmp_path, capsys):
    class Workers:
        pass

    RolloutSkip(make_config(tmp_path), Workers()).wrap_generate_sequences()
    assert "Workers has no generate_sequences; the trainer wraps its rollout manager instead" in capsys.readouterr().out
    with pytest.raises(SettingsError, match="skip_index=True"):
        RolloutSkip(make_config(tmp_path, skip_index=False), Workers()).wrap_generate_sequences()
