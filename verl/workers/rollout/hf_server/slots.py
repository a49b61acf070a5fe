# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A KV cache of a fixed number of slots (S) and a fixed length (T), in which each row keeps its own position.

Transformers' own caches let all rows of a batch grow in step. Here a row sits at the start of its slot whatever the
others do, and the shapes never change: both are needed for numbers that do not depend on the neighbours.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache


class _SlotLayer(CacheLayerMixin):
    """One layer: keys and values [S, heads, T, head size]."""

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: torch.Tensor) -> None:
        _, heads, _, size = key_states.shape
        shape = (self._cache.slots, heads, self._cache.length, size)
        self.keys = key_states.new_zeros(shape)
        self.values = key_states.new_zeros(shape)
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, cache_kwargs: dict[str, Any] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write one token a slot, [S, heads, 1, head size], at that slot's position; return the whole layer."""
        if not self.is_initialized:
            self.lazy_initialization(key_states)
        rows = self._cache.rows
        self.keys[rows, :, self._cache.position_S] = key_states[:, :, 0]
        self.values[rows, :, self._cache.position_S] = value_states[:, :, 0]
        return self.keys, self.values

    def fill(self, slot: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Put a prefilled prompt, [1, heads, prompt length, head size], at the start of `slot`."""
        if not self.is_initialized:
            self.lazy_initialization(keys)
        for store, states in ((self.keys, keys), (self.values, values)):
            store[slot].zero_()  # a diverged row may have left NaN behind, and 0 times NaN is NaN
            store[slot, :, : states.shape[2]] = states[0]

    def get_mask_sizes(self, cache_position: torch.Tensor) -> tuple[int, int]:
        return self._cache.length, 0

    def get_seq_length(self) -> int:
        return self._cache.length

    def get_max_cache_shape(self) -> int:
        return self._cache.length


class SlotCache(Cache):
    """The cache of all layers, and where each slot stands.

    Attributes:
        slots: S, rows of a decoding step.
        length: T, most tokens of a row, prompt and response together.
        position_S: Where each slot's next token goes, int64; 0 for a free slot.
    """

    def __init__(self, layers: int, slots: int, length: int) -> None:
        self.slots, self.length = slots, length
        self.rows = torch.arange(slots)
        self.position_S = torch.zeros(slots, dtype=torch.long)
        super().__init__(layers=[_SlotLayer(self) for _ in range(layers)])

    def admit(self, slot: int, prompt: DynamicCache) -> None:
        """Copy a prompt that was prefilled alone into a free slot."""
        for mine, theirs in zip(self.layers, prompt.layers, strict=True):
            mine.fill(slot, theirs.keys, theirs.values)
        self.position_S[slot] = prompt.get_seq_length()

    def advance(self, slot: int) -> None:
        self.position_S[slot] += 1

    def release(self, slot: int) -> None:
        self.position_S[slot] = 0

    def repeat_random(self, position: int) -> None:
        """Put the same random row, `position` tokens long, into every slot."""
        generator = torch.Generator().manual_seed(position)
        for layer in self.layers:
            for store in (layer.keys, layer.values):
                store[:] = torch.randn(store.shape[1:], generator=generator).to(store.dtype)
        self.position_S.fill_(position)

    def mask(self) -> torch.Tensor:
        """Which cached tokens each slot's next token sees, bool [S, 1, 1, T]; a free slot sees its own alone."""
        return (torch.arange(self.length) <= self.position_S[:, None])[:, None, None, :]
