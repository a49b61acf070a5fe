# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far apart two log-probs of the same tokens are.

`p` is the log-prob of who sampled or is compared with, `q` the other one's. With r = q - p on tokens drawn from p:
k1 = mean(-r) and k3 = mean(exp(r) - 1 - r) both estimate KL(p || q) (Schulman's names); k3 is never negative.

Work is done in float32, block by block, so that a step of millions of tokens stays in cache; sums are float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before they are exponentiated: exp(20) is 5e8, beyond any limit, and finite in float32."""
LN_2 = float(np.log(2.0))


@dataclass(frozen=True)
class Distances:
    """Distances over the tokens of a mask that are finite on both sides; `values` is empty if there are none."""

    tokens: int
    """Tokens of the mask."""
    nonfinite: tuple[int, int]
    """Tokens of the mask that are NaN or infinite in p and in q."""
    all_zero: tuple[bool, bool]
    """Whether p and q are 0 in every token: an engine that computed nothing."""
    values: Mapping[str, float]
    """By quantity, as `findings.Finding` names them."""
    row_sums: npt.NDArray[np.float64]
    """[R] sum of the absolute difference of each row; NaN where a token is not finite."""
    row_maxima: npt.NDArray[np.float64]
    """[R] largest absolute difference of each row; 0 in rows without tokens."""
    row_tokens: npt.NDArray[np.int64]
    """[R] tokens of the mask in each row."""


@dataclass(frozen=True)
class Block:
    """Whole rows: their tokens one after the other, and how many each has. Only tokens of the mask."""

    p: Floats
    q: Floats
    row_tokens: npt.NDArray[np.int64]


class _Sums:
    """What a distance needs of all blocks."""

    def __init__(self) -> None:
        self.tokens = self.finite = self.beyond_2 = self.zeros = 0
        self.nonfinite = [0, 0]
        self.nonzero = [False, False]
        self.abs = self.signed = self.prob_abs = self.k3 = self.exp_abs = 0.0
        self.max = 0.0
        self.moments = np.zeros(5)
        """Sums of p, q, p*p, q*q, p*q, of probabilities."""

    def add(self, p: Floats, q: Floats) -> Floats:
        """Count a block's tokens; returns their absolute differences [N]."""
        diff = q - p
        abs_diff: Floats = np.abs(diff)
        total = float(abs_diff.sum())
        self.tokens += p.size
        if np.isfinite(total):
            self._add_finite(p, q, diff, abs_diff, total)
        else:
            self._add_some(p, q)
        return abs_diff

    def _add_some(self, p: Floats, q: Floats) -> None:
        fine_p, fine_q = np.isfinite(p), np.isfinite(q)
        self.nonfinite[0] += int(p.size - fine_p.sum())
        self.nonfinite[1] += int(q.size - fine_q.sum())
        fine = fine_p & fine_q
        p, q = p[fine], q[fine]
        if p.size:
            diff = q - p
            abs_diff = np.abs(diff)
            self._add_finite(p, q, diff, abs_diff, float(abs_diff.sum(dtype=np.float64)))

    def _add_finite(self, p: Floats, q: Floats, diff: Floats, abs_diff: Floats, total: float) -> None:
        self.finite += p.size
        zeros = (int(p.size - np.count_nonzero(p)), int(q.size - np.count_nonzero(q)))
        self.nonzero = [self.nonzero[0] or zeros[0] < p.size, self.nonzero[1] or zeros[1] < q.size]
        self.zeros += max(zeros)
        prob_p, prob_q = np.exp(p), np.exp(q)
        self.moments += (
            float(prob_p.sum()),
            float(prob_q.sum()),
            float(np.dot(prob_p, prob_p)),
            float(np.dot(prob_q, prob_q)),
            float(np.dot(prob_p, prob_q)),
        )
        if total == 0.0:
            self.exp_abs += p.size
            return
        largest = float(abs_diff.max())
        signed = float(diff.sum())
        self.abs += total
        self.max = max(self.max, largest)
        self.signed += signed
        np.subtract(prob_p, prob_q, out=prob_p)
        self.prob_abs += float(np.abs(prob_p, out=prob_p).sum())
        self._add_ratios(diff, signed, largest, abs_diff)

    def _add_ratios(self, diff: Floats, signed: float, largest: float, abs_diff: Floats) -> None:
        if largest > MAX_LOG_RATIO:
            diff = np.clip(diff, -MAX_LOG_RATIO, MAX_LOG_RATIO)
            signed = float(diff.sum(dtype=np.float64))
        ratio = np.exp(diff)
        self.k3 += float(ratio.sum()) - diff.size - signed
        if largest > LN_2:
            self.beyond_2 += int(np.count_nonzero(abs_diff > LN_2))
        np.maximum(ratio, np.reciprocal(ratio), out=ratio)
        self.exp_abs += float(ratio.sum())

    def values(self) -> dict[str, float]:
        """The distances, by quantity; empty without finite tokens."""
        if not self.finite:
            return {}
        n = self.finite
        k1, k3 = -self.signed / n, max(0.0, self.k3 / n)
        found = {
            "logprob_abs_diff_mean": self.abs / n,
            "logprob_abs_diff_max": self.max,
            "prob_abs_diff_mean": self.prob_abs / n,
            "k1": k1,
            "k3": k3,
            "exp_abs_diff_mean": self.exp_abs / n,
            "ratio_beyond_2_share": self.beyond_2 / n,
            "exact_zeros": float(self.zeros),
            **self._correlation(),
        }
        return found | ({"k3_over_k1": k3 / k1} if k1 else {})

    def _correlation(self) -> dict[str, float]:
        """Pearson's, and the smaller standard deviation of the probabilities; no correlation if that is 0."""
        mean_p, mean_q, pp, qq, pq = self.moments / self.finite
        variance_p, variance_q = pp - mean_p**2, qq - mean_q**2
        spread = float(np.sqrt(max(0.0, min(variance_p, variance_q))))
        if spread < 1e-4:  # float32 sums know no smaller one
            return {"prob_spread": 0.0}
        correlation = (pq - mean_p * mean_q) / np.sqrt(variance_p * variance_q)
        return {"prob_spread": spread, "pearson": float(np.clip(correlation, -1.0, 1.0))}


_NO_ROWS = (np.zeros(0), np.zeros(0), np.zeros(0, np.int64))


def distances(blocks: Iterable[Block]) -> Distances:
    """Distances of all blocks together.

    Args:
        blocks: whole rows, in order; each row in one block. Tokens outside of the mask are left out.
    """
    sums = _Sums()
    parts: list[tuple[npt.NDArray[Any], npt.NDArray[Any], npt.NDArray[np.int64]]] = []
    for block in blocks:
        abs_diff = sums.add(block.p, block.q)
        parts.append((*_by_row(abs_diff, block.row_tokens), block.row_tokens))
    row_sums, row_maxima, row_tokens = (np.concatenate(column) for column in zip(_NO_ROWS, *parts, strict=True))
    return Distances(
        tokens=sums.tokens,
        nonfinite=(sums.nonfinite[0], sums.nonfinite[1]),
        all_zero=(not sums.nonzero[0], not sums.nonzero[1]),
        values=sums.values(),
        row_sums=row_sums,
        row_maxima=row_maxima,
        row_tokens=row_tokens,
    )


def _by_row(abs_diff: Floats, row_tokens: npt.NDArray[np.int64]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """[R] sum and maximum of each row; 0 in rows without tokens, which `reduceat` would get wrong."""
    totals, maxima = np.zeros(len(row_tokens)), np.zeros(len(row_tokens))
    full = row_tokens > 0
    if full.any():
        starts = np.concatenate(([0], np.cumsum(row_tokens[full])[:-1]))
        totals[full] = np.add.reduceat(abs_diff, starts)
        maxima[full] = np.maximum.reduceat(abs_diff, starts)
    return totals, maxima
