# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.trainer.config.config`."""

__all__ = ["BaseModelConfig", "CheckpointConfig", "ProfileConfig"]

from verl.base_config import BaseConfig

class CheckpointConfig(BaseConfig): ...
class ProfileConfig(BaseConfig): ...
class BaseModelConfig(BaseConfig): ...
