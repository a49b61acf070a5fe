# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From logits to tokens and log-probs. Pure functions over tensors; B rows, V vocabulary entries.

The order is that of vLLM: repetition penalty, temperature, top-k, top-p. A reported log-prob is that of the
distribution after all four, the one that was sampled from. Every operation works on one row at a time, so a row's
result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

_IGNORED = frozenset({"logprobs", "n", "detokenize", "skip_special_tokens", "include_stop_str_in_output"})
"""Request keys that change nothing here: log-probs are always computed, and this server sees tokens alone."""


@dataclass(frozen=True)
class SamplingParams:
    """How one request wants its tokens drawn."""

    max_tokens: int
    """Most tokens to generate; at least 1."""
    temperature: float = 1.0
    """0 takes the most likely token, and reports its log-prob at temperature 1."""
    top_k: int = -1
    """Keep the k most likely tokens; below 1 keeps all."""
    top_p: float = 1.0
    """Keep the smallest set of most likely tokens that holds this probability; 1 keeps all."""
    repetition_penalty: float = 1.0
    """Above 1, tokens that the prompt or the response holds already become less likely."""
    stop_token_ids: frozenset[int] = frozenset()
    """Tokens that end the response and are part of it."""
    seed: int | None = None
    """Seed of the request's own generator; None lets the server choose one."""

    def __post_init__(self) -> None:
        checks = {
            "max_tokens": (self.max_tokens >= 1, "at least 1"),
            "temperature": (self.temperature >= 0, "at least 0"),
            "top_p": (0 < self.top_p <= 1, "above 0 and at most 1"),
            "repetition_penalty": (self.repetition_penalty > 0, "above 0"),
        }
        for name, (fits, limits) in checks.items():
            if not fits:
                raise ValueError(
                    f"sampling parameter {name}={getattr(self, name)} is out of range: it must be {limits}"
                )

    @classmethod
    def from_request(cls, request: Mapping[str, Any], max_tokens: int, eos_token_ids: frozenset[int]) -> SamplingParams:
        """Read a request's `sampling_params`.

        Args:
            request: As upstream's agent loops send it. `max_tokens` (or `max_new_tokens`), `stop_token_ids`,
                `ignore_eos` and `seed` are optional; no `max_tokens`, or None, asks for all there is room for. 0 is an
                error, as in vLLM.
            max_tokens: What the model has room for; the request may ask for less.
            eos_token_ids: The model's own end marks, which `ignore_eos` takes out.

        Raises:
            ValueError: A value out of range, or a key that this server does not honour.
        """
        left = dict(request)
        asked = left.pop("max_tokens", left.pop("max_new_tokens", None))
        stop = frozenset(left.pop("stop_token_ids", None) or ())
        if not left.pop("ignore_eos", False):
            stop |= eos_token_ids
        known = {
            name: left.pop(name)
            for name in ("temperature", "top_k", "top_p", "repetition_penalty", "seed")
            if name in left
        }
        unknown = sorted(name for name in left if name not in _IGNORED and left[name] is not None)
        if unknown:
            raise ValueError(
                f"the hf rollout does not honour the sampling parameters {', '.join(unknown)}; leave them out"
            )
        room = max_tokens if asked is None else min(asked, max_tokens)
        return cls(max_tokens=room, stop_token_ids=stop, **known)


def penalise(logits_V: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
    """Logits [V] with the tokens `seen` [any length] made less likely by the factor `penalty`."""
    seen = seen.unique()
    chosen = logits_V[seen]
    return logits_V.scatter(0, seen, torch.where(chosen > 0, chosen / penalty, chosen * penalty))


def log_probs(logits_V: torch.Tensor, params: SamplingParams) -> torch.Tensor:
    """Log-probs [V] in float32 of the distribution that `params` asks for; minus infinity where it cuts off.

    NaN throughout if any logit is NaN or plus infinity: there is no such distribution.
    """
    logits_V = logits_V.float()
    if params.temperature > 0:
        logits_V = _keep_nucleus(_keep_top_k(logits_V / params.temperature, params.top_k), params.top_p)
    return torch.log_softmax(logits_V, dim=-1)


def pick(log_prob_V: torch.Tensor, params: SamplingParams, uniform: float) -> int:
    """The token that `uniform`, a number in [0, 1), falls on; the most likely one at temperature 0.

    `log_prob_V` must hold no NaN.
    """
    if params.temperature == 0:
        return int(log_prob_V.argmax())
    reached_V = log_prob_V.double().exp().cumsum(0)
    token = int(torch.searchsorted(reached_V, uniform * float(reached_V[-1]), right=True))
    # Rounding can land past the end; a token that was cut off has width 0 and is never reached.
    return min(token, int(log_prob_V.isfinite().nonzero()[-1]))


def _keep_top_k(logits_V: torch.Tensor, top_k: int) -> torch.Tensor:
    if not 0 < top_k < logits_V.numel():
        return logits_V
    weakest = logits_V.topk(top_k).values[-1]
    return logits_V.masked_fill(logits_V < weakest, -torch.inf)


def _keep_nucleus(logits_V: torch.Tensor, top_p: float) -> torch.Tensor:
    if top_p >= 1:
        return logits_V
    ordered = logits_V.sort(descending=True, stable=True)
    probability = ordered.values.softmax(-1)
    before = probability.cumsum(-1) - probability  # what the more likely ones hold; 0 for the first, which stays
    return logits_V.masked_fill(
        torch.zeros_like(before, dtype=torch.bool).scatter(0, ordered.indices, before >= top_p), -torch.inf
    )
