# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What one rank remembers of the actor's weights within a step, and sums of squares of their changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch

from verl.crosscheck.weights.shards import Shard

BLOCK_ELEMENTS = 1 << 16
"""Sums are taken over blocks that fit a core's cache: measured at 3 ns an element on one core, blocks four times as
large at 12 ns."""


@dataclass(frozen=True)
class RememberedPart:
    """One rank's part of the change of one tensor; sums of squares, in float64."""

    own: float
    elements: int
    """That this rank holds."""
    whole: int | None
    """Of the whole tensor; None if not known."""
    other: float | None = None
    apart: float | None = None


class WeightMemory:
    """Copies of a rank's shards in main memory, in the dtype of the parameters.

    One copy is kept from step to step, a second one between `before_load` and `after_load` if that is asked for.
    """

    def __init__(self) -> None:
        self._start: dict[str, torch.Tensor] = {}
        self._own: dict[str, torch.Tensor] = {}
        self._parts: dict[str, RememberedPart] = {}

    def remember(self, shards: Mapping[str, Shard]) -> None:
        """From now on changes count from these weights."""
        if self._start.keys() != shards.keys():
            self._start = {}
        for name, shard in shards.items():
            self._keep(name, shard.local)

    def own_change(self, shards: Mapping[str, Shard]) -> dict[str, RememberedPart]:
        """How far the weights have moved since they were remembered.

        Raises:
            ValueError: nothing was remembered, or the parameters are not those that were.
        """
        self._require_same(shards)
        return {
            name: RememberedPart(_squares(shard.local, self._start[name]), shard.local.numel(), shard.whole)
            for name, shard in shards.items()
        }

    def before_load(self, shards: Mapping[str, Shard], full: bool) -> None:
        """Other weights are about to be loaded over these; `full` keeps a copy of them. Raises as `own_change` does."""
        self._parts = self.own_change(shards)
        self._own = {name: _copy(shard.local) for name, shard in shards.items()} if full else {}

    def after_load(self, shards: Mapping[str, Shard]) -> dict[str, RememberedPart]:
        """They have been: changes of both, and the loaded weights are remembered.

        Raises:
            ValueError: the parameters are not those of `before_load`.
        """
        self._require_same(shards)
        if self._parts.keys() != shards.keys():
            raise ValueError("weights were loaded, and their change was not measured before that")
        changes = {}
        for name, shard in shards.items():
            loaded = _copy(shard.local) if shard.local.device.type != "cpu" else shard.local
            other = _squares(loaded, self._start[name])
            own = self._own.pop(name, None)
            apart = None if own is None else _squares(own, loaded)
            changes[name] = replace(self._parts[name], other=other, apart=apart)
            self._keep(name, loaded)
        self._parts = {}
        return changes

    def _keep(self, name: str, local: torch.Tensor) -> None:
        kept = self._start.get(name)
        if kept is not None and kept.shape == local.shape and kept.dtype == local.dtype:
            kept.copy_(local)
        else:
            self._start[name] = _copy(local)

    def _require_same(self, shards: Mapping[str, Shard]) -> None:
        if not self._start:
            raise ValueError("the weights at the start of the step were not remembered")
        for name in self._start.keys() | shards.keys():
            before = self._start[name].numel() if name in self._start else None
            now = shards[name].local.numel() if name in shards else None
            if before != now:
                raise ValueError(
                    f"parameter {name} had {before} elements on this rank when it was remembered, and has {now} now"
                )


def _copy(local: torch.Tensor) -> torch.Tensor:
    return local.detach().to("cpu", copy=True)


def _squares(one: torch.Tensor, other: torch.Tensor) -> float:
    """Sum of squares of the difference of two flat tensors [E], each taken to float64 before it is."""
    total = 0.0
    for a, b in zip(one.split(BLOCK_ELEMENTS), other.split(BLOCK_ELEMENTS), strict=True):
        difference = a.to("cpu", torch.float64) - b.to("cpu")
        total += float(torch.dot(difference, difference))
    return total
