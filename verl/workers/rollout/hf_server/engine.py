# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The generation engine: requests in, tokens out, a step at a time. Knows neither Ray nor asyncio.

Continuous batching over a fixed number of slots. A step fills free slots with waiting requests, each prefilled alone,
and decodes one token for every slot in use. The decoding batch always has all its slots, so the same kernels do the
same sums for a row whoever its neighbours are. `slots_agree` checks the one thing that this leaves open.
"""

from __future__ import annotations

import logging
from collections import OrderedDict, deque
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import DynamicCache

from verl.workers.rollout.hf_server.sampling import SamplingParams, log_probs, penalise, pick
from verl.workers.rollout.hf_server.slots import SlotCache

logger = logging.getLogger(__name__)

SLOT_MULTIPLE = 8
"""Matrix kernels take rows in groups; with whole groups the last rows go the way of the others."""

PREFIX_CACHE_SIZE = 64
"""Prompts whose prefill is kept, so that the n samples of a prompt share one."""


@dataclass(eq=False)
class Request:
    """One prompt and what came of it so far."""

    prompt_ids: list[int]
    params: SamplingParams
    seed: int
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    stop_reason: str | None = None
    """None while it runs; `completed` or `aborted` after."""

    def __post_init__(self) -> None:
        self.generator = torch.Generator().manual_seed(self.seed)

    def take(self, logits_V: torch.Tensor) -> None:
        """Draw the next token from logits [V], and note whether it ends the response.

        Raises:
            FloatingPointError: The logits are no distribution: the model has diverged.
        """
        if self.params.repetition_penalty != 1.0:
            seen = torch.tensor(self.prompt_ids + self.token_ids)
            logits_V = penalise(logits_V, seen, self.params.repetition_penalty)
        log_prob_V = log_probs(logits_V, self.params)
        if bool(log_prob_V.isnan().any()):
            raise self._diverged(logits_V)
        token = pick(log_prob_V, self.params, torch.rand((), generator=self.generator, dtype=torch.float64).item())
        self.token_ids.append(token)
        self.log_probs.append(float(log_prob_V[token]))
        if token in self.params.stop_token_ids or len(self.token_ids) >= self.params.max_tokens:
            self.stop_reason = "completed"

    def _diverged(self, logits_V: torch.Tensor) -> FloatingPointError:
        broken = int((~logits_V.isfinite()).sum())
        return FloatingPointError(
            f"the rollout's logits are not finite: {broken} of {logits_V.numel()} are NaN or infinite, after a prompt "
            f"of {len(self.prompt_ids)} tokens and {len(self.token_ids)} generated ones, at temperature "
            f"{self.params.temperature}. The weights that training sent have diverged, or the checkpoint is broken. "
            "Look at actor/grad_norm and actor/pg_loss of the steps before; a lower actor_rollout_ref.actor.optim.lr "
            "or actor_rollout_ref.actor.grad_clip may help."
        )


@dataclass(frozen=True)
class _Prefill:
    logits_V: torch.Tensor
    cache: DynamicCache


class Engine:
    """A model and its slots.

    Args:
        model: A decoder with full attention in every layer.
        slots: Rows of a decoding step (S), rounded up to a multiple of `SLOT_MULTIPLE`; each step costs as much as a
            full one.
        length: Most tokens of a row, prompt and response together (T).
        share_prefixes: Whether equal prompts share a prefill.

    Raises:
        ValueError: The model has layers of another kind of attention.
    """

    def __init__(self, model: PreTrainedModel, slots: int, length: int, share_prefixes: bool = True) -> None:
        _check_full_attention(model)
        self.model = model.eval()
        slots = slots if slots == 1 else -(-slots // SLOT_MULTIPLE) * SLOT_MULTIPLE
        self.cache = SlotCache(model.config.num_hidden_layers, slots, length)
        self.waiting: deque[Request] = deque()
        self.running: dict[int, Request] = {}
        self._free = list(reversed(range(slots)))
        self._prefixes: OrderedDict[tuple[int, ...], _Prefill] = OrderedDict()
        self._prefix_limit = PREFIX_CACHE_SIZE if share_prefixes else 0

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: Its prompt is empty, or leaves no room for what it asks for.
        """
        needed = len(request.prompt_ids) + request.params.max_tokens
        if not request.prompt_ids or needed > self.cache.length:
            raise ValueError(
                f"a prompt of {len(request.prompt_ids)} tokens and a response of up to {request.params.max_tokens} "
                f"do not fit a row of 1 to {self.cache.length} tokens"
            )
        self.waiting.append(request)

    def forget_prefixes(self) -> None:
        """Drop kept prefills; they belong to the weights that made them."""
        self._prefixes.clear()

    def abort(self, requests: Collection[Request] | None = None) -> list[Request]:
        """End `requests`, or all of them if None, where they stand; return the ones that were here."""
        wanted = None if requests is None else {id(request) for request in requests}
        ended = [r for r in (*self.running.values(), *self.waiting) if wanted is None or id(r) in wanted]
        for request in ended:
            request.stop_reason = "aborted"
        for slot, request in list(self.running.items()):
            if request.stop_reason:
                self._release(slot)
        self.waiting = deque(request for request in self.waiting if not request.stop_reason)
        return ended

    @torch.inference_mode()
    def step(self) -> list[Request]:
        """Admit what fits, decode one token for each running request, and return the requests that ended.

        Raises:
            FloatingPointError: The model has diverged. After this or any other error nobody is told which requests
                ended in this step: give up all that were added, and `abort` what is still here.
        """
        ended = self._admit()
        if self.running:
            ended += self._decode()
        return ended

    def _admit(self) -> list[Request]:
        ended = []
        while self.waiting and self._free:
            request = self.waiting[0]  # stays there until nothing can fail any more
            prefill = self._prefill(tuple(request.prompt_ids))
            request.take(prefill.logits_V)
            if request.stop_reason:
                ended.append(request)
            else:
                self.cache.admit(self._free[-1], prefill.cache)
                self.running[self._free.pop()] = request
            self.waiting.popleft()
        return ended

    def _prefill(self, prompt_ids: tuple[int, ...]) -> _Prefill:
        """Run a prompt alone, or take it from a request that had the same one."""
        kept = self._prefixes.get(prompt_ids)
        if kept is not None:
            self._prefixes.move_to_end(prompt_ids)
            return kept
        cache = DynamicCache(config=self.model.config)
        out = self.model(torch.tensor([prompt_ids]), past_key_values=cache, use_cache=True, logits_to_keep=1)
        prefill = _Prefill(out.logits[0, -1], cache)
        self._prefixes[prompt_ids] = prefill
        while len(self._prefixes) > self._prefix_limit:
            self._prefixes.popitem(last=False)
        return prefill

    def _decode(self) -> list[Request]:
        token_S = torch.zeros(self.cache.slots, dtype=torch.long)
        for slot, request in self.running.items():
            token_S[slot] = request.token_ids[-1]
        logits_SV = self._forward(token_S)
        ended = []
        for slot, request in list(self.running.items()):
            self.cache.advance(slot)
            request.take(logits_SV[slot])
            if request.stop_reason:
                self._release(slot)
                ended.append(request)
        return ended

    def _forward(self, token_S: torch.Tensor) -> torch.Tensor:
        """Logits [S, V] of the tokens that follow `token_S`, each at its slot's position."""
        out = self.model(
            token_S[:, None],
            attention_mask=self.cache.mask(),
            position_ids=self.cache.position_S[:, None],
            past_key_values=self.cache,
            use_cache=True,
            cache_position=self.cache.position_S[:1],
        )
        return out.logits[:, -1]

    def _release(self, slot: int) -> None:
        del self.running[slot]
        self.cache.release(slot)
        self._free.append(slot)

    @torch.inference_mode()
    def slots_agree(self) -> bool:
        """Whether a row of several lengths gives the same logits to the last bit in every slot. Overwrites the cache.

        It does with one thread; several share a step's work out by slot, and then it may not.

        Raises:
            RuntimeError: Requests are running.
        """
        if self.busy:
            raise RuntimeError("slots can only be compared while no request runs")
        token_S = torch.ones(self.cache.slots, dtype=torch.long)
        self._forward(token_S)
        agree = True
        for position in sorted({0, self.cache.length // 2, self.cache.length - 1}):
            self.cache.repeat_random(position)
            logits_SV = self._forward(token_S)
            agree &= bool((logits_SV == logits_SV[0]).all())
        self.cache.position_S.zero_()
        return agree


def _check_full_attention(model: PreTrainedModel) -> None:
    served = f"the hf rollout serves models with full attention only; {type(model).__name__} has"
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if kinds - {"full_attention"}:
        raise ValueError(f"{served} layers of the kinds {', '.join(sorted(kinds))}")
    # A configuration that does not list its layers means all of them. One that does may keep the key without using it.
    for key in () if kinds else ("sliding_window", "attention_chunk_size"):
        if window := getattr(model.config, key, None):
            raise ValueError(
                f"{served} {key}={window} in its configuration. If no row of prompt and response is longer than that, "
                f"+actor_rollout_ref.model.override_config.{key}=null makes it a model with full attention"
            )
