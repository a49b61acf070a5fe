# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `verl.utils.device`, with a CPU as a device of its own where neither CUDA nor NPU is there.

On a machine with an accelerator every name here is upstream's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _verl_overlay import extend
from verl.utils import cpu_device as _cpu
from verl.utils import device__upstream as _upstream

if TYPE_CHECKING:
    from verl.utils.device__upstream import get_device_id, get_device_name, get_visible_devices_keyword  # noqa: F401  given by `extend`

is_cpu_backend: bool = not (_upstream.is_cuda_available or _upstream.is_npu_available or _cpu.machine_has_accelerator())
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


extend(__name__, _upstream)
