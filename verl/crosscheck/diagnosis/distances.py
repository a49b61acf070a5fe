# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far apart two log-probs of the same tokens are.

`p` is the log-prob of who sampled or is compared with, `q` the other one's. With r = q - p on tokens drawn from p:
k1 = mean(-r) and k3 = mean(exp(r) - 1 - r) both estimate KL(p || q) (Schulman's names); k3 is never negative.

Work is done in float32, block by block, so that a step of millions of tokens stays in cache; sums are float64, row by
row, since rows are what errors are taken over.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before they are exponentiated: exp(20) is 5e8, beyond any limit, and finite in float32."""
LN_2 = float(np.log(2.0))
HIGHEST_LOG_PROB = 0.05
"""Above it a number is no log-prob; what bfloat16 rounds up from below 0 stays below it."""
SMALL_LOG_PROB = -30.0
"""Below, a probability is too small for ratios of probabilities in float32."""
LEAST_SPREAD = 1e-4
"""Standard deviation of probabilities below which sums of float32 know no correlation."""


class Scratch:
    """Memory that one block after the other uses: fresh pages for each array would cost more than the arithmetic."""

    def __init__(self) -> None:
        self._buffers: dict[Hashable, Floats] = {}

    def array(self, name: Hashable, size: int) -> Floats:
        """[size] of any content, valid until the same name is asked for again."""
        found = self._buffers.get(name)
        if found is None or found.size < size:
            found = self._buffers[name] = np.empty(size, np.float32)
        return found[:size]


class SampleColumn:
    """Log-probs of a block by one engine [N], and what several comparisons need of them.

    Args:
        log_prob: of each token.
        room: where probabilities are put [N]; None makes an array.
    """

    def __init__(self, log_prob: Floats, room: Floats | None = None) -> None:
        self.log_prob, self._room = log_prob, room

    @cached_property
    def prob(self) -> Floats:
        found: Floats = np.exp(self.log_prob, out=self._room)
        return found

    @cached_property
    def lowest(self) -> float:
        return float(self.log_prob.min(initial=0.0))

    @cached_property
    def highest(self) -> float:
        return float(self.log_prob.max(initial=0.0))

    @cached_property
    def zeros(self) -> int:
        """Tokens whose log-prob is exactly 0."""
        return int(np.count_nonzero(self.log_prob == 0))

    @cached_property
    def moments(self) -> tuple[float, float]:
        """Sum of the probabilities and of their squares."""
        return float(self.prob.sum()), float(np.dot(self.prob, self.prob))


@dataclass(frozen=True)
class Distances:
    """Distances over the tokens of a mask that have a log-prob on both sides; `values` is empty if there are none."""

    tokens: int
    """Tokens of the mask."""
    nonfinite: tuple[int, int]
    """Tokens of the mask that have no log-prob in p and in q: a number that is NaN, infinite or above 0."""
    all_zero: tuple[bool, bool]
    """Whether p and q are 0 in every finite token: an engine that computed nothing."""
    values: Mapping[str, float]
    """By quantity, as `findings.Finding` names them."""
    errors: Mapping[str, float]
    """Standard errors of some of them, from the scatter over rows: tokens of a row depend on each other."""
    row_sums: Doubles
    """[R] sum of the absolute difference of each row; not finite where a token is not."""
    row_maxima: Doubles
    """[R] largest absolute difference of each row; 0 in rows without tokens."""
    row_tokens: Ints
    """[R] tokens of the mask in each row."""


@dataclass(frozen=True)
class TokenBlock:
    """Whole rows: their tokens one after the other, and how many each has. Only tokens of the mask."""

    p: Floats
    q: Floats
    row_tokens: Ints


class Accumulator:
    """Distances of one pair of engines, from one block of rows after the other."""

    def __init__(self) -> None:
        self._tokens = self._finite = self._beyond_2 = self._zeros = 0
        self._nonfinite = [0, 0]
        self._nonzero = [False, False]
        self._max = 0.0
        self._moments = np.zeros(5)
        self._scratch = Scratch()
        self._rows: list[tuple[Doubles, Doubles, Ints]] = []
        self._sums: list[tuple[Doubles, Ints]] = []

    def add(self, p: SampleColumn, q: SampleColumn, row_tokens: Ints) -> None:
        """Count a block.

        Args:
            p, q: log-probs of the same tokens [N], row after row.
            row_tokens: how many of them are each row's; sums to N.
        """
        diff, abs_diff = (self._scratch.array(name, p.log_prob.size) for name in ("diff", "abs"))
        np.subtract(q.log_prob, p.log_prob, out=diff)
        np.abs(diff, out=abs_diff)
        rows = _Rows(row_tokens)
        sums = rows.sums(abs_diff)
        self._tokens += diff.size
        self._rows.append((sums, rows.maxima(abs_diff), row_tokens))
        if np.isfinite(sums).all() and max(p.highest, q.highest) <= HIGHEST_LOG_PROB:
            self._add_finite(p, q, diff, abs_diff, rows)
        else:
            self._add_some(p.log_prob, q.log_prob, row_tokens)

    def _add_some(self, p: Floats, q: Floats, row_tokens: Ints) -> None:
        """Leave out what is no log-prob."""
        fine_p, fine_q = (np.isfinite(each) & (each <= HIGHEST_LOG_PROB) for each in (p, q))
        self._nonfinite[0] += int(p.size - fine_p.sum())
        self._nonfinite[1] += int(q.size - fine_q.sum())
        fine = fine_p & fine_q
        if fine.any():
            diff = q[fine] - p[fine]
            at_row = np.repeat(np.arange(len(row_tokens)), row_tokens)[fine]
            left = np.bincount(at_row, minlength=len(row_tokens)).astype(np.int64)
            self._add_finite(SampleColumn(p[fine]), SampleColumn(q[fine]), diff, np.abs(diff), _Rows(left))

    def _add_finite(self, p: SampleColumn, q: SampleColumn, diff: Floats, abs_diff: Floats, rows: _Rows) -> None:
        self._finite += diff.size
        self._nonzero = [self._nonzero[0] or p.zeros < diff.size, self._nonzero[1] or q.zeros < diff.size]
        self._zeros += max(p.zeros, q.zeros)
        (sum_p, squares_p), (sum_q, squares_q) = p.moments, q.moments
        largest = float(abs_diff.max(initial=0.0))
        if largest == 0.0:
            self._moments += (sum_p, sum_q, squares_p, squares_q, squares_p)
            sums = {"exp_abs_diff": rows.tokens.astype(np.float64)}
        else:
            self._moments += (sum_p, sum_q, squares_p, squares_q, float(np.dot(p.prob, q.prob)))
            self._max = max(self._max, largest)
            if largest > LN_2:
                self._beyond_2 += int(np.count_nonzero(abs_diff > LN_2))
            sums = self._sums_by_row(p, q, diff, abs_diff, largest, rows)
        nothing = np.zeros(len(rows.tokens))
        self._sums.append((np.stack([sums.get(name, nothing) for name in SUMMED]), rows.tokens))

    def _sums_by_row(
        self, p: SampleColumn, q: SampleColumn, diff: Floats, abs_diff: Floats, largest: float, rows: _Rows
    ) -> dict[str, Doubles]:
        """[R] each of `SUMMED`. Uses up `diff` and `abs_diff`."""
        found = {"abs_diff": rows.sums(abs_diff), "diff": rows.sums(diff)}
        np.subtract(p.prob, q.prob, out=abs_diff)
        found["prob_abs_diff"] = rows.sums(np.abs(abs_diff, out=abs_diff))
        found["prob_squared_diff"] = rows.sums(np.square(abs_diff, out=abs_diff))
        cut = found["diff"]
        if largest > MAX_LOG_RATIO:
            np.clip(diff, -MAX_LOG_RATIO, MAX_LOG_RATIO, out=diff)
            cut = rows.sums(diff)
        ratio = self._ratio(p, q, diff, largest)
        found["k3"] = rows.sums(ratio) - rows.tokens - cut
        np.reciprocal(ratio, out=abs_diff)
        found["exp_abs_diff"] = rows.sums(np.maximum(ratio, abs_diff, out=ratio))
        return found

    def _ratio(self, p: SampleColumn, q: SampleColumn, diff: Floats, largest: float) -> Floats:
        """exp(diff); by division where probabilities are large enough, since that is quicker."""
        found = self._scratch.array("ratio", diff.size)
        if largest <= MAX_LOG_RATIO and min(p.lowest, q.lowest) > SMALL_LOG_PROB:
            np.divide(q.prob, p.prob, out=found)
        else:
            np.exp(diff, out=found)
        return found

    def result(self) -> Distances:
        """Of all blocks so far."""
        row_sums, row_maxima, row_tokens = (
            np.concatenate(column) for column in zip(_NO_ROWS, *self._rows, strict=True)
        )
        return Distances(
            tokens=self._tokens,
            nonfinite=(self._nonfinite[0], self._nonfinite[1]),
            all_zero=(not self._nonzero[0], not self._nonzero[1]),
            values=self._values(),
            errors=self._errors(),
            row_sums=row_sums,
            row_maxima=row_maxima,
            row_tokens=row_tokens,
        )

    def _values(self) -> dict[str, float]:
        n = self._finite
        if not n:
            return {}
        totals = sum(sums.sum(axis=1) for sums, _ in self._sums) / n
        means = dict(zip(SUMMED, map(float, totals), strict=True))
        k1, k3 = -means["diff"], max(0.0, means["k3"])
        return {
            "logprob_abs_diff_mean": means["abs_diff"],
            "logprob_abs_diff_max": self._max,
            "prob_abs_diff_mean": means["prob_abs_diff"],
            "k1": k1,
            "k3": k3,
            **({"k3_over_k1": k3 / k1} if k1 else {}),
            "exp_abs_diff_mean": means["exp_abs_diff"],
            "ratio_beyond_2_share": self._beyond_2 / n,
            "exact_zeros": float(self._zeros),
            **self._correlation(),
        }

    def _errors(self) -> dict[str, float]:
        """Of the ratio of two sums over rows: the root of the sum of (own sum - mean * own tokens) ** 2, by tokens.

        With little noise, 1 less the correlation is the mean squared difference by twice the variance, and its error is
        that of the mean.
        """
        n = self._finite
        if not n:
            return {}
        sums = np.concatenate([each for each, _ in self._sums], axis=1)
        tokens = np.concatenate([each for _, each in self._sums])
        residuals = sums - sums.sum(axis=1, keepdims=True) / n * tokens
        found = dict(zip(SUMMED, map(float, np.sqrt(np.square(residuals).sum(axis=1)) / n), strict=True))
        spread = self._correlation()["prob_spread"]
        return {
            "logprob_abs_diff_mean": found["abs_diff"],
            "prob_abs_diff_mean": found["prob_abs_diff"],
            "k3": found["k3"],
            "pearson": found["prob_squared_diff"] / (2 * spread**2) if spread else 0.0,
            "exp_abs_diff_mean": found["exp_abs_diff"],
            "ratio_beyond_2_share": float(np.sqrt(self._beyond_2)) / n,
        }

    def _correlation(self) -> dict[str, float]:
        """Pearson's, and the smaller standard deviation of the probabilities; no correlation if that is next to 0."""
        mean_p, mean_q, squares_p, squares_q, products = self._moments / self._finite
        variance_p, variance_q = squares_p - mean_p**2, squares_q - mean_q**2
        spread = float(np.sqrt(max(0.0, min(variance_p, variance_q))))
        if spread < LEAST_SPREAD:
            return {"prob_spread": 0.0}
        correlation = (products - mean_p * mean_q) / np.sqrt(variance_p * variance_q)
        return {"prob_spread": spread, "pearson": float(np.clip(correlation, -1.0, 1.0))}


SUMMED = ("abs_diff", "diff", "prob_abs_diff", "prob_squared_diff", "k3", "exp_abs_diff")
"""What is summed over the tokens of each row."""


class _Rows:
    """The rows of a block.

    Args:
        tokens: [R] how many tokens of the block are each row's.
    """

    def __init__(self, tokens: Ints) -> None:
        self.tokens = tokens
        self._full = tokens > 0
        self._starts = (np.cumsum(tokens) - tokens)[self._full]

    def sums(self, values: Floats | Doubles) -> Doubles:
        """[R] of values [N], row after row, in float64; 0 in rows without tokens, which `reduceat` gets wrong."""
        return self._by_row(np.add, values)

    def maxima(self, values: Floats) -> Doubles:
        """[R] as `sums`."""
        return self._by_row(np.maximum, values)

    def _by_row(self, operation: np.ufunc, values: Floats | Doubles) -> Doubles:
        found = np.zeros(len(self.tokens))
        if values.size:
            found[self._full] = operation.reduceat(values, self._starts, dtype=np.float64)
        return found


class Position:
    """Where one engine lies on the line between two others, from one block of rows after the other.

    With d the difference of the second from the first and e that of the engine in question from the first, the position
    is sum(d * e) / sum(d * d): 0 if e is noise beside d, 1 if e is d and noise. Tokens of a row depend on each
    other, so its standard error is the root of the sum over rows of (sum over tokens of d * (e - position * d)) ** 2,
    divided by sum(d * d).
    """

    def __init__(self) -> None:
        self._rows: list[tuple[Doubles, Doubles]] = []

    def add(self, first: Floats, second: Floats, third: Floats, row_tokens: Ints) -> None:
        """Count a block.

        Args:
            first, second, third: log-probs of the same tokens [N], row after row; the third is the engine in question.
            row_tokens: how many of them are each row's; sums to N.
        """
        if np.array_equal(first, second):
            return
        with np.errstate(invalid="ignore", over="ignore"):
            d, e = second.astype(np.float64) - first, third.astype(np.float64) - first
        fine = np.isfinite(d) & np.isfinite(e)
        d, e = (np.clip(np.where(fine, each, 0.0), -MAX_LOG_RATIO, MAX_LOG_RATIO) for each in (d, e))
        rows = _Rows(row_tokens)
        self._rows.append((rows.sums(d * d), rows.sums(d * e)))

    def result(self) -> tuple[float, float] | None:
        """Position and its standard error; None where the two others are equal."""
        if not self._rows:
            return None
        squares, products = (np.concatenate(column) for column in zip(*self._rows, strict=True))
        total = float(squares.sum())
        if total <= 0.0:
            return None
        position = float(products.sum()) / total
        residuals = products - position * squares
        return position, float(np.sqrt(np.dot(residuals, residuals))) / total


def distances(blocks: Iterable[TokenBlock]) -> Distances:
    """Distances of all blocks together.

    Args:
        blocks: whole rows, in order; each row in one block.
    """
    found = Accumulator()
    for block in blocks:
        found.add(SampleColumn(block.p), SampleColumn(block.q), block.row_tokens)
    return found.result()


_NO_ROWS = (np.zeros(0), np.zeros(0), np.zeros(0, np.int64))
