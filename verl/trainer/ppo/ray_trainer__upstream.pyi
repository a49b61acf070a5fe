# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.trainer.ppo.ray_trainer`."""

from typing import Any

from verl.protocol import DataProto

class RayPPOTrainer:
    actor_rollout_wg: Any
    """Worker group of the actor; set by `init_workers`."""
    global_steps: int
    """Step of the trainer, from 1; set by `fit` and `_load_checkpoint`."""

    def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None: ...
    def fit(self) -> Any: ...
    def _load_checkpoint(self) -> Any: ...
    def _save_checkpoint(self) -> None: ...
    def _compute_old_log_prob(self, batch: DataProto) -> Any: ...
    def _update_actor(self, batch: DataProto) -> DataProto: ...
