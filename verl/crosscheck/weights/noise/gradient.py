# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far apart two gradients of the same loss are, and the changes that Adam would make by either; one rank's part."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from verl.crosscheck.weights.naming import clean

BLOCK_ELEMENTS = 1 << 22


@dataclass(frozen=True)
class GradientSums:
    """Sums of squares over elements of one tensor, of a plain and a noisy pass."""

    plain: float
    noisy: float
    apart: float
    change: float | None = None
    """Of the change that the optimizer makes by the plain gradient; None if the optimizer is not Adam."""
    noisy_change: float | None = None
    change_apart: float | None = None

    def __add__(self, other: GradientSums) -> GradientSums:
        both = self, other
        return GradientSums(
            self.plain + other.plain,
            self.noisy + other.noisy,
            self.apart + other.apart,
            _total(each.change for each in both),
            _total(each.noisy_change for each in both),
            _total(each.change_apart for each in both),
        )


def _total(parts: Iterable[float | None]) -> float | None:
    """Return a sum; None if a part is not known."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def local_gradients(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return this rank's parts of the gradients [E], named as `tensors.local_parameters` does; no copies."""
    return {
        clean(name): _local(parameter.grad)
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and parameter.grad is not None
    }


def gradient_sums(
    model: nn.Module, optimizer: torch.optim.Optimizer, plain: Mapping[str, torch.Tensor]
) -> dict[str, GradientSums]:
    """Return the sums of each tensor, its present gradient being the noisy one.

    Gradients of a few rows are larger than those of a whole batch, and a large gradient counts more beside the
    optimizer's moments than it should. So for the change both are scaled by one factor that gives the plain gradient
    the size which the second moments have seen. Weight decay is left out: it is the same in both.

    Args:
        plain: copies of `local_gradients` after a pass without noise, in main memory.

    Raises:
        ValueError: the two passes gave gradients to other tensors.
    """
    noisy = local_gradients(model)
    if noisy.keys() != plain.keys():
        raise ValueError(f"{len(plain)} tensors have a gradient, with noise {len(noisy)}")
    adam = _adam_by_name(model, optimizer)
    factor = _factor(plain, adam)
    return {name: _sums(plain[name], noisy[name], adam.get(name), factor) for name in noisy}


@dataclass(frozen=True)
class _Adam:
    """State of Adam for one tensor before an update."""

    lr: float
    betas: tuple[float, float]
    eps: float
    step: float
    """Updates made so far."""
    first: torch.Tensor | None
    """[E] exponential mean of gradients; None before the first update, as the second."""
    second: torch.Tensor | None

    def second_unbiased(self) -> float:
        """Return the sum of expected squares of a gradient."""
        if self.second is None or not self.step:
            return 0.0
        total = sum(float(block.float().sum()) for block in _blocks(self.second))
        return float(total / (1 - self.betas[1] ** self.step))


def _adam_by_name(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, _Adam]:
    """Return the state of each tensor that an optimizer of Adam's kind trains."""
    names = {id(parameter): clean(name) for name, parameter in model.named_parameters()}
    found = {}
    for group in optimizer.param_groups:
        if not {"lr", "betas", "eps"} <= group.keys():
            continue
        for parameter in group["params"]:
            state: Mapping[str, Any] = optimizer.state.get(parameter, {})
            first, second = state.get("exp_avg"), state.get("exp_avg_sq")
            if id(parameter) not in names or (state and (first is None or second is None)):
                continue
            found[names[id(parameter)]] = _Adam(
                float(group["lr"]),
                tuple(group["betas"]),
                float(group["eps"]),
                float(state.get("step", 0)),
                None if first is None else _local(first),
                None if second is None else _local(second),
            )
    return found


def _factor(plain: Mapping[str, torch.Tensor], adam: Mapping[str, _Adam]) -> float:
    """Return by what gradients are multiplied before an update by them is predicted; 1 before the first update."""
    squares = sum(_squares(_blocks(gradient)) for name, gradient in plain.items() if name in adam)
    seen = sum(adam[name].second_unbiased() for name in plain if name in adam)
    return math.sqrt(seen / squares) if squares and seen else 1.0


def _sums(plain: torch.Tensor, noisy: torch.Tensor, adam: _Adam | None, factor: float) -> GradientSums:
    parts = [0.0] * 6
    empty = torch.zeros(0, device=noisy.device)
    first, second = (empty, empty) if adam is None else (adam.first, adam.second)
    for start in range(0, noisy.numel(), BLOCK_ELEMENTS):
        block = slice(start, start + BLOCK_ELEMENTS)
        g = noisy[block].float()
        p = plain[block].to(g.device, torch.float32)
        found = [p, g, g - p]
        if adam is not None:
            moments = [None if each is None else each[block].to(g.device, torch.float32) for each in (first, second)]
            changes = [_change(each * factor, moments[0], moments[1], adam) for each in (p, g)]
            found += [*changes, changes[1] - changes[0]]
        for number, values in enumerate(found):
            parts[number] += _squares([values])
    return GradientSums(*parts) if adam is not None else GradientSums(*parts[:3])


def _change(
    gradient: torch.Tensor, first: torch.Tensor | None, second: torch.Tensor | None, adam: _Adam
) -> torch.Tensor:
    """Return how Adam would change the elements [E] by a gradient."""
    beta1, beta2 = adam.betas
    mean = gradient * (1 - beta1) if first is None else first * beta1 + gradient * (1 - beta1)
    squares = gradient.square() * (1 - beta2)
    if second is not None:
        squares = squares + second * beta2
    steps = adam.step + 1
    mean, squares = mean / (1 - beta1**steps), squares / (1 - beta2**steps)
    return mean * adam.lr / (squares.sqrt() + adam.eps)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    local: torch.Tensor = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return local.detach().reshape(-1)


def _blocks(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    yield from tensor.split(BLOCK_ELEMENTS) if tensor.numel() else ()


def _squares(blocks: Iterable[torch.Tensor]) -> float:
    """Return the sum of squares. Each block is summed in float32 where it lies: not every device has float64."""
    return sum(float(torch.linalg.vector_norm(block.float())) ** 2 for block in blocks if block.numel())
