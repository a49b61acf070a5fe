# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.workers.rollout.base`."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch

from verl.workers.config import HFModelConfig, RolloutConfig

class BaseRollout(ABC):
    config: RolloutConfig
    model_config: HFModelConfig
    device_mesh: Any

    def __init__(
        self, config: RolloutConfig, model_config: HFModelConfig, device_mesh: Any, *args: Any, **kwargs: Any
    ) -> None: ...
    @abstractmethod
    async def resume(self, tags: list[str]) -> None: ...
    @abstractmethod
    async def update_weights(self, weights: Iterable[tuple[str, torch.Tensor]], **kwargs: Any) -> None: ...
    @abstractmethod
    async def release(self) -> None: ...

_ROLLOUT_REGISTRY: dict[tuple[str, str], str]
"""Dotted class name by rollout name and mode."""
