# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Puts training faults around the methods of the FSDP workers, engines and actors of this process.

Both worker implementations; the reference policy and the critic are left alone.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from recipe.crosscheck.faults.site import Site
from recipe.crosscheck.faults.training import TrainingFaults
from verl.protocol import DataProto
from verl.utils import tensordict_utils as tu

Method = Callable[..., Any]


def around(owner: type, name: str) -> Callable[[Callable[[Method], Method]], None]:
    """Decorator of a function that makes a method out of the one that was there: puts it in its place."""

    def put(make: Callable[[Method], Method]) -> None:
        healthy = getattr(owner, name)
        setattr(owner, name, functools.wraps(healthy)(make(healthy)))

    return put


def plant_worker(worker_class: type, site: Site, faults: TrainingFaults, module_of: Callable[[Any], Any]) -> None:
    """Let a worker that holds an actor tell which step begins.

    Args:
        module_of: The actor's module of a worker.
    """

    @around(worker_class, "update_weights")
    def _(healthy: Method) -> Method:
        async def update_weights(worker: Any, global_steps: int | None = None) -> Any:
            site.pushed_step = global_steps or 0
            result = await healthy(worker, global_steps)
            faults.begin_after(site.pushed_step, module_of(worker))
            return result

        return update_weights


def plant_adapter(adapter_class: type, site: Site) -> None:
    """Let the server know to which step the weights belong: the legacy worker does not say."""

    @around(adapter_class, "update_weights")
    def _(healthy: Method) -> Method:
        async def update_weights(adapter: Any, weights: Any, **kwargs: Any) -> None:
            await healthy(adapter, weights, **{**kwargs, "global_steps": site.pushed_step})

        return update_weights


def plant_engine(engine_class: type, faults: TrainingFaults) -> None:
    """The FSDP engine of the new workers, unless it is a reference policy's."""

    @around(engine_class, "initialize")
    def _(healthy: Method) -> Method:
        def initialize(engine: Any) -> None:
            healthy(engine)
            if not engine.engine_config.forward_only:
                faults.attach(engine.module)

        return initialize

    @around(engine_class, "forward_step")
    def _(healthy: Method) -> Method:
        def forward_step(engine: Any, micro_batch: Any, loss_function: Any, forward_only: bool) -> Any:
            if not engine.engine_config.forward_only:
                micro_batch = micro_batch.copy()  # it shares its tensors with the batch, which others read
                tu.assign_non_tensor(micro_batch, temperature=faults.temperature(micro_batch["temperature"]))
                micro_batch["response_mask"] = faults.loss_mask(micro_batch["response_mask"])
            return healthy(engine, micro_batch, loss_function, forward_only)

        return forward_step

    @around(engine_class, "optimizer_step")
    def _(healthy: Method) -> Method:
        def optimizer_step(engine: Any) -> Any:
            with faults.optimizer_step(engine.module, engine.optimizer):
                return healthy(engine)

        return optimizer_step


def plant_actor(actor_class: type, faults: TrainingFaults) -> None:
    """The actor of the legacy workers, unless it is a reference policy, which has no optimizer."""
    _plant_actor_forward(actor_class, faults)
    _plant_actor_update(actor_class, faults)


def _plant_actor_forward(actor_class: type, faults: TrainingFaults) -> None:

    @around(actor_class, "__init__")
    def _(healthy: Method) -> Method:
        def __init__(actor: Any, *args: Any, **kwargs: Any) -> None:
            healthy(actor, *args, **kwargs)
            if actor.actor_optimizer is not None:
                faults.attach(actor.actor_module)

        return __init__

    @around(actor_class, "_forward_micro_batch")
    def _(healthy: Method) -> Method:
        def _forward_micro_batch(actor: Any, micro_batch: Any, temperature: Any, *args: Any, **kwargs: Any) -> Any:
            if actor.actor_optimizer is not None:
                temperature = faults.temperature(temperature)
            return healthy(actor, micro_batch, temperature, *args, **kwargs)

        return _forward_micro_batch


def _plant_actor_update(actor_class: type, faults: TrainingFaults) -> None:

    @around(actor_class, "update_policy")
    def _(healthy: Method) -> Method:
        def update_policy(actor: Any, data: DataProto) -> Any:
            batch = data.batch.copy()
            batch["response_mask"] = faults.loss_mask(batch["response_mask"])
            return healthy(actor, DataProto(batch, data.non_tensor_batch, data.meta_info))

        return update_policy

    @around(actor_class, "_optimizer_step")
    def _(healthy: Method) -> Method:
        def _optimizer_step(actor: Any) -> Any:
            with faults.optimizer_step(actor.actor_module, actor.actor_optimizer):
                return healthy(actor)

        return _optimizer_step


def plant(site: Site) -> None:
    """Plant in whichever workers this process has imported; one that hosts none has nothing to plant in."""
    faults = TrainingFaults(site)
    new, legacy = (sys.modules.get(f"verl.workers.{name}") for name in ("engine_workers", "fsdp_workers"))
    if new is not None:
        from verl.workers.engine.fsdp.cpu_impl import CpuEngineWithLMHead

        plant_worker(new.ActorRolloutRefWorker, site, faults, lambda worker: worker.actor.engine.module)
        plant_engine(CpuEngineWithLMHead, faults)
    if legacy is not None:
        from verl.workers.actor.dp_actor import DataParallelPPOActor

        plant_worker(legacy.AsyncActorRolloutRefWorker, site, faults, lambda worker: worker.actor_module_fsdp)
        plant_actor(DataParallelPPOActor, faults)
    if new is not None or legacy is not None:
        from verl.workers.rollout.hf_server.adapter import HFServerAdapter

        plant_adapter(HFServerAdapter, site)
