# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a vLLM rollout, planted from outside: vLLM, upstream's server and its transfer of weights run as they are.

vLLM lets a class of the caller's choice extend its workers, and upstream's choice receives the weights. This one stands
in its place, by `actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls`. It takes each push for the end of
a step, so the run must begin at step 1, without `trainer.critic_warmup` and without a colocated reward model.
"""

from __future__ import annotations

import logging
from typing import Any

import torch

from recipe.crosscheck.faults.rollout import last_projection
from recipe.crosscheck.faults.site import own_site
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

logger = logging.getLogger(__name__)

Weights = list[tuple[str, torch.Tensor]]
Drawn = tuple[torch.Tensor, torch.Tensor | None]


class PlantedExtension(vLLMColocateWorkerExtension):
    """Upstream's, with the faults of its process."""

    model_runner: Any
    """Of the worker that vLLM extends by this class."""
    planted_pushes = 0
    planted_lost: str | None = None
    """Which tensor `tensor_not_synced` loses: known once all names have been seen, which the first push shows."""
    planted_told: tuple[str, int] | None = None

    def monkey_patch_model(self, vocab_size: int) -> None:
        """See upstream, which calls it once, when the model has been built."""
        super().monkey_patch_model(vocab_size)
        draw = self.model_runner.sampler.topk_topp_sampler
        healthy = draw.forward

        def forward(logits: torch.Tensor, generators: Any, *limits: Any) -> Drawn:
            """Draws by another temperature and tells the log-probs of the right one."""
            factor = own_site().amount("temperature")
            if factor is None:
                undisturbed: Drawn = healthy(logits, generators, *limits)
                return undisturbed
            self.planted_tell("temperature")
            _, told = healthy(logits.clone(), {}, *limits)  # which may write into what it is given
            drawn, _ = healthy(logits / factor, generators, *limits)
            return drawn, told

        draw.forward = forward

    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        """See upstream; one call a push."""
        own_site().begin_after(self.planted_pushes)
        self.planted_pushes += 1
        super().update_weights_from_ipc(*args, **kwargs)

    def _update_weights(self, weights: Weights, *args: Any, **kwargs: Any) -> None:
        """See upstream; one call a bucket. The first push is always taken: there is nothing before it to keep."""
        kept = weights
        if self.planted_pushes == 1:
            seen = [] if self.planted_lost is None else [self.planted_lost]
            self.planted_lost = last_projection([*seen, *(name for name, _ in weights)])
        elif own_site().acts("stale_weights"):
            self.planted_tell("stale_weights")
            kept = []
        elif own_site().acts("tensor_not_synced"):
            kept = [(name, tensor) for name, tensor in weights if name != self.planted_lost]
            if len(kept) < len(weights):
                self.planted_tell("tensor_not_synced")
        super()._update_weights(kept, *args, **kwargs)

    def planted_tell(self, name: str) -> None:
        """Say that a fault was applied, once a step."""
        now = (name, own_site().step)
        if self.planted_told != now:
            self.planted_told = now
            logger.warning("planted fault %s was applied in vLLM in step %d", *now)
