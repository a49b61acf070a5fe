# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's CPU platform under upstream's trainer. vLLM learns of it from `_verl_overlay.vllm_plugin`."""

from __future__ import annotations

from typing import Any

import ray
from vllm.platforms.cpu import CpuPlatform

from verl.workers.rollout.vllm_cpu import device_uuid

VLLM_WORKER = "vllm.v1.worker.cpu_worker.CPUWorker"
WORKER = "verl.workers.rollout.vllm_cpu.worker.CrosscheckCpuWorker"


class CrosscheckCpuPlatform(CpuPlatform):
    """vLLM's, with names for devices and with a worker that has a device."""

    simple_compile_backend = "eager"
    """For vLLM's small functions, which take longer to compile than a small model's whole run."""

    @classmethod
    def get_device_uuid(cls, device_id: Any = 0) -> str:
        """Name of this process's device; asked by upstream in a training worker, which has one device."""
        return device_uuid.of_training_worker() if ray.is_initialized() else super().get_device_uuid(device_id)

    @classmethod
    def check_and_update_config(cls, vllm_config: Any) -> None:
        """See vLLM; called in the server actor before vLLM's processes start."""
        super().check_and_update_config(vllm_config)
        if vllm_config.parallel_config.worker_cls == VLLM_WORKER:
            vllm_config.parallel_config.worker_cls = WORKER
        device_uuid.hand_down()
