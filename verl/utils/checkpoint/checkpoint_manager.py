# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps checkpoints saved for the other run of a cross-check out of the count of the run's own ones, and passes over a
random state that is of another kind of device."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from _verl_overlay import extend
from verl.crosscheck.console import MARK, say
from verl.crosscheck.exchange.layout import is_staged
from verl.utils.checkpoint import checkpoint_manager__upstream as _upstream
from verl.utils.device import get_device_name

_OF_ANY_DEVICE = frozenset({"cpu", "numpy", "random"})
"""Entries of a random state that every kind of device has."""


class BaseCheckpointManager(_upstream.BaseCheckpointManager):
    """Upstream's manager, base of the FSDP and Megatron ones, blind to what is saved for the exchange.

    Upstream counts every path it saved towards `max_actor_ckpt_to_keep` and deletes the oldest beyond that: with one
    exchanged checkpoint a step, the run's own would go within a few steps.
    """

    def register_checkpoint(self, new_path: str, max_ckpt_to_keep: int | None) -> None:
        if not is_staged(Path(new_path)):
            super().register_checkpoint(new_path, max_ckpt_to_keep)

    @staticmethod
    def load_rng_state(rng_state: Mapping[str, Any]) -> None:
        """Upstream keeps a device's random state under the device's name, and wants it under its own device's."""
        device = get_device_name()
        if device in rng_state:
            _upstream.BaseCheckpointManager.load_rng_state(rng_state)
            return
        saved_on = ", ".join(sorted(set(rng_state) - _OF_ANY_DEVICE)) or "a CPU"
        say(MARK, f"the checkpoint's random state is of {saved_on}, so that of {device} stays as it is", "yellow")
        with patch.object(_upstream, "get_device_name", lambda: "cpu"):
            _upstream.BaseCheckpointManager.load_rng_state(rng_state)


extend(__name__, _upstream)
