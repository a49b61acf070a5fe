# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `verl.utils.device`, with a CPU as a device of its own where neither CUDA nor NPU is there.

On a machine with an accelerator every name here is upstream's.
"""

from __future__ import annotations

from typing import Any

from verl.utils import cpu_device as _cpu
from verl.utils import device__upstream as _upstream
from verl.utils.device__upstream import (
    check_ipc_version_support,
    get_device_capability,
    get_device_id,
    get_device_name,
    get_npu_versions,
    get_visible_devices_keyword,
    is_cuda_available,
    is_npu_available,
    is_support_ipc,
    is_torch_npu_available,
    set_expandable_segments,
)

is_cpu_backend: bool = not (is_cuda_available or is_npu_available or _cpu.machine_has_accelerator())
"""Whether this machine trains and serves on its CPU. Every CPU part of the fork asks this and nothing else."""

if is_cpu_backend:

    def get_resource_name() -> str:
        """Name of the Ray resource that stands for a rank: a "GPU" declared by `ray_kwargs.ray_init.num_gpus`."""
        return "GPU"

    def get_torch_device() -> Any:
        """`torch.cpu` with the memory functions that it lacks."""
        return _cpu.CPU

    def get_nccl_backend() -> str:
        """Name of the collective back end of `torch.distributed`."""
        return "gloo"

    def auto_set_device(config: Any) -> None:
        """Fit `config` to this machine in place, or say what in it cannot work here."""
        _cpu.prepare_config(config)

else:
    get_resource_name = _upstream.get_resource_name
    get_torch_device = _upstream.get_torch_device
    get_nccl_backend = _upstream.get_nccl_backend
    auto_set_device = _upstream.auto_set_device

__all__ = [
    "auto_set_device",
    "check_ipc_version_support",
    "get_device_capability",
    "get_device_id",
    "get_device_name",
    "get_nccl_backend",
    "get_npu_versions",
    "get_resource_name",
    "get_torch_device",
    "get_visible_devices_keyword",
    "is_cpu_backend",
    "is_cuda_available",
    "is_npu_available",
    "is_support_ipc",
    "is_torch_npu_available",
    "set_expandable_segments",
]
