# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The reading of two scenarios by what people watch: in which of them reward, length, entropy or gradient norm
collapse.

Weaker than comparing log-probs: it needs the fault to have done its damage, and both scenarios. It is asked only where
evidence by token is lacking.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, pstdev

from verl.crosscheck.diagnosis.findings import StepComparison
from verl.crosscheck.diagnosis.rules import Because

MIN_STEPS = 6
"""Fewer have no beginning and end to compare."""
REWARD_FALL, NOISE_TIMES = 0.3, 3.0
"""A reward collapses if its end is below its beginning by this share of it and by that many standard deviations."""
LENGTH_FACTOR, ENTROPY_FACTOR, GRAD_NORM_FACTOR = 3.0, 3.0, 10.0
"""The other outcomes collapse if their end differs from their beginning by such a factor: length and entropy either
way, a gradient norm upwards."""


@dataclass(frozen=True)
class OutcomeReading:
    """Which outcomes collapse in which scenario."""

    because: Because | None
    """`OUTCOME_ROLLOUT`, `OUTCOME_TRAINING`, `OUTCOME_BOTH`; None if nothing collapses, or it cannot be seen."""
    collapsed: Mapping[int, tuple[str, ...]]
    """Names of outcomes, by scenario."""


def judge_outcomes(scenario_1: Sequence[StepComparison], scenario_2: Sequence[StepComparison]) -> OutcomeReading:
    """What the outcomes of both scenarios say.

    Run B being healthy, scenario 1 has A's rollouts with B's training, and scenario 2 the other way round.
    """
    collapsed = {1: collapsed_outcomes(scenario_1), 2: collapsed_outcomes(scenario_2)}
    if min(len(scenario_1), len(scenario_2)) < MIN_STEPS:
        return OutcomeReading(None, collapsed)
    table = {
        (True, False): Because.OUTCOME_ROLLOUT,
        (False, True): Because.OUTCOME_TRAINING,
        (True, True): Because.OUTCOME_BOTH,
    }
    return OutcomeReading(table.get((bool(collapsed[1]), bool(collapsed[2]))), collapsed)


def collapsed_outcomes(scenario: Sequence[StepComparison]) -> tuple[str, ...]:
    """Names of the outcomes that collapse between the first and the last third of the steps, by the trained run."""
    steps = sorted(scenario, key=lambda each: each.global_step)
    return tuple(name for name, fell in _COLLAPSES.items() if _falls(_values(steps, name), fell))


def _values(steps: Sequence[StepComparison], name: str) -> list[float]:
    pairs = [each.outcomes.get(name, (None, None)) for each in steps]
    values = [taker if taker is not None else sampler for sampler, taker in pairs]
    return [value for value in values if value is not None]


def _falls(values: list[float], fell: Callable[[float, float, float], bool]) -> bool:
    third = len(values) // 3
    if len(values) < MIN_STEPS:
        return False
    first, last = values[:third], values[-third:]
    return fell(median(first), median(last), max(pstdev(first), pstdev(last)))


def _reward(first: float, last: float, noise: float) -> bool:
    return first - last > max(REWARD_FALL * abs(first), NOISE_TIMES * noise)


def _by(factor: float, downwards: bool = True) -> Callable[[float, float, float], bool]:
    def fell(first: float, last: float, noise: float) -> bool:
        apart = abs(last - first) > NOISE_TIMES * noise
        return first > 0 and apart and (last > factor * first or (downwards and last < first / factor))

    return fell


_COLLAPSES: Mapping[str, Callable[[float, float, float], bool]] = {
    "reward": _reward,
    "response_length": _by(LENGTH_FACTOR),
    "entropy": _by(ENTROPY_FACTOR),
    "grad_norm": _by(GRAD_NORM_FACTOR, downwards=False),
}
