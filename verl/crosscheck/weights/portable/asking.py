# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Running a function in all workers and waiting for all answers, also when some of them are errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ray

from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.weights.calls import told

GRACE_S = 60.0
"""How long ranks are waited for after the first error: what they wait for in a collective may never come."""


def ask_all(worker_group: Any, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Results of `function(held, *args)` in each worker's actor, in the order of ranks.

    Raises:
        CrossCheckError: of the kind that the first rank's error has, with how many ranks failed.
    """
    calls = [worker.__ray_call__.remote(function, *args) for worker in worker_group.workers]
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
        text = str(cause) if isinstance(cause, CrossCheckError) else told(error)
        more = f" ({len(errors)} of {len(calls)} ranks failed)" if len(errors) > 1 else ""
        raise kind(f"rank {rank}: {text}{more}") from error
    return [ray.get(call) for call in calls]


def _error(call: Any) -> Exception | None:
    try:
        ray.get(call)
    except Exception as error:
        return error
    return None
