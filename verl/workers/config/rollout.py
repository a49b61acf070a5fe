# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Adds `skip_index` to upstream's typed rollout configuration."""

from dataclasses import dataclass

from _verl_overlay import extend
from verl.workers.config import rollout__upstream as _upstream


@dataclass
class RolloutConfig(_upstream.RolloutConfig):
    """Upstream's rollout configuration and the fork's one field.

    Args:
        skip_index: With `skip_rollout`, give each call of `generate_sequences` a file of its own, counted from 0.
            False gives upstream's one file for all calls.
    """

    skip_index: bool = True


extend(__name__, _upstream)
