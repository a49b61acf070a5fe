# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.workers.engine.base`."""

from collections.abc import Callable
from typing import TypeVar

class BaseEngine: ...

class BaseEngineCtx:
    def __init__(self, engine: BaseEngine, mode: str) -> None: ...

_Engine = TypeVar("_Engine", bound=type[BaseEngine])

class EngineRegistry:
    @classmethod
    def register(
        cls, model_type: str, backend: list[str] | str, device: list[str] | str = "cuda"
    ) -> Callable[[_Engine], _Engine]: ...
    @classmethod
    def get_engine_cls(cls, model_type: str, backend: str) -> type[BaseEngine]: ...
