# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which runs there are, and what each is told."""

from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.pair.commands import parse
from verl.crosscheck.pair.plan import PairRequest, pairs, require_own_ports, shared_devices

TRAIN = "python -m verl.trainer.main_ppo"


def request(a=TRAIN, b=TRAIN, *, scenarios=(1, 2), steps=3, root="/x", control=False, a_env=None, b_env=None):
    place = Path(root)
    return PairRequest(
        parse(a, "--a"), parse(b, "--b"), a_env or {}, b_env or {}, scenarios, steps, place, place, control
    )


def told(side):
    """What Hydra and OmegaConf make of the overrides."""
    parsed = OverridesParser.create().parse_overrides(list(side.overrides))
    config = OmegaConf.create({})
    for each in parsed:
        OmegaConf.update(config, each.key_or_group, each.value())
    return OmegaConf.to_container(config, resolve=True)


def test_modes_and_directories():
    first, second = pairs(request())
    assert [(side.label, side.mode) for side in first.sides] == [("A", "ckpt"), ("B", "rollout")]
    assert [(side.label, side.mode) for side in second.sides] == [("A", "rollout"), ("B", "ckpt")]
    assert (first.exchange, second.exchange) == (Path("/x/scenario_1"), Path("/x/scenario_2"))
    assert first.sides[0].log == Path("/x/runs/scenario_1/a/run.log")
    assert len({side.folder for pair in (first, second) for side in pair.sides}) == 4
    assert [pair.scenario for pair in pairs(request(scenarios=(2,)))] == [2]


@pytest.mark.parametrize("root", ["/x", "/my runs/it's", "/a,b=c/${d}", "/{e}/[f]/~g", "/ü/\\n\\"])
def test_what_each_run_is_told_arrives(root):
    pair, _ = pairs(request(root=root, steps=7))
    for side, mode, name in zip(pair.sides, ("ckpt", "rollout"), "ab", strict=True):
        values = told(side)
        assert values["actor_rollout_ref"] == {"rollout": {"calculate_log_probs": True}}
        assert values["trainer"] == {
            "share_data": mode,
            "share_data_dir": f"{root}/scenario_1",
            "total_training_steps": 7,
            "total_epochs": 7,
            "default_local_dir": f"{root}/runs/scenario_1/{name}/checkpoints",
            "save_freq": -1,
        }


def test_steps_are_counted_from_the_checkpoint_that_is_resumed_from():
    text = f"{TRAIN} trainer.resume_mode=resume_path trainer.resume_from_path=/c/global_step_120"
    pair, _ = pairs(request(a=text, steps=5))
    assert told(pair.sides[0])["trainer"]["total_training_steps"] == 125
    assert told(pair.sides[1])["trainer"]["total_training_steps"] == 5  # the exchange itself tells that they differ


def test_the_control_is_b_twice_and_comes_first():
    made = request(b=f"{TRAIN} b=1", control=True, a_env={"X": "a", "CUDA_VISIBLE_DEVICES": "0"}, b_env={"X": "b"})
    control = pairs(made)[0]
    assert control.scenario is None
    assert control.exchange == Path("/x/control")
    assert {side.command.text for side in control.sides} == {f"{TRAIN} b=1"}
    assert [side.mode for side in control.sides] == ["ckpt", "rollout"]
    assert [dict(side.env) for side in control.sides] == [{"X": "b", "CUDA_VISIBLE_DEVICES": "0"}, {"X": "b"}]


def test_a_port_that_both_name_is_refused():
    one, other = f"{TRAIN} x.port=8000", f"MASTER_PORT=8000 {TRAIN}"
    with pytest.raises(SettingsError, match=r"port 8000 of this host \(--a: x\.port, --b: MASTER_PORT\)"):
        require_own_ports(pairs(request(one, other))[0])
    require_own_ports(pairs(request(one, f"{TRAIN} x.port=8001"))[0])
    with pytest.raises(SettingsError, match="Control: both runs would use port 9"):
        require_own_ports(pairs(request(b=TRAIN, b_env={"MASTER_PORT": "9"}, control=True))[0])


@pytest.mark.parametrize(
    ("a_env", "b_env", "inherited", "shared"),
    [
        ({}, {}, {}, "all of them"),
        ({}, {}, {"CUDA_VISIBLE_DEVICES": "0,1"}, "CUDA_VISIBLE_DEVICES=0,1"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, {"CUDA_VISIBLE_DEVICES": "1,2"}, {}, "CUDA_VISIBLE_DEVICES=1"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "0,1"}, ""),
        ({"ASCEND_RT_VISIBLE_DEVICES": "0"}, {"ASCEND_RT_VISIBLE_DEVICES": "1"}, {}, ""),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {}, {}, "all of them"),
    ],
)
def test_devices_that_both_see(a_env, b_env, inherited, shared):
    assert shared_devices(pairs(request(a_env=a_env, b_env=b_env))[0], inherited) == shared


def test_devices_that_a_command_names_itself():
    made = request(f"CUDA_VISIBLE_DEVICES=0 {TRAIN}", f"CUDA_VISIBLE_DEVICES=1 {TRAIN}")
    assert shared_devices(pairs(made)[0], {"CUDA_VISIBLE_DEVICES": "0,1"}) == ""
