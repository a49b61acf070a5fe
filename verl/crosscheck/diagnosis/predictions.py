# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far apart two healthy engines are, predicted by both of them.

Each run predicts on its own weights and rows how far rounding in a number format moves log-probs, gradient and change
(`weights.noise`, `StepEvidence.noise`). Rounding in two engines is independent, so differences add like standard
deviations, and what goes with their square adds as it is. `thresholds.threshold` makes a threshold of the two together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from verl.crosscheck.diagnosis.findings import Aspect, Finding, StepComparison
from verl.crosscheck.diagnosis.thresholds import SQUARES, excess, value_at
from verl.crosscheck.evidence.step import StepEvidence

Noise = Mapping[str, float]

ENGINES = {
    Aspect.ROLLOUT_TAKER: (("sampler", "engine"), ("taker", "train")),
    Aspect.ROLLOUT_SAMPLER: (("sampler", "engine"), ("sampler", "train")),
    Aspect.FORWARD: (("sampler", "train"), ("taker", "train")),
    Aspect.REFERENCE: (("sampler", "train"), ("taker", "train")),
}
"""Whose roundings an aspect compares, and in whose format."""

DISTANCES = (
    "logprob_abs_diff_mean",
    "logprob_abs_diff_max",
    "prob_abs_diff_mean",
    "k3",
    "pearson",
    "exp_abs_diff_mean",
    "ratio_beyond_2_share",
)


class Predictions:
    """What two runs predict of a step.

    Args:
        sampler, taker: evidence of the step; either may have no predictions.
    """

    def __init__(self, sampler: StepEvidence, taker: StepEvidence) -> None:
        self._noise: dict[str, Noise] = {"sampler": sampler.noise, "taker": taker.noise}

    def attached(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings, each with its prediction if there is one."""
        return [each if each.value is None else replace(each, predicted=self._of(each)) for each in findings]

    def of_tensors(self, squares: Mapping[str, float]) -> float | None:
        """The relative difference of the change of some tensors together; None unless both runs predict each.

        Args:
            squares: squared norm of the change of each tensor, by name.
        """
        total = apart = 0.0
        for name, square in squares.items():
            both = [noise.get(f"train/change_rel_diff/{name}") for noise in self._noise.values()]
            if None in both:
                return None
            total += square
            apart += square * sum(each**2 for each in both if each is not None)
        return math.sqrt(apart / total) if total else None

    def _of(self, finding: Finding) -> float | None:
        if finding.aspect is Aspect.UPDATE:
            return finding.predicted if finding.predicted is not None else self._of_update(finding.quantity)
        if finding.aspect not in ENGINES or finding.quantity not in DISTANCES:
            return None
        parts = [self._noise[run].get(f"{engine}/{finding.quantity}") for run, engine in ENGINES[finding.aspect]]
        if None in parts:
            return None
        excesses = [excess(finding.quantity, part) for part in parts if part is not None]
        together = sum(excesses) if finding.quantity in SQUARES else math.hypot(*excesses)
        return value_at(finding.quantity, together)

    def _of_update(self, quantity: str) -> float | None:
        if quantity in ("change_rel_diff", "change_norm_rel_diff"):
            parts = [noise.get(f"train/{quantity}") for noise in self._noise.values()]
        elif quantity == "grad_norm_rel_diff":
            parts = [_of_norm(noise) for noise in self._noise.values()]
        else:
            return None
        return None if None in parts else math.hypot(*(part for part in parts if part is not None))


def _of_norm(noise: Noise) -> float | None:
    """How far a gradient's norm moves. Measured once it may be next to 0 by chance; noise at right angles to the
    gradient, as most of it is, adds half of its relative square."""
    apart, of_norm = noise.get("train/grad_rel_diff"), noise.get("train/grad_norm_rel_diff")
    return None if apart is None or of_norm is None else max(of_norm, apart**2 / 2)


def carried_on(steps: Sequence[StepComparison]) -> list[StepComparison]:
    """The steps, those without predictions having the ones of the step before; the first ones those of the next.

    Args:
        steps: of one pair, in order.
    """
    known: dict[tuple[Aspect, str], float] = {}
    for step in reversed(steps):
        known |= {(each.aspect, each.quantity): each.predicted for each in step.findings if each.predicted is not None}
    found = []
    for step in steps:
        known |= {(each.aspect, each.quantity): each.predicted for each in step.findings if each.predicted is not None}
        findings = tuple(replace(each, predicted=_known(each, known)) for each in step.findings)
        found.append(replace(step, findings=findings))
    return found


def _known(finding: Finding, known: Mapping[tuple[Aspect, str], float]) -> float | None:
    if finding.value is None or finding.predicted is not None:
        return finding.predicted
    return known.get((finding.aspect, finding.quantity))
