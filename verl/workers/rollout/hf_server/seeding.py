# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which seed a row has. Pure: a seed is a digest of what the row is, never of when its request arrived."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

_SEED_BYTES = 7
"""56 bits: fits every integer that a seed passes through on its way."""


def digest(*parts: object) -> int:
    """A seed from values with a stable `repr`, such as numbers, strings and lists of them."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=_SEED_BYTES).digest(), "little")


def base_seed(configured: int | None) -> int:
    """The run's seed: the configured one, or a random one if that is None (such a run does not repeat)."""
    return secrets.randbits(31) if configured is None else int(configured)


def row_seeds(base: int, global_step: int, validate: bool, rows: int) -> list[int]:
    """Seeds of the rows of one `generate_sequences` call, by position in the whole batch.

    A run resumed at a step draws what the uninterrupted run would have drawn, since nothing is counted up.
    """
    return [digest(base, global_step, bool(validate), row) for row in range(rows)]


def turn_seed(request_seed: int, prompt_ids: Sequence[int]) -> int:
    """Seed of one generation; the prompt sets the turns of a conversation apart, which share their row's seed."""
    return digest(request_seed, list(prompt_ids))
