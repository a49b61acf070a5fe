# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's engine base classes, with a registry that knows FSDP2 on a CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _verl_overlay import extend
from verl.utils.device import is_cpu_backend
from verl.workers.engine import base__upstream as _upstream

if TYPE_CHECKING:
    from verl.workers.engine.base__upstream import BaseEngine, BaseEngineCtx  # noqa: F401  given by `extend`

if is_cpu_backend:

    class EngineRegistry(_upstream.EngineRegistry):
        """Upstream's registry; looking an engine up also brings in the ones for this device."""

        @classmethod
        def get_engine_cls(cls, model_type: str, backend: str) -> type[_upstream.BaseEngine]:
            from verl.workers.engine.fsdp import cpu_impl  # noqa: F401  registers; must come after upstream's

            return super().get_engine_cls(model_type, backend)


extend(__name__, _upstream)
