# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every launch script composes, on both sides, into what it promises, and upstream's classes take it. Nothing trains.

A script is run with a stand-in for `python` that writes down what it is given; that is composed in this process.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from verl.crosscheck.run.startup import validate
from verl.trainer.config import TrainerConfig
from verl.utils.config import omega_conf_to_dataclass, validate_config

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("crosscheck_*.sh"))
TINY_MODEL = ROOT / "recipe" / "crosscheck" / "model"
EXPECTED = {
    "crosscheck_fsdp_gpu.sh": ("fsdp2", "cuda"),
    "crosscheck_fsdp_npu.sh": ("fsdp2", "npu"),
    "crosscheck_megatron_gpu.sh": ("megatron", "cuda"),
    "crosscheck_megatron_npu.sh": ("megatron", "npu"),
}
"""Back end and device by script."""

each_script = pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)


@pytest.fixture(autouse=True)
def fresh_hydra():
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.fixture
def launched(tmp_path):
    """Run a script with variables; what it starts `python` with, and its environment."""
    stand_in = tmp_path / "bin" / "python"
    stand_in.parent.mkdir()
    stand_in.write_text(f'#!/bin/sh\nenv > {tmp_path}/env\nprintf "%s\\0" "$@" > {tmp_path}/arguments\n')
    stand_in.chmod(0o755)

    def launch(script, *arguments, **variables):
        environment = {"PATH": f"{stand_in.parent}:{os.environ['PATH']}", **variables}
        done = subprocess.run(
            [shutil.which("bash"), str(script), *arguments],
            capture_output=True, text=True, env=environment, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        started = (tmp_path / "arguments").read_text().split("\0")[:-1]
        return started, dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines() if "=" in line)

    return launch


def composed(arguments):
    """The configuration that `python -m verl.trainer.main_ppo` makes of these arguments."""
    assert arguments[:2] == ["-m", "verl.trainer.main_ppo"]
    name, overrides = "ppo_trainer", arguments[2:]
    if overrides[0].startswith("--config-name="):
        name, overrides = overrides[0].removeprefix("--config-name="), overrides[1:]
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=overrides)


def test_they_are_all_known():
    assert {script.name for script in SCRIPTS} == EXPECTED.keys()


@each_script
@pytest.mark.parametrize("mode", ["ckpt", "rollout"])
def test_it_composes_and_upstream_takes_it(script, mode, launched, tmp_path):
    share = str(tmp_path / "with space, \u00e4")
    arguments, _ = launched(script, "trainer.nnodes=2", MODE=mode, DIR=share, MODEL=str(TINY_MODEL), DATA="/data/gsm8k")
    config = composed(arguments)

    trainer = TrainerConfig.from_section(OmegaConf.to_container(config.trainer, resolve=True))
    assert (trainer.share_data, trainer.share_data_dir, trainer.nnodes) == (mode, share, 2)
    assert validate(config).mode == mode
    assert (config.actor_rollout_ref.actor.strategy, trainer.device) == EXPECTED[script.name]
    assert (config.data.train_files, config.data.val_files) == (
        "/data/gsm8k/train.parquet",
        "/data/gsm8k/test.parquet",
    )

    validate_config(config, use_reference_policy=False, use_critic=False)
    model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
    assert model.path == str(TINY_MODEL)
    assert model.hf_config.num_hidden_layers > 0
    rollout = omega_conf_to_dataclass(config.actor_rollout_ref.rollout)
    assert (rollout.calculate_log_probs, rollout.top_p, rollout.top_k) == (True, 1.0, -1)
    actor = omega_conf_to_dataclass(config.actor_rollout_ref.actor)
    if EXPECTED[script.name][0] == "fsdp2":
        assert actor.engine.strategy == config.actor_rollout_ref.ref.fsdp_config.strategy == "fsdp2"


@each_script
def test_both_sides_ask_the_same(script, launched):
    """Else the runs would refuse each other: what differs between the modes is a mode, and a name."""
    given = {"DIR": "/mnt/share", "MODEL": "/models/m", "TRAIN": "a.parquet", "VAL": "b.parquet"}
    ckpt, rollout = (launched(script, MODE=mode, **given)[0] for mode in ("ckpt", "rollout"))
    differing = {one.split("=")[0] for one, other in zip(ckpt, rollout, strict=True) if one != other}
    assert differing == {"trainer.share_data", "trainer.experiment_name"}


@each_script
def test_no_override_stands_twice(script, launched):
    arguments, _ = launched(script, MODE="ckpt", DIR="/s", MODEL="/m", DATA="/d")
    overrides = [argument for argument in arguments[2:] if not argument.startswith("--")]
    keys = [override.key_or_group for override in OverridesParser.create().parse_overrides(overrides)]
    assert len(set(keys)) == len(keys)


@each_script
def test_an_npu_run_repeats(script, launched):
    _, environment = launched(script, MODE="ckpt", DIR="/s", MODEL="/m", DATA="/d")
    fixed = {"CLOSE_MATMUL_K_SHIFT": "1", "ATB_MATMUL_SHUFFLE_K_ENABLE": "0", "HCCL_DETERMINISTIC": "true"}
    found = {key: value for key, value in environment.items() if key in fixed}
    assert found == (fixed if EXPECTED[script.name][1] == "npu" else {})


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("MODE", "MODE: ckpt or rollout"),
        ("DIR", "DIR: directory that both runs reach"),
        ("MODEL", "MODEL: folder of the model"),
        ("DATA", "DATA: folder with train.parquet and test.parquet"),
    ],
)
def test_a_missing_variable_is_named(missing, text):
    given = {"MODE": "ckpt", "DIR": "/s", "MODEL": "/m", "DATA": "/d"}
    del given[missing]
    environment = {"PATH": os.environ["PATH"], **given}
    done = subprocess.run(
        [shutil.which("bash"), str(SCRIPTS[0])], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode != 0
    assert text in done.stderr
