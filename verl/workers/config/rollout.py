# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Adds `skip_index` to upstream's typed rollout configuration."""

from dataclasses import dataclass
from typing import Any

from verl.workers.config import rollout__upstream as _base
from verl.workers.config.rollout__upstream import *  # noqa: F403

__all__ = _base.__all__


def __getattr__(name: str) -> Any:
    return getattr(_base, name)


@dataclass
class RolloutConfig(_base.RolloutConfig):
    """Upstream's rollout configuration and the fork's one field.

    Args:
        skip_index: With `skip_rollout`, give each call of `generate_sequences` a file of its own, counted from 0.
            False gives upstream's one file for all calls.
    """

    skip_index: bool = True
