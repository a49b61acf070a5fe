# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.utils.checkpoint.checkpoint_manager`."""

from collections.abc import Mapping
from typing import Any

class BaseCheckpointManager:
    def register_checkpoint(self, new_path: str, max_ckpt_to_keep: int | None) -> None: ...
    @staticmethod
    def load_rng_state(rng_state: Mapping[str, Any]) -> None: ...
