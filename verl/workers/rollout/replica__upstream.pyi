# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.workers.rollout.replica`."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from verl.workers.config import HFModelConfig, RolloutConfig

class TokenOutput(BaseModel):
    token_ids: list[int]
    log_probs: list[float] | None = None
    stop_reason: str | None = None

class RolloutReplica(ABC):
    replica_rank: int
    config: RolloutConfig
    model_config: HFModelConfig
    world_size: int
    """Ranks of one replica."""
    workers: list[Any]
    """Ray actors of those ranks."""
    servers: list[Any]
    """Ray actors that serve the replica."""
    _server_address: str | None
    _server_handle: Any

    def __init__(
        self,
        replica_rank: int,
        config: RolloutConfig,
        model_config: Any,
        gpus_per_node: int = 8,
        is_reward_model: bool = False,
    ) -> None: ...
    @abstractmethod
    async def launch_servers(self) -> None: ...
    @property
    def max_concurrency(self) -> int: ...

class RolloutReplicaRegistry:
    @classmethod
    def register(cls, name: str, loader: Callable[[], type[RolloutReplica]]) -> None: ...
