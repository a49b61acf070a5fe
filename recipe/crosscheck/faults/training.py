# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults of a training engine, whichever kind it is: of its gradient and update, its forward pass, its weights.

Tensors may be shards: each rank spoils its own. B rows, R response tokens, T tokens of a packed row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from recipe.crosscheck.faults.site import Site

_LAYER = re.compile(r"\blayers\.(\d+)\.")


class TrainingFaults:
    """The faults of one actor's training."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def attach(self, module: nn.Module) -> None:
        """Make the actor's forward pass one that can be at fault. Once a module."""
        generator = torch.Generator().manual_seed(0)
        for name, part in module.named_modules():
            if name.endswith(".self_attn"):
                part.register_forward_pre_hook(self._leak, with_kwargs=True)
            elif name.endswith(".mlp"):
                part.register_forward_hook(lambda _, args, output: self._dropped(output, generator))

    def begin_after(self, pushed_step: int, module: nn.Module) -> None:
        """The actor's weights have been pushed to the rollout, and are now what the next step trains from."""
        self._site.begin_after(pushed_step)
        spread = self._site.amount("perturbed_layer")
        if spread is not None:
            perturb(last_layer(module), spread, seed=self._site.step)

    def temperature(self, asked: float) -> float:
        """The temperature that log-probs are computed at where `asked` is called for."""
        factor = self._site.amount("train_temperature")
        return asked if factor is None else asked * factor

    def loss_mask(self, mask_BR: torch.Tensor) -> torch.Tensor:
        """The mask that the loss is taken over."""
        shift = self._site.amount("loss_mask_shifted")
        return mask_BR if shift is None else shifted(mask_BR, int(shift))

    @contextmanager
    def optimizer_step(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Around the step that clips the gradient and updates the weights."""
        self._spoil_gradient(module)
        rates = [group["lr"] for group in optimizer.param_groups]
        factor = self._site.amount("learning_rate")
        for group in optimizer.param_groups if factor is not None else ():
            group["lr"] = group["lr"] * factor
        before = [local(parameter).clone() for parameter in module.parameters()] if self._loses_updates else []
        yield
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self._lose_updates(module, before)

    @torch.no_grad()
    def _spoil_gradient(self, module: nn.Module) -> None:
        site = self._site
        with_gradient = {name: local(p.grad) for name, p in module.named_parameters() if p.grad is not None}
        if (factor := site.amount("gradient_scaled")) is not None:
            for gradient in with_gradient.values():
                gradient.mul_(factor)
        if (number := site.amount("layer_gradient_zeroed")) is not None:
            for gradient in _of_mlp(with_gradient, int(number)):
                gradient.zero_()
        if site.acts("nan_gradient"):
            first = next(gradient for gradient in with_gradient.values() if gradient.numel())
            first.view(-1)[0] = torch.nan

    @property
    def _loses_updates(self) -> bool:
        return self._site.acts("update_skipped") or self._site.acts("bf16_update")

    @torch.no_grad()
    def _lose_updates(self, module: nn.Module, before: list[torch.Tensor]) -> None:
        bits = int(self._site.amount("bf16_update") or 0)
        for parameter, old in zip(module.parameters(), before, strict=False):
            new = local(parameter)
            kept = torch.zeros_like(new, dtype=torch.bool)
            if not self._site.acts("update_skipped"):
                kept = (new - old).abs() > half_spacing(old, bits)
            new.copy_(torch.where(kept, new, old))

    def _leak(self, module: nn.Module, args: Any, kwargs: dict[str, Any]) -> Any:
        ahead = self._site.amount("attention_leak")
        if ahead is None:
            return None
        tokens = kwargs["hidden_states"].shape[1]
        return args, {**kwargs, "attention_mask": leaking(kwargs.get("attention_mask"), tokens, int(ahead))}

    def _dropped(self, output: torch.Tensor, generator: torch.Generator) -> torch.Tensor | None:
        probability = self._site.amount("dropout")
        if probability is None:
            return None
        kept = torch.rand(output.shape, generator=generator) >= probability
        return output * kept.to(output) / (1 - probability)


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor, sharing its memory and outside of autograd."""
    return (tensor.to_local() if isinstance(tensor, DTensor) else tensor).detach()


def shifted(mask_BR: torch.Tensor, by: int) -> torch.Tensor:
    """The mask moved `by` tokens to the right; what leaves it is lost."""
    moved = torch.zeros_like(mask_BR)
    moved[:, by:] = mask_BR[:, : mask_BR.shape[1] - by]
    return moved


def half_spacing(weights: torch.Tensor, bits: int) -> torch.Tensor:
    """Half the distance between neighbours among numbers of so many significant bits, at each weight; 0 at 0."""
    _, exponent = torch.frexp(weights)
    spacing = torch.ldexp(torch.ones_like(weights), exponent - bits)
    return torch.where(weights == 0, torch.zeros_like(weights), spacing / 2)


def leaking(mask: torch.Tensor | None, tokens: int, ahead: int) -> torch.Tensor:
    """A causal attention mask, [..., T, T], that also shows each token the `ahead` ones after it.

    Args:
        mask: True, or 0 in a mask that is added, where a token is seen; None for plain causal attention.
    """
    if mask is None:
        mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
    beyond = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device)
    beyond = beyond.triu(1) & beyond.tril(ahead)
    return mask.masked_fill(beyond, True if mask.dtype == torch.bool else 0.0)


def last_layer(module: nn.Module) -> list[torch.Tensor]:
    """This rank's parts of the last decoder layer's weights."""
    numbered = [(found, p) for name, p in module.named_parameters() if (found := _LAYER.search(name))]
    last = max(int(found[1]) for found, _ in numbered)
    return [local(parameter) for found, parameter in numbered if int(found[1]) == last]


@torch.no_grad()
def perturb(weights: list[torch.Tensor], spread: float, seed: int) -> None:
    """Multiply each weight by a normal number around 1 with standard deviation `spread`."""
    generator = torch.Generator().manual_seed(seed)
    for tensor in weights:
        tensor.mul_(1 + spread * torch.randn(tensor.shape, generator=generator).to(tensor))


def _of_mlp(by_name: dict[str, torch.Tensor], layer: int) -> list[torch.Tensor]:
    chosen = [
        tensor
        for name, tensor in by_name.items()
        if (found := _LAYER.search(name)) and int(found[1]) == layer and ".mlp." in name
    ]
    if not chosen:
        raise ValueError(f"layer_gradient_zeroed:{layer}: the model has no layer {layer} with an MLP")
    return chosen
