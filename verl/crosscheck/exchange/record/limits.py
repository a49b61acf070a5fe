# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Limits of what a file may make its reader allocate."""

from __future__ import annotations

MAX_HEADER_BYTES = 16 << 20
MAX_DIMENSIONS = 32

EXPANSION_FLOOR_BYTES = 64 << 20
EXPANSION_FACTOR = 64


def memory_limit_bytes(file_bytes: int) -> int:
    """Return the memory that a file of this size may restore to; the writer stores in full what would need more."""
    return EXPANSION_FLOOR_BYTES + EXPANSION_FACTOR * file_bytes


class MalformedError(Exception):
    """Content that breaks the format; becomes a DamagedError where the path is known."""


class ForeignError(MalformedError):
    """The file is of another format, so no advice to delete it is given."""


def checked_shape(shape: object) -> tuple[int, ...]:
    """Return the shape if it is a list of at most MAX_DIMENSIONS sizes that an array can have."""
    if (
        not isinstance(shape, list)
        or len(shape) > MAX_DIMENSIONS
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in shape)
    ):
        raise MalformedError(f"{str(shape)[:80]} is not a shape")
    return tuple(shape)


class Budget:
    """Counts what restoring allocates, so that a small hostile file cannot ask for a huge array."""

    def __init__(self, file_bytes: int) -> None:
        self._left = memory_limit_bytes(file_bytes)

    def take(self, size_bytes: int) -> None:
        """Claim memory; raise MalformedError if the file is too small to ask for so much."""
        self._left -= size_bytes
        if self._left < 0:
            raise MalformedError(f"it asks for more memory than a file of its size may ({size_bytes} bytes at once)")
