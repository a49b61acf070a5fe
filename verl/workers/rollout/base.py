# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's rollout base; on a CPU its table also holds the `hf` rollout."""

from typing import TYPE_CHECKING

from _verl_overlay import extend
from verl.utils.device import is_cpu_backend
from verl.workers.rollout import base__upstream as _upstream

if TYPE_CHECKING:
    from verl.workers.rollout.base__upstream import BaseRollout  # noqa: F401  given by `extend`

if is_cpu_backend:
    _upstream._ROLLOUT_REGISTRY["hf", "async"] = "verl.workers.rollout.hf_server.adapter.HFServerAdapter"

extend(__name__, _upstream)
