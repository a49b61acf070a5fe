# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Hydra sees the fork's configuration over upstream's, however a folder is named and wherever the process stands."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import OmegaConf

import _verl_overlay
from verl.crosscheck.installation import read_installation

CLONE = Path(__file__).resolve().parents[2]
UPSTREAM = read_installation().upstream_folder
CONFIG = UPSTREAM / "trainer" / "config"
RELATIVE = sorted(
    file.relative_to(UPSTREAM) for file in UPSTREAM.rglob("*.yaml") if "file://verl/trainer/config" in file.read_text()
)
"""Upstream's configurations that name the trainer's folder relative to the working directory."""


@pytest.fixture(autouse=True)
def fresh_hydra():
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.fixture
def other_clone(tmp_path):
    """A checkout of the fork that is not the one installed, with an edit."""
    folder = tmp_path / "other"
    shutil.copytree(_verl_overlay.ROOT, folder / "verl", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "verl" / "trainer" / "config" / "ppo_trainer.yaml").write_text("trainer:\n  edited: true\n")
    return folder


def has_keys_of_both(config):
    """The fork's key and upstream's in one section."""
    return {"share_data", "share_data_dir", "total_epochs"} <= set(config.trainer)


def from_folder(folder, name="ppo_trainer", overrides=()):
    with initialize_config_dir(config_dir=str(folder), version_base=None):
        return compose(name, overrides=list(overrides))


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer", "ppo_cpu_trainer"])
def test_by_package(name):
    with initialize_config_module("verl.trainer.config", version_base=None):
        assert has_keys_of_both(compose(name))


@pytest.mark.parametrize("folder", [CONFIG, Path(_verl_overlay.ROOT, "trainer", "config")])
def test_by_folder_of_upstream_or_of_the_fork(folder):
    assert has_keys_of_both(from_folder(folder))


@pytest.mark.parametrize(
    "overrides",
    [
        ["trainer.share_data=ckpt"],
        ["++trainer.share_data=ckpt"],
        ["trainer.share_data=ckpt", "model_engine=veomni"],
        ["trainer.share_data=ckpt", "actor@actor_rollout_ref.actor=megatron_actor"],
    ],
)
def test_overrides(overrides):
    assert from_folder(CONFIG, overrides=overrides).trainer.share_data == "ckpt"


def test_a_key_that_neither_has_is_refused():
    with pytest.raises(HydraException, match="share_dat"):
        from_folder(CONFIG, overrides=["trainer.share_dat=ckpt"])


def test_a_file_in_a_group_is_merged_too():
    rollout = from_folder(CONFIG).actor_rollout_ref.rollout
    assert rollout.skip_index is True
    assert "temperature" in rollout


def leaves(node, prefix=""):
    """Value by dotted key."""
    if not isinstance(node, dict) or not node:
        return {prefix: node}
    return {key: value for name, inner in node.items() for key, value in leaves(inner, f"{prefix}.{name}").items()}


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_the_fork_only_adds_keys(name, monkeypatch):
    with_fork = leaves(OmegaConf.to_container(from_folder(CONFIG, name), resolve=False))
    monkeypatch.setattr(sys.modules["hydra_plugins.verl_overlay"], "_roots", lambda: [str(UPSTREAM)])
    without = leaves(OmegaConf.to_container(from_folder(CONFIG, name), resolve=False))
    assert ".trainer.share_data" not in without
    assert {key: with_fork.get(key) for key in without} == without


def test_a_folder_outside_verl_is_read_as_ever(tmp_path):
    (tmp_path / "ppo_trainer.yaml").write_text("mine: 1\n")
    assert from_folder(tmp_path) == {"mine": 1}


def test_a_search_path_of_the_users_own(tmp_path, monkeypatch):
    """A relative folder of that name that is there, and is no clone, is the user's."""
    (tmp_path / "verl" / "trainer" / "config").mkdir(parents=True)
    (tmp_path / "verl" / "trainer" / "config" / "ppo_trainer.yaml").write_text("mine: 1\n")
    (tmp_path / "main.yaml").write_text(
        "hydra:\n  searchpath: ['file://verl/trainer/config']\ndefaults: [ppo_trainer, _self_]\n"
    )
    monkeypatch.chdir(tmp_path)
    assert from_folder(tmp_path, "main") == {"mine": 1}


def test_a_clone_that_is_not_the_installed_one_is_not_read_and_says_so(other_clone, caplog):
    config = from_folder(other_clone / "verl" / "trainer" / "config")
    assert has_keys_of_both(config)
    assert "edited" not in config.trainer
    assert caplog.text.count("not the one installed") == 1
    assert "pip install -e ." in caplog.text


@pytest.mark.parametrize("file", RELATIVE, ids=lambda file: file.stem)
@pytest.mark.parametrize("place", ["root", "clone", "other clone"])
def test_configurations_with_a_relative_search_path(file, place, other_clone, monkeypatch):
    monkeypatch.chdir({"root": "/", "clone": CLONE, "other clone": other_clone}[place])
    assert has_keys_of_both(from_folder(UPSTREAM / file.parent, file.stem))


def test_relative_search_paths_are_still_there():
    """The six that the tests above stand for."""
    assert len(RELATIVE) == 6


@pytest.mark.slow
def test_the_entry_point_shows_the_keys():
    run = subprocess.run(
        [sys.executable, "-m", "verl.trainer.main_ppo", "--cfg", "job", "trainer.share_data=ckpt"],
        cwd=CLONE,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    assert "share_data: ckpt" in run.stdout
