# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two-digit addition: the problems that the tiny model is taught, trained and tested on. Pure; no torch."""

from __future__ import annotations

import random
from dataclasses import dataclass

MAX_TERM = 99
"""Largest number on either side of the plus sign."""


@dataclass(frozen=True)
class Problem:
    """One addition, `left + right`, with terms in [0, `MAX_TERM`]."""

    left: int
    right: int

    @property
    def question(self) -> str:
        """What the user message says, such as `12+34`; the chat template adds the `=`."""
        return f"{self.left}+{self.right}"

    @property
    def answer(self) -> str:
        return str(self.left + self.right)


def draw(rng: random.Random) -> Problem:
    """One problem with both terms uniform."""
    return Problem(rng.randint(0, MAX_TERM), rng.randint(0, MAX_TERM))
