# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How much of the change of the weights is measured."""

from __future__ import annotations

from enum import Enum


class ChangeDetail(str, Enum):
    """The values of `trainer.share_data_weight_change`."""

    OFF = "off"
    """Nothing; no copy of the weights is kept."""
    NORM = "norm"
    """How far this run's update and the other run's moved each tensor. Each worker keeps one copy of its shard of the
    actor's trainable parameters in main memory, in their own dtype."""
    FULL = "full"
    """Those, and how far apart the two moved it. Each worker keeps a second such copy while a checkpoint is loaded."""
