# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that Ray runs inside the training workers, to measure how far an update moved the actor's weights."""

from __future__ import annotations

from typing import Any

from torch import nn

from verl.crosscheck.weights.calls import actor_worker, model_of, model_owner
from verl.crosscheck.weights.change.memory import ChangePart, WeightMemory
from verl.crosscheck.weights.tensors import LocalTensor, local_parameters

_MEMORY = "_crosscheck_weight_memory"


def remember(worker: Any) -> None:
    """See `WeightMemory.remember`."""
    actor = actor_worker(worker)
    if not hasattr(actor, _MEMORY):
        setattr(actor, _MEMORY, WeightMemory())
    _memory(actor).remember(_parameters(actor))


def own_change(worker: Any) -> dict[str, ChangePart]:
    """Return how far the weights have moved since they were remembered, and count changes from here on."""
    actor = actor_worker(worker)
    tensors = _parameters(actor)
    changes = _memory(actor).own_change(tensors)
    _memory(actor).remember(tensors)
    return changes


def before_load(worker: Any, full: bool) -> None:
    """See `WeightMemory.before_load`."""
    actor = actor_worker(worker)
    _memory(actor).before_load(_parameters(actor), full)


def after_load(worker: Any) -> dict[str, ChangePart]:
    """See `WeightMemory.after_load`."""
    actor = actor_worker(worker)
    return _memory(actor).after_load(_parameters(actor))


def forget(worker: Any) -> None:
    """Free all copies."""
    actor = actor_worker(worker)
    if hasattr(actor, _MEMORY):
        delattr(actor, _MEMORY)


def _parameters(actor: Any) -> dict[str, LocalTensor]:
    model = model_of(model_owner(actor))
    return local_parameters([model] if isinstance(model, nn.Module) else model)


def _memory(actor: Any) -> WeightMemory:
    memory: WeightMemory | None = getattr(actor, _MEMORY, None)
    if memory is None:
        raise LookupError("the weights at the start of the step were not remembered")
    return memory
