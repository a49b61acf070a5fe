# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's CPU worker with what upstream's receiver of weights asks of a worker. Named by `platform.py`."""

from __future__ import annotations

import os

import torch
from vllm import _custom_ops
from vllm.v1.worker.cpu_worker import CPUWorker

from verl.workers.rollout.vllm_cpu import device_uuid


class CrosscheckCpuWorker(CPUWorker):
    """vLLM's, which leaves its `device` unset.

    Builds with oneDNN (AVX-512, ARM) and the kernels of SGLang repack each linear layer's weight when the model is
    loaded and then drop it, so that later weights have nowhere to go. They are switched off.
    """

    def init_device(self) -> None:
        """See vLLM; called before the model is loaded."""
        _custom_ops._supports_onednn = False
        os.environ["VLLM_CPU_SGL_KERNEL"] = "0"
        super().init_device()
        self.device = torch.device("cpu")
        self.device_uuid = device_uuid.of_vllm_worker(self.local_rank)
        """Upstream's receiver asks the platform only if this is empty."""
