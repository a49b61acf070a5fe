# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Calls to all workers of a worker group, and where a worker holds the actor's model.

Ray runs a function inside upstream's workers: `function(worker, *args)`, where `worker` is the object in the Ray
actor. So every worker implementation is served alike, those of recipes too, and the workers stay upstream's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray
from torch import nn

from verl.crosscheck.errors import CrossCheckError

GRACE_S = 60.0
"""How long ranks are waited for after the first error: a collective in which they wait may never end."""


def run_on_all(worker_group: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the results of `function(worker, *args)` in each worker's actor, in the order of ranks.

    The first error ends it, as the worker raised it. For functions that do not communicate.

    Args:
        worker_group: upstream's `RayWorkerGroup`, or anything with its `workers`.
    """
    results: list[Any] = ray.get(_started(worker_group, function, args))
    return results


def ask_all(worker_group: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Return the same after all workers have answered, also if some of the answers are errors.

    Raises:
        CrossCheckError: of the kind that the first rank's error has, with how many ranks failed.
    """
    calls = _started(worker_group, function, args)
    waiting, failed = list(calls), False
    while waiting:
        done, waiting = ray.wait(waiting, timeout=GRACE_S if failed else None)
        if not done:
            break
        failed = failed or any(_error(call) for call in done)
    answered = [call for call in calls if call not in waiting]
    errors = [(calls.index(call), error) for call in answered if (error := _error(call))]
    if errors:
        rank, error = errors[0]
        cause = getattr(error, "cause", error)
        kind = type(cause) if isinstance(cause, CrossCheckError) else CrossCheckError
        text = str(cause) if isinstance(cause, CrossCheckError) else one_line(error)
        more = f" ({len(errors)} of {len(calls)} ranks failed)" if len(errors) > 1 else ""
        raise kind(f"rank {rank}: {text}{more}") from error
    return [ray.get(call) for call in calls]


def one_line(error: BaseException) -> str:
    """Return an error in one line; of a worker's own error, without the traceback that Ray puts around it."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    return f"{type(shown).__name__}: {shown}".splitlines()[0]


def actor_worker(worker: Any) -> Any:
    """Return the worker that trains the actor, of those which share a process.

    Args:
        worker: the object in the Ray actor: that worker, or one of upstream's two kinds of containers of several.

    Raises:
        LookupError: there is none.
    """
    sharing = [
        *getattr(worker, "worker_dict", {}).values(),
        *(getattr(worker, "fused_worker_dict", None) or {}).values(),
    ]
    for each in [worker, *sharing]:
        if getattr(each, "_is_actor", False):
            return each
    kinds = ", ".join(type(each).__name__ for each in [worker, *sharing])
    raise LookupError(f"none of the workers in this process ({kinds}) trains an actor")


def model_owner(actor: Any) -> Any:
    """Return what holds the actor's model: the new worker's engine, or the legacy worker itself."""
    engine = getattr(getattr(actor, "actor", None), "engine", None)
    return actor if engine is None else engine


def model_of(owner: Any) -> nn.Module | list[nn.Module]:
    """Return the actor's model; of Megatron the list of its chunks, several with virtual pipeline stages.

    Args:
        owner: as `model_owner` returns it.

    Raises:
        LookupError: a worker of an unknown kind.
    """
    # `actor_module_fsdp` wraps the legacy FSDP worker's `actor_module`; Megatron's legacy worker has only that one.
    for name in ("actor_module_fsdp", "module", "actor_module"):
        found = getattr(owner, name, None)
        if isinstance(found, list | tuple | nn.ModuleList):
            return list(found)
        if isinstance(found, nn.Module):
            return found
    raise LookupError(
        f"{type(owner).__name__} holds its actor's model at none of the places that are known: module, "
        "actor_module_fsdp, and actor_module for Megatron"
    )


def _started(worker_group: Any, function: Callable[..., Any], args: tuple[Any, ...]) -> list[Any]:
    return [worker.__ray_call__.remote(function, *args) for worker in worker_group.workers]


def _error(call: Any) -> Exception | None:
    try:
        ray.get(call)
    except Exception as error:
        return error
    return None
