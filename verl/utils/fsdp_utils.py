# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `verl.utils.fsdp_utils`; on a CPU, parameters that are kept in main memory are not pinned.

Upstream keeps the reference policy's there, pinned so that a GPU can fetch them faster. Without a GPU torch refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _verl_overlay import extend
from verl.utils import fsdp_utils__upstream as _upstream
from verl.utils.device import is_cpu_backend

if TYPE_CHECKING:
    from verl.utils.fsdp_utils__upstream import (  # noqa: F401  given by `extend`
        merged_lora_context,
        normalize_peft_param_name,
        offload_fsdp_model_to_cpu,
        offload_fsdp_optimizer,
    )

if is_cpu_backend:

    class CPUOffloadPolicy(_upstream.CPUOffloadPolicy):
        """Torch's, deaf to the wish for pinned memory."""

        def __init__(self, pin_memory: bool = False) -> None:
            super().__init__(pin_memory=False)


extend(__name__, _upstream)
