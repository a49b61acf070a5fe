# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Starts the server actor of one rollout replica, beside the training worker whose weights it serves."""

from __future__ import annotations

from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from verl.workers.rollout.hf_server.server import HFServer
from verl.workers.rollout.replica import RolloutReplica


def server_name(replica_rank: int) -> str:
    """Ray name of a replica's server: unique on a host, since a job is one run, and known to the run's workers."""
    return f"hf_server_{ray.get_runtime_context().get_job_id()}_{replica_rank}"


class HFReplica(RolloutReplica):
    """One server actor in a process of its own; one per training rank.

    Raises:
        ValueError: A replica would span several ranks.
    """

    server_class: type[HFServer] = HFServer
    """What the actor runs; a subclass of the replica may name a subclass of it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.world_size != 1:
            raise ValueError(
                f"the hf rollout has one replica per rank, and this configuration spreads one over {self.world_size}; "
                "set actor_rollout_ref.rollout.tensor_model_parallel_size=1 (and the data and pipeline sizes)"
            )

    async def launch_servers(self) -> None:
        """Start the actor on the worker's node and wait until its model is built."""
        node_id = await self.workers[0].__ray_call__.remote(lambda _: ray.get_runtime_context().get_node_id())
        name = server_name(self.replica_rank)
        server = (
            ray.remote(self.server_class)
            .options(
                name=name,
                num_cpus=0,
                max_concurrency=self.max_concurrency,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=node_id, soft=False),
            )
            .remote(self.config, self.model_config, self.replica_rank)
        )
        await server.ready.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, name
