# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of the hf rollout: what the engine holds, what it computes, what it draws and what it says of that.

`PlantedAgentLoopManager`, named by `actor_rollout_ref.rollout.agent.agent_loop_manager_class`, starts servers that have
them. S slots, V vocabulary entries.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch

from recipe.crosscheck.faults.site import Site, own_site
from verl.workers.rollout.hf_server.agent_loop import SeededAgentLoopManager
from verl.workers.rollout.hf_server.engine import Engine, Request
from verl.workers.rollout.hf_server.replica import HFReplica
from verl.workers.rollout.hf_server.sampling import SamplingParams, log_probs, penalise
from verl.workers.rollout.hf_server.seeding import digest
from verl.workers.rollout.hf_server.server import HFServer

_SEED_LIMIT = 2**56
"""Above every `digest`."""


class RolloutFaults:
    """The faults of one engine."""

    def __init__(self, site: Site, engine: Engine) -> None:
        self._site, self._engine = site, engine
        self._before: dict[str, torch.Tensor] | None = None
        self._rotaries = [
            (module, module.inv_freq.clone()) for module in engine.model.modules() if hasattr(module, "inv_freq")
        ]
        engine.model.register_forward_pre_hook(self._shift_positions, with_kwargs=True)
        _round_what_is_kept(engine, self._kept)

    def begin_after(self, pushed_step: int) -> None:
        """The model holds all weights of a push; nothing has been generated with them."""
        self._site.begin_after(pushed_step)
        self._spoil_weights()
        factor = self._site.amount("rotary_base")
        for module, healthy in self._rotaries:
            module.inv_freq = healthy if factor is None else _with_base(healthy, factor)

    def request(self, request: Request) -> Request:
        """The request as a faulty sampler takes it."""
        return PlantedRequest.of(request, self._site)

    @torch.no_grad()
    def _spoil_weights(self) -> None:
        state = self._engine.model.state_dict()
        pushed = {name: tensor.clone() for name, tensor in state.items()}
        if self._before is not None:  # the first push is always taken: there is nothing before it to keep
            lost = list(state) if self._site.acts("stale_weights") else []
            if not lost and self._site.acts("tensor_not_synced"):
                lost = [last_projection(state)]
            for name in lost:
                state[name].copy_(self._before[name])
        self._before = pushed

    def _shift_positions(self, module: torch.nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        shift = self._site.amount("position_shift")
        if shift is None or kwargs.get("position_ids") is None:  # a prefill counts its own positions, from 0
            return None
        return args, {**kwargs, "position_ids": kwargs["position_ids"] + int(shift)}

    def _kept(self, states: torch.Tensor) -> torch.Tensor:
        bits = self._site.amount("kv_cache_rounded")
        return states if bits is None else rounded(states, int(bits) - 5)


@dataclass(eq=False)
class PlantedRequest(Request):
    """A request whose tokens are drawn from another distribution than the one that their log-probs are of."""

    params: SamplingParams
    site: Site = field(default_factory=own_site)

    @classmethod
    def of(cls, request: Request, site: Site) -> PlantedRequest:
        """A fresh request with a sampler at fault."""
        given = {each.name: getattr(request, each.name) for each in fields(Request) if each.init}
        return cls(**given, site=site)

    def take(self, logits_V: torch.Tensor) -> None:
        asked = self.params
        if asked.repetition_penalty != 1.0:
            seen = torch.tensor(self.prompt_ids + self.token_ids)
            logits_V = penalise(logits_V, seen, asked.repetition_penalty)
            asked = replace(asked, repetition_penalty=1.0)
        factor, top_k = self.site.amount("temperature"), self.site.amount("top_k")
        self.params = replace(
            asked,
            temperature=asked.temperature * (1.0 if factor is None else factor),
            top_k=asked.top_k if top_k is None else int(top_k),
        )
        super().take(logits_V)
        claimed = replace(asked, temperature=1.0) if self.site.acts("untempered_log_probs") else asked
        if self.params != claimed:
            self.log_probs[-1] = float(log_probs(logits_V, claimed)[self.token_ids[-1]])
        self.params = asked
        self._cut()

    def _cut(self) -> None:
        share = self.site.amount("cut_responses")
        if share is None or digest(self.seed, "cut") >= share * _SEED_LIMIT:
            return
        if self.token_ids[-1] in self.params.stop_token_ids and len(self.token_ids) > 1:
            del self.token_ids[-1], self.log_probs[-1]


class PlantedServer(HFServer):
    """A server with the faults of its process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._faults = RolloutFaults(own_site(), self.engine)

    async def finish_weights(self, global_steps: int | None = None) -> None:
        # First, so that whatever looks at the weights from here on sees those that are generated with.
        self._faults.begin_after(global_steps or 0)
        await super().finish_weights(global_steps)

    def _request(self, prompt_ids: list[int], sampling_params: dict[str, Any]) -> Request:
        return self._faults.request(super()._request(prompt_ids, sampling_params))


class PlantedReplica(HFReplica):
    """Starts servers with faults."""

    server_class = PlantedServer


class PlantedAgentLoopManager(SeededAgentLoopManager):
    """Upstream asks the manager for the kind of replica."""

    rollout_replica_class = PlantedReplica


def last_projection(names: Iterable[str]) -> str:
    """Name of the last layer's MLP projection, or of the last tensor where a model calls it otherwise."""
    ordered = list(names)
    return next((name for name in reversed(ordered) if name.endswith("down_proj.weight")), ordered[-1])


def rounded(states: torch.Tensor, mantissa_bits: int) -> torch.Tensor:
    """Each number to the nearest one with so many bits after the leading one; the exponent is left alone."""
    mantissa, exponent = torch.frexp(states)
    scale = 2.0 ** (mantissa_bits + 1)
    return torch.ldexp((mantissa * scale).round() / scale, exponent).to(states.dtype)


def _with_base(inv_freq: torch.Tensor, factor: float) -> torch.Tensor:
    """Rotary frequencies base^(-i/n), i in [0, n), for `factor` times the base."""
    exponent = torch.arange(len(inv_freq), dtype=inv_freq.dtype) / len(inv_freq)
    return inv_freq * factor**-exponent


def _round_what_is_kept(engine: Engine, kept: Any) -> None:
    """Put `kept` before whatever a slot's layer stores. What a prompt attends to during its own prefill is exact, as
    where an engine rounds only what it writes."""
    for layer in engine.cache.layers:
        update, fill = layer.update, layer.fill

        def rounded_update(keys: Any, values: Any, *rest: Any, update: Any = update) -> Any:
            return update(kept(keys), kept(values), *rest)

        def rounded_fill(slot: int, keys: Any, values: Any, fill: Any = fill) -> None:
            fill(slot, kept(keys), kept(values))

        layer.update, layer.fill = rounded_update, rounded_fill
