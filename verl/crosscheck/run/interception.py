# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Replaces a rollout manager's `generate_sequences`: loads the answer from elsewhere, or keeps a copy of it."""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
from collections.abc import Awaitable
from typing import Any, Protocol

from verl.crosscheck.errors import SettingsError
from verl.protocol import DataProto


class RolloutSource(Protocol):
    """Answers calls of `generate_sequences`. Blocking; may be called off the main thread, one call at a time."""

    def begin(self, prompts: DataProto) -> Any:
        """Count and identify a call. What it returns is given to `load` and `save`."""

    def load(self, call: Any, prompts: DataProto) -> DataProto | None:
        """Return the answer, or None if the engine is to generate it."""

    def save(self, call: Any, prompts: DataProto, output: DataProto) -> None:
        """Keep the engine's answer; may add to its `meta_info`."""


def intercept(worker: Any, source: RolloutSource) -> None:
    """Replace `worker.generate_sequences`; a second interception by the same kind of source does nothing.

    A plain function stays plain and a coroutine function stays one. Upstream's manager, which is awaited only if its
    caller is a coroutine, still is.

    Raises:
        SettingsError: another kind of source stands there already.
    """
    inner = worker.generate_sequences
    standing = getattr(inner, "crosscheck_source", None)
    if type(standing) is type(source):
        return
    if standing is not None:
        raise SettingsError(
            f"{type(worker).__name__}.generate_sequences already goes through {type(standing).__name__}, and "
            f"{type(source).__name__} would be hidden by it. Use rollout skip or the cross-check, not both"
        )
    always_async = inspect.iscoroutinefunction(inner)
    # Upstream's `auto_await` around a coroutine function looks plain from outside.
    by_caller = inspect.iscoroutinefunction(inspect.unwrap(inner))

    @functools.wraps(inner)
    def generate_sequences(prompts: DataProto, *args: Any, **kwargs: Any) -> Any:
        if always_async or (by_caller and _called_by_coroutine()):
            return _generate_async(inner, source, prompts, args, kwargs)
        call = source.begin(prompts)
        output = source.load(call, prompts)
        if output is None:
            output = inner(prompts, *args, **kwargs)
            if inspect.isawaitable(output):  # plain by its looks, and its caller awaits what it returns
                return _save_async(source, call, prompts, output)
            source.save(call, prompts, output)
        return output

    generate_sequences.crosscheck_source = source  # type: ignore[attr-defined]
    worker.generate_sequences = generate_sequences


async def _generate_async(inner: Any, source: RolloutSource, prompts: DataProto, args: Any, kwargs: Any) -> DataProto:
    """Do the same for a caller that awaits. Waiting and disk access run in a thread: other coroutines need the loop."""
    call = await asyncio.to_thread(source.begin, prompts)
    output = await asyncio.to_thread(source.load, call, prompts)
    if output is None:
        output = inner(prompts, *args, **kwargs)
        if inspect.isawaitable(output):
            return await _save_async(source, call, prompts, output)
        await asyncio.to_thread(source.save, call, prompts, output)
    return output


async def _save_async(source: RolloutSource, call: Any, prompts: DataProto, answer: Awaitable[DataProto]) -> DataProto:
    output = await answer
    await asyncio.to_thread(source.save, call, prompts, output)
    return output


def _called_by_coroutine() -> bool:
    """Return whether the function that calls this one was called by a coroutine, which then awaits: upstream's rule."""
    frame = sys._getframe(2)
    return bool(frame.f_code.co_flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR))
