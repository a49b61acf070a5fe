# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.utils.model`."""

from typing import Any

import torch

def convert_weight_keys(state_dict: dict[str, Any], model: torch.nn.Module) -> dict[str, Any]: ...
