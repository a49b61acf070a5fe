# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's rollout replicas; on a CPU the registry also holds the `hf` rollout."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _verl_overlay import extend
from verl.utils.device import is_cpu_backend
from verl.workers.rollout import replica__upstream as _upstream

if TYPE_CHECKING:
    from verl.workers.rollout.replica__upstream import RolloutReplica, TokenOutput  # noqa: F401  given by `extend`

if is_cpu_backend:

    def _load_hf() -> type[_upstream.RolloutReplica]:
        from verl.workers.rollout.hf_server.replica import HFReplica

        return HFReplica

    _upstream.RolloutReplicaRegistry.register("hf", _load_hf)

extend(__name__, _upstream)
