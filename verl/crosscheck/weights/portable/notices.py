# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a person should know of portable weights that were loaded, said once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from verl.crosscheck.weights.portable.transfer import Loaded


class Notices:
    """Of one run.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said: set[str] = set()

    def tell(self, loaded: Loaded) -> None:
        """Say what is new."""
        for line in _lines(loaded):
            if line not in self._said:
                self._said.add(line)
                self._say(line)


def _lines(loaded: Loaded) -> Iterator[str]:
    if loaded.rounded:
        yield (
            f"{len(loaded.rounded)} of {loaded.tensors} tensors are rounded when they are loaded, since this run holds "
            f"them in a narrower number format than the other run; the first is {loaded.rounded[0]}"
        )
    if loaded.not_compared:
        yield (
            f"Warning: {len(loaded.not_compared)} frozen tensors under the adapters could not be compared, since this "
            f"run holds them in a narrower number format; the first is {loaded.not_compared[0]}"
        )
