# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Each primary configuration, composed with the fork and by plain upstream: only the fork's keys differ."""

import shutil
import subprocess
import sys
from dataclasses import fields
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir, initialize_config_module
from hydra.errors import ConfigCompositionException
from omegaconf import OmegaConf

from verl.trainer.config import TrainerConfig

PRIMARY = {
    "ppo_trainer": [],
    "ppo_megatron_trainer": [],
    "ppo_trainer with torchtitan": ["model_engine=torchtitan"],
    "ppo_trainer with veomni": ["model_engine=veomni"],
    "ppo_trainer with a Megatron actor": ["actor@actor_rollout_ref.actor=megatron_actor"],
}
FORK_KEYS = {
    "trainer._target_": "verl.trainer.config.TrainerConfig",
    "trainer.share_data": None,
    "trainer.share_data_dir": "/tmp/verl/share_data_dir",
    "trainer.share_data_timeout_s": 7200,
    "trainer.share_data_silence_s": 180,
    "trainer.share_data_ckpt_format": "auto",
    "trainer.share_data_keep_ckpts": 2,
    "trainer.share_data_strict": True,
    "trainer.share_data_replay": False,
    "trainer.share_data_evidence": "tokens",
    "trainer.share_data_evidence_tokens": 1_048_576,
    "trainer.share_data_weight_change": "full",
    "trainer.share_data_noise": 20,
    "actor_rollout_ref.rollout.skip_index": True,
}
UPSTREAM = next(
    folder
    for folder in map(Path, find_spec("verl").submodule_search_locations)
    if (folder / "version" / "version").exists()
)


def flat(config):
    """Every leaf by its dotted name, not resolved."""
    found = {}

    def walk(node, prefix):
        if isinstance(node, dict) and node:
            for key, value in node.items():
                walk(value, f"{prefix}{key}.")
        else:
            found[prefix[:-1]] = node

    walk(OmegaConf.to_container(config), "")
    return found


def fork(name, overrides=()):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name.split()[0], overrides=list(overrides))


def upstream(name, overrides, tmp_path):
    """The same, from a copy of upstream's folder that lies outside `verl`, where the overlay merges nothing."""
    copy = tmp_path / "config"
    shutil.copytree(UPSTREAM / "trainer" / "config", copy, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    with initialize_config_dir(str(copy), version_base=None):
        return compose(name.split()[0], overrides=list(overrides))


@pytest.mark.parametrize("name", PRIMARY)
def test_only_the_forks_keys_differ(name, tmp_path):
    ours, theirs = flat(fork(name, PRIMARY[name])), flat(upstream(name, PRIMARY[name], tmp_path))
    assert {key: ours[key] for key in ours.keys() - theirs.keys()} == FORK_KEYS
    assert {key: ours[key] for key in theirs} == theirs


def test_order_of_upstreams_keys_is_kept(tmp_path):
    ours = [key for key in fork("ppo_trainer").trainer if f"trainer.{key}" not in FORK_KEYS]
    assert ours == list(upstream("ppo_trainer", [], tmp_path).trainer)


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer", "ppo_cpu_trainer"])
def test_with_and_without_plus_signs(name):
    assert fork(name, ["trainer.share_data=ckpt"]) == fork(name, ["++trainer.share_data=ckpt"])
    assert fork(name, ["trainer.share_data=ckpt"]).trainer.share_data == "ckpt"


def test_an_unknown_key_is_still_refused():
    with pytest.raises(ConfigCompositionException, match="share_dta"):
        fork("ppo_trainer", ["trainer.share_dta=ckpt"])


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_the_typed_section_knows_every_key_of_the_yaml_with_its_default(name):
    section = fork(name).trainer
    known = {f.name for f in fields(TrainerConfig)}
    assert set(section) <= known
    typed = TrainerConfig.from_section(OmegaConf.to_container(section, resolve=True))
    if name == "ppo_trainer":
        assert set(section) == known
        defaults = TrainerConfig()
        for key in known - {"_target_", "default_local_dir"}:
            assert defaults[key] == typed[key], key


@pytest.mark.parametrize(
    "path", ["share_data.yaml", "ppo_trainer.yaml", "ppo_megatron_trainer.yaml", "rollout/rollout.yaml"]
)
def test_a_comment_stands_above_each_key(path):
    lines = (Path(__file__).parents[3] / "verl" / "trainer" / "config" / path).read_text().splitlines()
    for above, line in pairwise(lines):
        if ":" in line and not line.lstrip().startswith("#"):
            assert above.lstrip().startswith("# "), line


@pytest.mark.slow
def test_cfg_job_shows_the_keys_from_any_folder(tmp_path):
    command = [sys.executable, "-m", "verl.trainer.main_ppo", "trainer.share_data=rollout", "--cfg", "job"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120, check=True)
    assert "  share_data: rollout\n" in done.stdout
    assert "    skip_index: true\n" in done.stdout
