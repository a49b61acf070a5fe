# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's agent loop, telling each request which row it belongs to.

Requests carry random names and arrive in any order at any replica, so without this nothing in a request would say
which of the n samples of a prompt it is. `actor_rollout_ref.rollout.agent.agent_loop_manager_class` names the manager.
It adds one column to a call's rows, which the workers turn into the request's sampling parameters; the column leaves
neither in the caller's batch nor in the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import ray

from verl.experimental.agent_loop.agent_loop import AgentLoopManager, AgentLoopWorker
from verl.protocol import DataProto
from verl.utils.ray_utils import auto_await
from verl.workers.rollout.hf_server.seeding import base_seed, row_seeds

COLUMN = "hf_sampling_params"
"""Non-tensor column: for each row the sampling parameters that are its own, a dict."""


class SeededAgentLoopWorker(AgentLoopWorker):
    """Adds a row's own sampling parameters to those of the call."""

    async def _run_agent_loop(
        self, sampling_params: dict[str, Any], trajectory: dict[str, Any], *, agent_name: str, **kwargs: Any
    ) -> Any:
        own = kwargs.pop(COLUMN, {})
        return await super()._run_agent_loop({**sampling_params, **own}, trajectory, agent_name=agent_name, **kwargs)


class SeededAgentLoopManager(AgentLoopManager):
    """Gives each row of a call the seed that its place in the call asks for."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.agent_loop_workers_class = ray.remote(SeededAgentLoopWorker)
        super().__init__(*args, **kwargs)
        self._seed = base_seed((self.rollout_config.engine_kwargs.get("hf") or {}).get("seed"))

    @auto_await  # type: ignore[untyped-decorator]  # upstream's function has no annotations
    async def generate_sequences(self, prompts: DataProto) -> DataProto:
        """See upstream; equal prompts at an equal step give equal responses, row by row."""
        marked = DataProto(
            batch=prompts.batch,
            non_tensor_batch={**prompts.non_tensor_batch, COLUMN: own_params(prompts, self._seed)},
            meta_info=prompts.meta_info,
        )
        output: DataProto = await super().generate_sequences(marked)
        output.non_tensor_batch.pop(COLUMN, None)
        return output


def own_params(prompts: DataProto, seed: int) -> npt.NDArray[np.object_]:
    """Sampling parameters of each row, [B] objects: its seed, and temperature 0 where the call asks for no sampling."""
    meta = prompts.meta_info
    greedy = {"temperature": 0.0} if meta.get("do_sample") is False else {}
    seeds = row_seeds(seed, meta.get("global_steps", -1), meta.get("validate", False), len(prompts))
    column = np.empty(len(prompts), dtype=object)
    column[:] = [{"seed": row_seed, **greedy} for row_seed in seeds]
    return column
