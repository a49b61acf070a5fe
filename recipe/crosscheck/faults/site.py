# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Where a process stands: the plan it was given, the step it is in, and so which faults act."""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping

from recipe.crosscheck.faults.plan import VARIABLE, FaultPlan, PlanError, parse

logger = logging.getLogger(__name__)


class Site:
    """The plan of this process, at the step that it is in.

    A training worker and a rollout server learn of a step when weights are pushed, which ends the step before; a push
    belongs to the global step whose update made the weights, 0 before the first.
    """

    def __init__(self, plan: FaultPlan) -> None:
        self._plan = plan
        self._acting: Mapping[str, float] = {}
        self.pushed_step = 0
        """Global step of the last push."""

    @property
    def step(self) -> int:
        """The step that the last push began."""
        return self.pushed_step + 1

    def begin_after(self, pushed_step: int) -> None:
        """The weights of a step have been, or are being, pushed: the next one begins."""
        self.pushed_step = pushed_step
        self._acting = self._plan.acting(self.step)
        for name in self._acting:
            logger.warning("planted fault %s acts in step %d", name, self.step)

    def amount(self, name: str) -> float | None:
        """How much of a fault acts now; None if it does not."""
        return self._acting.get(name)

    def acts(self, name: str) -> bool:
        return name in self._acting


@functools.cache
def own_site() -> Site:
    """That of this process.

    Raises:
        PlanError: the run has no plan, or one that cannot be read.
    """
    text = os.environ.get(VARIABLE)
    if text is None:
        raise PlanError(
            f"this run's configuration asks for planted faults, and {VARIABLE} is not set. Start it through "
            "scripts/demo --fault, or leave recipe.crosscheck.faults out of the configuration"
        )
    return Site(parse(text))
