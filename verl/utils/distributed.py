# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `verl.utils.distributed`, except that a CPU's process group speaks gloo alone.

Upstream asks for one back end for the CPU and one for the device; where the device is the CPU, torch refuses the pair.
"""

from __future__ import annotations

import os

from _verl_overlay import extend
from verl.utils import distributed__upstream as _upstream
from verl.utils.device import get_nccl_backend, is_cpu_backend

if is_cpu_backend:

    def initialize_global_process_group_ray(timeout_second: float | None = None, backend: str | None = None) -> None:
        """Join the process group that the environment describes, unless this process is in one already.

        Args:
            timeout_second: Longest wait of a collective operation; None for torch's default.
            backend: As `torch.distributed.init_process_group` takes it; None for what the device needs.
        """
        if os.environ.get("WORLD_SIZE") == "1":
            # Upstream looked for a free port seconds ago, and another run on the host may have taken it since. Nobody
            # has to find a single rank: let the system choose.
            os.environ["MASTER_PORT"] = "0"
        _upstream.initialize_global_process_group_ray(timeout_second, backend or get_nccl_backend())


extend(__name__, _upstream)
