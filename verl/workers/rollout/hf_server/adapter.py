# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The rollout half of a training worker: sends its weights to the server actor of the same rank."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import ray
import torch
import torch.distributed
from ray.actor import ActorHandle

from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.hf_server.replica import server_name
from verl.workers.rollout.hf_server.weights import buckets


class HFServerAdapter(BaseRollout):
    """Lives in each rank's worker; the server is started later, by the rank's `HFReplica`."""

    @cached_property
    def _server(self) -> ActorHandle:
        return ray.get_actor(server_name(torch.distributed.get_rank()))

    async def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], **kwargs: Any) -> None:
        """Send full tensors by name, in their own dtype; returns once the server serves them.

        Every rank must call this: making a full tensor is a collective operation.

        Raises:
            NotImplementedError: LoRA adapters that are not merged.
        """
        if kwargs.get("peft_config") is not None:
            raise NotImplementedError(
                "the hf rollout serves whole models: merge the adapter (actor_rollout_ref.model.lora.merge=True)"
            )
        for bucket in buckets(weights, self.config.checkpoint_engine.update_weights_bucket_megabytes << 20):
            await self._server.load_weights.remote(bucket)
        await self._server.finish_weights.remote(kwargs.get("global_steps"))

    async def resume(self, tags: list[str]) -> None:
        """Main memory is not handed back and forth."""

    async def release(self) -> None:
        """Main memory is not handed back and forth."""
