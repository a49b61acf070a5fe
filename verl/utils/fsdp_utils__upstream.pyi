# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.utils.fsdp_utils`."""

from contextlib import AbstractContextManager
from typing import Any

import torch

class CPUOffloadPolicy:
    """Torch's; upstream imports it here."""

    def __init__(self, pin_memory: bool = True) -> None: ...

def merged_lora_context(actor: torch.nn.Module, backup_adapters: bool = False) -> AbstractContextManager[None]: ...
def normalize_peft_param_name(params: dict[str, Any]) -> dict[str, Any]: ...
def offload_fsdp_model_to_cpu(model: torch.nn.Module, empty_cache: bool = True) -> None: ...
def offload_fsdp_optimizer(optimizer: torch.optim.Optimizer) -> None: ...
