# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The typed trainer section: what it takes, and what it refuses before anything starts."""

import subprocess
import sys
from dataclasses import FrozenInstanceError

import pytest
from omegaconf import OmegaConf
from rollout_fixtures import make_config

from verl.crosscheck.errors import DirectoryError, SettingsError
from verl.crosscheck.run.startup import prepare
from verl.crosscheck.settings import ShareMode
from verl.trainer.config import CheckpointConfig, TrainerConfig
from verl.utils.config import omega_conf_to_dataclass


@pytest.mark.parametrize(("value", "mode"), [("ckpt", ShareMode.CKPT), ("rollout", ShareMode.ROLLOUT), (None, None)])
def test_modes(value, mode):
    assert TrainerConfig(share_data=value).share_settings.mode is mode


@pytest.mark.parametrize("value", ["foo", "", "CKPT", "Rollout", " ckpt", "null", "None", True, False, 0, ["ckpt"]])
def test_another_mode_is_refused_with_the_allowed_ones(value):
    with pytest.raises(SettingsError, match=r"Allowed: rollout, ckpt, null \(off\)"):
        TrainerConfig(share_data=value)


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "60", True, None])
def test_a_timeout_is_a_number_of_seconds(value):
    with pytest.raises(SettingsError, match=r"trainer\.share_data_timeout_s=.* is not a time"):
        TrainerConfig(share_data_timeout_s=value)


@pytest.mark.parametrize("value", ["", "  ", None, 5, "a\0b", "hdfs://host/share"])
def test_a_directory_is_a_path(value):
    with pytest.raises(SettingsError, match=r"trainer\.share_data_dir=.* is not a path"):
        TrainerConfig(share_data_dir=value)


@pytest.mark.parametrize("value", [0, 14.9, -180, float("nan"), float("inf"), "180", True, None])
def test_silence_is_longer_than_a_few_heartbeats(value):
    with pytest.raises(SettingsError, match=r"trainer\.share_data_silence_s="):
        TrainerConfig(share_data_silence_s=value)


@pytest.mark.parametrize("value", [0, 1, -2, 2.0, "2", True])
def test_the_newest_two_checkpoints_are_kept(value):
    with pytest.raises(SettingsError, match=r"share_data_keep_ckpts=.*at least 2, or null"):
        TrainerConfig(share_data_keep_ckpts=value)


@pytest.mark.parametrize("key", ["share_data_strict", "share_data_replay"])
@pytest.mark.parametrize("value", [None, 1, "yes", "false"])
def test_a_switch_is_true_or_false(key, value):
    with pytest.raises(SettingsError, match=rf"trainer\.{key}=.* is neither True nor False"):
        TrainerConfig(**{key: value})


def test_a_replay_needs_a_mode_and_a_directory_that_is_there(tmp_path):
    config = make_config(tmp_path / "share")
    config.trainer.share_data_replay = True
    with pytest.raises(SettingsError, match="share_data_replay=True says nothing without a mode"):
        prepare(config)
    config.trainer.share_data = "rollout"
    with pytest.raises(DirectoryError, match="is no directory, and only what is there can be read"):
        prepare(config)
    assert not (tmp_path / "share").exists()


def test_defaults_of_the_contract():
    config = TrainerConfig()
    assert (config.share_data, config.share_data_dir, config.share_data_timeout_s) == (
        None,
        "/tmp/verl/share_data_dir",
        7200,
    )
    assert (config.share_data_silence_s, config.share_data_keep_ckpts) == (180, 2)
    assert (config.share_data_strict, config.share_data_replay) == (True, False)


def test_it_is_read_only_and_a_mapping_like_upstreams():
    config = TrainerConfig()
    with pytest.raises(FrozenInstanceError):
        config.share_data = "ckpt"
    assert config["nnodes"] == config.get("nnodes") == 1
    assert CheckpointConfig().async_save is False  # upstream's classes are still there


def test_hydra_can_instantiate_the_section():
    section = OmegaConf.create({"_target_": "verl.trainer.config.TrainerConfig", "share_data": "ckpt", "nnodes": 2})
    config = omega_conf_to_dataclass(section)
    assert type(config) is TrainerConfig
    assert (config.share_settings.mode, config.nnodes) == (ShareMode.CKPT, 2)
    with pytest.raises(Exception, match="Allowed: rollout, ckpt"):
        omega_conf_to_dataclass(OmegaConf.create({"_target_": "verl.trainer.config.TrainerConfig", "share_data": "x"}))


def test_keys_that_a_recipe_added_are_left_to_it():
    assert TrainerConfig.from_section({"share_data": "ckpt", "my_recipe": 1}).share_settings.mode is ShareMode.CKPT


def test_prepare_resolves_the_directory_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = make_config("with space/\u4e2d", "ckpt")
    prepared = prepare(config)
    monkeypatch.chdir("/")
    assert config.trainer.share_data_dir == str(prepared.directory) == str(tmp_path / "with space" / "\u4e2d")
    assert prepare(config) == prepared


def test_prepare_touches_nothing_when_off(tmp_path):
    config = make_config(tmp_path / "share")
    before = OmegaConf.to_yaml(config)
    assert prepare(config).mode is None
    assert OmegaConf.to_yaml(config) == before
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mode", ["ckpt", "rollout"])
def test_skip_and_share_exclude_each_other(tmp_path, mode):
    with pytest.raises(SettingsError, match=f"skip_rollout=True and trainer.share_data={mode} exclude each other"):
        prepare(make_config(tmp_path, mode, skip_rollout=True))


@pytest.mark.parametrize(("mode", "key"), [("ckpt", "load_contents"), ("rollout", "save_contents")])
def test_checkpoints_without_the_model_are_refused(tmp_path, mode, key):
    config = make_config(tmp_path, mode)
    config.actor_rollout_ref.actor.checkpoint[key] = ["optimizer"]
    with pytest.raises(SettingsError, match=rf"checkpoint\.{key}=\['optimizer'\] leaves out 'model'"):
        prepare(config)


def test_what_cannot_be_exchanged_is_refused(tmp_path):
    config = make_config(tmp_path, "rollout")
    config.actor_rollout_ref.actor.strategy = "megatron"
    config.actor_rollout_ref.actor.checkpoint.async_save = True
    prepare(config)
    config.trainer.use_legacy_worker_impl = "disable"
    with pytest.raises(SettingsError, match="async_save=False"):
        prepare(config)
    config = make_config(tmp_path, "ckpt")
    config.async_training = {"staleness_threshold": 1}
    with pytest.raises(SettingsError, match="fully asynchronous"):
        prepare(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("trainer.share_data=foo", "Allowed: rollout, ckpt, null (off)"),
        ("trainer.share_data=", "trainer.share_data='' is not a mode"),
        ("++trainer.share_data=Ckpt", "trainer.share_data='Ckpt' is not a mode"),
    ],
)
def test_main_ppo_refuses_before_ray_starts(tmp_path, override, message):
    command = [sys.executable, "-m", "verl.trainer.main_ppo", override, f"hydra.run.dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "ray init kwargs" not in done.stdout
