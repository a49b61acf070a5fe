# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a vLLM rollout, planted from outside: vLLM, upstream's server and its transfer of weights run as they are.

vLLM lets a class of the caller's choice extend its workers, and upstream's choice receives the weights. This one stands
in its place, by `actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls`.
"""

from __future__ import annotations

from typing import Any

import torch

from recipe.crosscheck.faults.rollout import last_projection
from recipe.crosscheck.faults.site import own_site
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

Weights = list[tuple[str, torch.Tensor]]


class PlantedExtension(vLLMColocateWorkerExtension):
    """Upstream's, with the faults of its process. A worker counts pushes of weights, so a run must begin at step 1."""

    planted_pushes = 0

    def monkey_patch_model(self, vocab_size: int) -> None:
        """See upstream, which calls it once, when the model has been built."""
        super().monkey_patch_model(vocab_size)
        model = self.model_runner.model
        healthy = model.compute_logits

        def compute_logits(*args: Any, **kwargs: Any) -> torch.Tensor:
            logits = healthy(*args, **kwargs)
            factor = own_site().amount("temperature")
            return logits if factor is None or logits is None else logits / factor

        model.compute_logits = compute_logits

    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        """See upstream; one call a push."""
        own_site().begin_after(self.planted_pushes)
        self.planted_pushes += 1
        super().update_weights_from_ipc(*args, **kwargs)

    def _update_weights(self, weights: Weights, *args: Any, **kwargs: Any) -> None:
        """See upstream; one call a bucket. The first push is always taken: there is nothing before it to keep."""
        kept = weights
        if own_site().acts("stale_weights"):
            kept = []
        elif own_site().acts("tensor_not_synced"):
            lost = last_projection(name for name, _ in weights)
            kept = [(name, tensor) for name, tensor in weights if name != lost]
        super()._update_weights(kept, *args, **kwargs)
