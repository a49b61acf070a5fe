# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The rollout half of a training worker: sends its weights to the server actor of the same rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import ray
import torch
import torch.distributed
from ray.actor import ActorHandle

from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.hf_server.digests import digest
from verl.workers.rollout.hf_server.replica import server_name
from verl.workers.rollout.hf_server.weights import buckets


class HFServerAdapter(BaseRollout):
    """Lives in each rank's worker; the server is started later, by the rank's `HFReplica`."""

    _digests: dict[str, str] | None = None
    """Of the tensors of the last update; None if nobody asked for them."""

    @cached_property
    def _server(self) -> ActorHandle:
        return ray.get_actor(self.server_name)

    @property
    def server_name(self) -> str:
        """Ray name of the server that this rank's weights go to."""
        return server_name(torch.distributed.get_rank())

    def note_digests(self) -> None:
        """From the next update on, note a digest of each tensor that is sent."""
        self._digests = {}

    def sent_digests(self) -> dict[str, str]:
        """Digests of the tensors of the last update, in the dtype in which the server holds them; empty before one."""
        return dict(self._digests or {})

    async def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], **kwargs: Any) -> None:
        """Send full tensors by name, in their own dtype; returns once the server serves them.

        Every rank must call this: making a full tensor is a collective operation.

        Raises:
            NotImplementedError: LoRA adapters that are not merged.
        """
        if kwargs.get("peft_config") is not None:
            raise NotImplementedError(
                "the hf rollout serves whole models: merge the adapter, which the new workers can. Type "
                "trainer.use_legacy_worker_impl=disable +actor_rollout_ref.model.lora.merge=True"
            )
        if self._digests is not None:
            self._digests.clear()
            weights = self._noting(weights, await self._server.weight_dtypes.remote())
        for bucket in buckets(weights, self.config.checkpoint_engine.update_weights_bucket_megabytes << 20):
            await self._server.load_weights.remote(bucket)
        await self._server.finish_weights.remote(kwargs.get("global_steps"))

    def _noting(
        self, weights: Iterable[tuple[str, torch.Tensor]], dtypes: Mapping[str, torch.dtype]
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """`weights`, each one's digest noted as it passes."""
        assert self._digests is not None
        for name, tensor in weights:
            self._digests[name] = digest(tensor, dtypes.get(name, tensor.dtype))
            yield name, tensor

    async def resume(self, tags: list[str]) -> None:
        """Main memory is not handed back and forth."""

    async def release(self) -> None:
        """Main memory is not handed back and forth."""
