# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's CPU worker with what upstream's receiver of weights asks of a worker. Named by `platform.py`."""

from __future__ import annotations

import torch
from vllm.v1.worker.cpu_worker import CPUWorker

from verl.workers.rollout.vllm_cpu import device_uuid


class CrosscheckCpuWorker(CPUWorker):
    """vLLM's, which leaves its `device` unset."""

    def init_device(self) -> None:
        """See vLLM."""
        super().init_device()
        self.device = torch.device("cpu")
        self.device_uuid = device_uuid.of_vllm_worker(self.local_rank)
        """Upstream's receiver asks the platform only if this is empty."""
