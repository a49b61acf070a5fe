# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's `verl.utils.model`; on a CPU, value models load without flash-attn, which upstream's loader insists on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from _verl_overlay import extend
from verl.utils import model__upstream as _upstream
from verl.utils.device import is_cpu_backend

if TYPE_CHECKING:
    from verl.utils.model__upstream import convert_weight_keys  # noqa: F401  given by `extend`

VALUE_HEAD_SEED = 0
"""Seed of a value head that the checkpoint does not hold, so that two runs start from the same critic."""


if is_cpu_backend:

    def load_valuehead_model(
        local_path: str, torch_dtype: torch.dtype, model_config: Any, trust_remote_code: bool
    ) -> torch.nn.Module:
        """The model at `local_path` with one value per token in place of the vocabulary.

        Args:
            local_path: Folder of the checkpoint; of a value model, or of a language model, whose trunk is then used.
            torch_dtype: Dtype of the parameters.
            model_config: Its configuration, with `num_labels=1`; attention is computed as it says.
            trust_remote_code: As for Transformers.
        """
        from transformers import AutoModelForTokenClassification

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(VALUE_HEAD_SEED)
            return AutoModelForTokenClassification.from_pretrained(
                local_path, torch_dtype=torch_dtype, config=model_config, trust_remote_code=trust_remote_code
            )


extend(__name__, _upstream)
