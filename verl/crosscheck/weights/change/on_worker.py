# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that Ray runs inside the training workers' actors. Each gets the actor's own object first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from verl.crosscheck.weights.change.memory import RememberedPart, WeightMemory
from verl.crosscheck.weights.shards import local_shards

_MEMORY = "_crosscheck_weight_memory"


def remember(held: Any) -> None:
    """See `WeightMemory.remember`."""
    actor = actor_worker(held)
    if not hasattr(actor, _MEMORY):
        setattr(actor, _MEMORY, WeightMemory())
    _memory(actor).remember(local_shards(_chunks(actor)))


def own_change(held: Any) -> dict[str, RememberedPart]:
    """How far the weights have moved since they were remembered; from now on changes count from here."""
    actor = actor_worker(held)
    shards = local_shards(_chunks(actor))
    changes = _memory(actor).own_change(shards)
    _memory(actor).remember(shards)
    return changes


def before_load(held: Any, full: bool) -> None:
    """See `WeightMemory.before_load`."""
    actor = actor_worker(held)
    _memory(actor).before_load(local_shards(_chunks(actor)), full)


def after_load(held: Any) -> dict[str, RememberedPart]:
    """See `WeightMemory.after_load`."""
    actor = actor_worker(held)
    return _memory(actor).after_load(local_shards(_chunks(actor)))


def forget(held: Any) -> None:
    """Free all copies."""
    actor = actor_worker(held)
    if hasattr(actor, _MEMORY):
        delattr(actor, _MEMORY)


def actor_worker(held: Any) -> Any:
    """The worker that trains the actor, of those which share a process.

    Args:
        held: the object in the Ray actor: that worker, or one of upstream's two kinds of containers of several.

    Raises:
        LookupError: there is none.
    """
    sharing = [*getattr(held, "worker_dict", {}).values(), *(getattr(held, "fused_worker_dict", None) or {}).values()]
    for worker in [held, *sharing]:
        if getattr(worker, "_is_actor", False):
            return worker
    kinds = ", ".join(type(worker).__name__ for worker in [held, *sharing])
    raise LookupError(f"none of the workers in this process ({kinds}) trains an actor")


def _chunks(actor: Any) -> Sequence[torch.nn.Module]:
    """The chunks of the actor's model: several in Megatron with virtual pipeline stages, else one.

    Raises:
        LookupError: a worker of an unknown kind.
    """
    engine = getattr(getattr(actor, "actor", None), "engine", None)
    # The legacy FSDP worker's `actor_module` is what `actor_module_fsdp` wraps, and Megatron's is all there is.
    for owner, name in ((engine, "module"), (actor, "actor_module_fsdp"), (actor, "actor_module")):
        found = getattr(owner, name, None)
        if found is not None:
            return [found] if isinstance(found, torch.nn.Module) else list(found)
    raise LookupError(
        f"{type(actor).__name__} holds its actor's model at none of the places that are known: actor.engine.module, "
        "actor_module_fsdp, actor_module"
    )


def _memory(actor: Any) -> WeightMemory:
    memory: WeightMemory | None = getattr(actor, _MEMORY, None)
    if memory is None:
        raise LookupError("the weights at the start of the step were not remembered")
    return memory
