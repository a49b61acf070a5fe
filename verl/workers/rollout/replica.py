# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's rollout replicas; on a CPU the registry also holds the `hf` rollout."""

from __future__ import annotations

from verl.utils.device import is_cpu_backend
from verl.workers.rollout.replica__upstream import (
    CONTROL_METHOD_CONCURRENCY,
    RolloutMode,
    RolloutReplica,
    RolloutReplicaRegistry,
    TokenOutput,
    get_rollout_replica_class,
)

if is_cpu_backend:

    def _load_hf() -> type[RolloutReplica]:
        from verl.workers.rollout.hf_server.replica import HFReplica

        return HFReplica

    RolloutReplicaRegistry.register("hf", _load_hf)

__all__ = [
    "CONTROL_METHOD_CONCURRENCY",
    "RolloutMode",
    "RolloutReplica",
    "RolloutReplicaRegistry",
    "TokenOutput",
    "get_rollout_replica_class",
]
