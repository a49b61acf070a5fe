# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.workers.config.rollout`: the fields that it reads."""

from dataclasses import dataclass
from typing import Any

from verl.base_config import BaseConfig

@dataclass(kw_only=True)
class CheckpointEngineConfig(BaseConfig):
    update_weights_bucket_megabytes: int = 2048

@dataclass(kw_only=True)
class RolloutConfig(BaseConfig):
    prompt_length: int = 512
    response_length: int = 512
    dtype: str = "bfloat16"
    ignore_eos: bool = False
    max_model_len: int | None = None
    max_num_seqs: int = 1024
    engine_kwargs: dict[str, Any] = ...
    checkpoint_engine: CheckpointEngineConfig = ...
    enable_prefix_caching: bool = True
    load_format: str = "dummy"
