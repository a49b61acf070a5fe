# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rounds the output of each linear layer, embedding and norm of a model at random, and the gradients that reach them.

Two healthy implementations of a model differ in the order and the format of their sums, so each output may round to a
neighbour of what it is here. Drawing such neighbours at random (Monte-Carlo arithmetic, D. S. Parker) shows how far
that moves the result, on the very weights and tokens, without a second implementation. Splitting the batch otherwise
does not show it: it changes nothing on a CPU or with batch-invariant kernels.

An output y becomes y + u * y * r on average, r uniform in [-1, 1]. Where the output's own format is too coarse to hold
that, y moves to the next number up or down, with the probability that gives the same average: rounding y * (1 + u * r)
to the nearest would return y each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

QUARTER_SPACING = {"float32": 2.0**-25, "float16": 2.0**-12, "bfloat16": 2.0**-9}
"""By format, a quarter of the distance between 1 and the next number: with it, predictions of a small and a deep model
are 1.0 to 1.9 times what eager and sdpa attention, and bfloat16 and float32, are apart."""
TF32_LINEAR = 2.0**-11
"""Factors of a product are rounded to 11 bits, its sum is not rounded: the error of an output is that of a factor."""
FP8_LINEAR = 2.0**-4
"""Likewise for e4m3, whose significand has 4 bits."""
BLOCK_ELEMENTS = 1 << 22
"""Outputs are rounded block by block, since random numbers for all logits at once could take more memory than these."""


@dataclass(frozen=True)
class Roundoff:
    """Largest relative error u of a module's output; None takes the quarter spacing of the output's own format."""

    linear: float | None = None
    other: float | None = None
    """Of embeddings and norms."""


OWN = Roundoff()


def training_roundoff() -> Roundoff:
    """Return the one of this process: of each output's own format, or of TF32 where it makes float32 products."""
    tf32 = torch.cuda.is_available() and torch.get_float32_matmul_precision() != "highest"
    return Roundoff(linear=TF32_LINEAR) if tf32 else OWN


def engine_roundoff(dtype: str, quantization: str | None) -> Roundoff | None:
    """Return the one of a rollout engine; None if nothing is known of its format.

    Args:
        dtype: torch's name of the format in which it computes.
        quantization: as the engine is asked for it.
    """
    unit = QUARTER_SPACING.get(dtype)
    if unit is None or quantization not in (None, "", "fp8"):
        return None
    return Roundoff(FP8_LINEAR if quantization == "fp8" else unit, unit)


@contextmanager
def rounding(model: nn.Module, roundoff: Roundoff, seed: int) -> Iterator[int]:
    """Round at random within the context. Yields how many modules' outputs are rounded.

    The random numbers are a function of seed, module and pass of the whole model: activations that checkpointing
    computes again are rounded as before, and torch's random states are left alone.
    """
    passes = _Passes()
    handles = [model.register_forward_pre_hook(passes.count)]
    modules = [(module, name) for module in model.modules() if (name := _field(module)) is not None]
    for number, (module, name) in enumerate(modules):
        handles.append(module.register_forward_hook(_Rounding(getattr(roundoff, name), seed, number, passes)))
    try:
        yield len(modules)
    finally:
        for handle in handles:
            handle.remove()


def _field(module: nn.Module) -> str | None:
    """Return the field of `Roundoff` for a module; None if it is none of these kinds, or consists of other modules."""
    if next(module.children(), None) is not None:
        return None
    if isinstance(module, nn.Linear):
        return "linear"
    is_norm = "norm" in type(module).__name__.lower()
    return "other" if is_norm or isinstance(module, nn.Embedding) else None


class _Passes:
    """Counts passes of the whole model."""

    def __init__(self) -> None:
        self.made = 0

    def count(self, module: nn.Module, args: Any) -> None:
        self.made += 1


class _Rounding:
    """Forward hook of one module."""

    def __init__(self, unit: float | None, seed: int, number: int, passes: _Passes) -> None:
        self._unit, self._seed, self._number, self._passes = unit, seed, number, passes

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        if not isinstance(output, torch.Tensor) or not output.is_floating_point():
            return output
        dtype = str(output.dtype).removeprefix("torch.")
        unit = QUARTER_SPACING.get(dtype) if self._unit is None else self._unit
        if unit is None:
            return output
        if self._unit == TF32_LINEAR and output.dtype != torch.float32:
            unit = QUARTER_SPACING[dtype]
        seed = hash((self._seed, self._number, self._passes.made)) & 0x7FFF_FFFF_FFFF
        return _Rounded.apply(output, unit, seed)


class _Rounded(torch.autograd.Function):  # type: ignore[misc]  # torch has no types for it
    """Rounds a tensor and, on the way back, its gradient."""

    @staticmethod
    def forward(context: Any, values: torch.Tensor, unit: float, seed: int) -> torch.Tensor:
        context.unit, context.seed = unit, seed
        return rounded(values, unit, seed)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor) -> Any:
        return rounded(gradients[0], context.unit, context.seed + 1), None, None


def rounded(values: torch.Tensor, unit: float, seed: int) -> torch.Tensor:
    """Return a copy of `values`, of any shape, each of which has moved by at most `unit` of itself on average."""
    generator = torch.Generator(values.device).manual_seed(seed)
    result = torch.empty(values.shape, dtype=values.dtype, device=values.device)
    for source, target in zip(
        values.reshape(-1).split(BLOCK_ELEMENTS), result.view(-1).split(BLOCK_ELEMENTS), strict=True
    ):
        target.copy_(_rounded_block(source.float(), unit, torch.finfo(values.dtype).eps, generator))
    return result


def _rounded_block(values: torch.Tensor, unit: float, eps: float, generator: torch.Generator) -> torch.Tensor:
    """Return float32 [E]; `eps` is the distance between 1 and the next number of the format that `values` are in."""
    wanted = torch.rand(values.shape, generator=generator, device=values.device).mul_(2 * unit).sub_(unit).mul_(values)
    if unit >= eps:
        return values + wanted
    # A number m * 2**e with m in [0.5, 1) is eps * 2**(e - 1) from the next one.
    spacing = torch.ldexp(torch.full_like(values, eps / 2), torch.frexp(values).exponent)
    moves = torch.rand(values.shape, generator=generator, device=values.device) * spacing < wanted.abs()
    return torch.where(moves, values + spacing * wanted.sign(), values)
