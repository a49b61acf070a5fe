# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every launch script composes, on both sides, into what it promises. Nothing is trained."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from verl.trainer.config import TrainerConfig

SCRIPTS = sorted((Path(__file__).parents[2] / "examples").glob("*.sh"))
STRATEGY = {"crosscheck_fsdp.sh": "fsdp2", "crosscheck_megatron.sh": "megatron"}

pytestmark = pytest.mark.slow


def compose(script, **variables):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **variables}
    command = ["bash", str(script), "trainer.nnodes=2", "--cfg", "job"]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)


def test_they_are_all_known():
    assert {script.name for script in SCRIPTS} == STRATEGY.keys()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
@pytest.mark.parametrize("mode", ["ckpt", "rollout"])
def test_it_composes(script, mode, tmp_path):
    share = tmp_path / "with space, \u00e4"
    done = compose(script, MODE=mode, SHARE_DIR=str(share), MODEL="/models/m", TRAIN="t.parquet", VAL="v.parquet")
    assert done.returncode == 0, done.stderr
    config = OmegaConf.create(done.stdout)
    trainer = TrainerConfig.from_section(OmegaConf.to_container(config.trainer, resolve=True))
    assert (trainer.share_data, trainer.share_data_dir, trainer.nnodes) == (mode, str(share), 2)
    assert config.actor_rollout_ref.actor.strategy == STRATEGY[script.name]
    assert config.actor_rollout_ref.model.path == "/models/m"
    assert config.actor_rollout_ref.rollout.calculate_log_probs is True


def test_a_missing_variable_is_named():
    done = compose(SCRIPTS[0], MODE="ckpt")
    assert done.returncode != 0
    assert "SHARE_DIR: directory that both runs reach" in done.stderr
