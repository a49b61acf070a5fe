# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps checkpoints saved for the other run of a cross-check out of the count of the run's own ones."""

from pathlib import Path

from _verl_overlay import extend
from verl.crosscheck.exchange.layout import is_staged
from verl.utils.checkpoint import checkpoint_manager__upstream as _upstream


class BaseCheckpointManager(_upstream.BaseCheckpointManager):
    """Upstream's manager, base of the FSDP and Megatron ones, blind to what is saved for the exchange.

    Upstream counts every path it saved towards `max_actor_ckpt_to_keep` and deletes the oldest beyond that: with one
    exchanged checkpoint a step, the run's own would go within a few steps.
    """

    def register_checkpoint(self, new_path: str, max_ckpt_to_keep: int | None) -> None:
        if not is_staged(Path(new_path)):
            super().register_checkpoint(new_path, max_ckpt_to_keep)


extend(__name__, _upstream)
