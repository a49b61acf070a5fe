# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Running a function in all of a worker group's Ray actors, with errors told in one line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import ray


def run_on_all(worker_group: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Results of `function(held, *args)` in each worker's actor, in the order of ranks; `held` is the actor's object.

    Args:
        worker_group: upstream's `RayWorkerGroup`, or anything with its `workers`.
    """
    workers: Sequence[Any] = worker_group.workers
    results: list[Any] = ray.get([worker.__ray_call__.remote(function, *args) for worker in workers])
    return results


def told(error: BaseException) -> str:
    """An error in one line; a worker's own, without the traceback that Ray puts around it."""
    cause = getattr(error, "cause", None)
    shown = cause if isinstance(cause, BaseException) else error
    return f"{type(shown).__name__}: {shown}".splitlines()[0]
