# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a rollout phase that need no healthy reference: sampling, weight sync, ends of responses.

**Sampling.** For a token drawn from a distribution with entropy H, -log p - H is 0 on average, given all that came
before it. Row sums d of it are therefore a martingale, and z = sum(d) / sqrt(sum(d**2)) is about normal. It is the
score test for the temperature: hotter sampling gives z > 0; colder sampling, top-k and top-p give z < 0.

It wants care on the side below 0, where the sum may be small only because a rare token did not come up, and its square
is then lacking from the variance too. `RARE_TOKENS` such tokens are added to the variance on that side.

**Claim.** If the tokens were drawn from the log-probs p that came with them, no other distribution q explains them
better: exp(sum(log q - log p)) is on average 1 at most, so it exceeds x with probability 1/x at most (Ville). That
shows a fault of the rollout engine's log-probs whatever is wrong with the training engine's, as long as those are of a
distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from verl.crosscheck.diagnosis.align import Alignment
from verl.crosscheck.diagnosis.assess import measured, missing
from verl.crosscheck.diagnosis.findings import Aspect, Finding
from verl.crosscheck.diagnosis.thresholds import RARE_TOKENS
from verl.crosscheck.evidence.step import ROLLOUT, TRAIN, StepEvidence
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.text import listed

Floats = npt.NDArray[np.float64]

SENT, HELD = "sent/", "held/"


@dataclass(frozen=True)
class Gap:
    """Sampled tokens against the entropy they should have."""

    total: float
    """Nats, over all rows; above 0 if tokens are less likely than they should be."""
    tokens: float
    z: float
    """Standard errors, never below 0."""

    @property
    def mean(self) -> float:
        """Nats per token, never below 0."""
        return abs(self.total) / self.tokens


def nll_minus_entropy(log_prob_sums: Floats, entropy_sums: Floats, tokens: Floats) -> Gap:
    """The score test described above.

    Args:
        log_prob_sums: [R] sum of each row's log-probs.
        entropy_sums: [R] sum of its entropies.
        tokens: [R] how many there are; rows without count for nothing.
    """
    gaps = -log_prob_sums - entropy_sums
    total, count = float(gaps.sum()), float(tokens.sum())
    variance = float(np.dot(gaps, gaps))
    if total < 0:
        variance += RARE_TOKENS * (1.0 + float(np.log(count))) ** 2
    return Gap(total, count, abs(total) / float(np.sqrt(variance)) if variance else 0.0)


def sampling_findings(rows: Alignment) -> list[Finding]:
    """Whether what the sampler's engine sampled fits the log-probs that came with it."""
    if reason := _unfit(rows.sides[0].sampling):
        return [missing(Aspect.SAMPLING, "nll_minus_entropy_mean", reason)]
    columns = _columns(rows)
    if isinstance(columns, Reason):
        return [missing(Aspect.SAMPLING, "nll_minus_entropy_mean", columns)]
    findings: list[Finding] = []
    entropy, tokens = columns["entropy"], columns["tokens"]
    for column, name in ((ROLLOUT, "nll_minus_entropy"), (TRAIN, "nll_minus_entropy_train")):
        if column in columns:
            gap = nll_minus_entropy(columns[column], entropy, tokens)
            hint = because(ReasonCode.HOTTER if gap.total > 0 else ReasonCode.COLDER)
            findings += [
                measured(Aspect.SAMPLING, f"{name}_mean", gap.mean, hint),
                measured(Aspect.SAMPLING, f"{name}_z", gap.z, hint),
            ]
    if ROLLOUT in columns and TRAIN in columns:
        nats = float(columns[TRAIN].sum() - columns[ROLLOUT].sum())
        findings += [
            measured(Aspect.SAMPLING, "logprob_gain_train_mean", max(0.0, nats) / float(tokens.sum())),
            measured(Aspect.SAMPLING, "logprob_gain_train_nats", max(0.0, nats)),
        ]
    return findings


def _unfit(sampling: Mapping[str, Any]) -> Reason | None:
    """Why tokens are not expected to come from the distribution of their log-probs."""
    top_p, top_k = sampling.get("top_p"), sampling.get("top_k")
    if isinstance(top_p, int | float) and top_p < 1:
        return because(ReasonCode.SAMPLED_FROM_A_PART, key="top_p", value=f"{top_p:g}", testable="1.0")
    if isinstance(top_k, int | float) and top_k > 0:
        return because(ReasonCode.SAMPLED_FROM_A_PART, key="top_k", value=f"{top_k:g}", testable="-1")
    temperature = sampling.get("temperature")
    if isinstance(temperature, int | float) and temperature <= 0:
        return because(ReasonCode.SAMPLED_GREEDILY)
    return None


def _columns(rows: Alignment) -> dict[str, Floats] | Reason:
    """The [R] sums that the tests need, of finite rows with tokens; a reason if there is nothing to test."""
    entropy, tokens = rows.column(True, "entropy_sum"), rows.column(True, "mask_tokens")
    if entropy is None or tokens is None:
        return rows.sides[1].missing.get("rows/entropy_sum") or because(ReasonCode.OTHER_WITHOUT_ENTROPIES)
    found: dict[str, npt.NDArray[Any]] = {"entropy": entropy, "tokens": tokens}
    for column, taker in ((ROLLOUT, False), (TRAIN, True)):
        sums = rows.column(taker, f"{column}_sum")
        if sums is not None and sums.any():
            found[column] = sums
    if ROLLOUT not in found and TRAIN not in found:
        return because(ReasonCode.NO_SAMPLED_LOG_PROBS)
    own_tokens = rows.column(False, "mask_tokens")
    if own_tokens is None or (own_tokens != tokens).any():
        return because(ReasonCode.OTHER_TOKENS_TRAINED)
    fine = np.logical_and.reduce([np.isfinite(each) for each in found.values()]) & (tokens > 0)
    if not fine.any():
        return because(ReasonCode.NO_FINITE_ROW)
    chosen = {name: each[fine].astype(np.float64) for name, each in found.items()}
    return chosen if chosen["entropy"].any() else because(ReasonCode.ENTROPIES_ZERO)


def sync_findings(sampler: StepEvidence) -> list[Finding]:
    """Whether the sampler's engine holds what it was sent."""
    sent, held = (_named(sampler.weights, prefix) for prefix in (SENT, HELD))
    both = sorted(set(sent) & set(held))
    if not both:
        reason = sampler.missing.get("weights") or because(ReasonCode.NO_DIGESTS)
        return [missing(Aspect.SYNC, "tensors_out_of_sync", reason)]
    wrong = [name for name in both if sent[name] != held[name]]
    which = because(ReasonCode.OF_TENSORS, count=len(both), names=listed(wrong)) if wrong else None
    found = [measured(Aspect.SYNC, "tensors_out_of_sync", len(wrong), which)]
    if alone := sorted(set(sent) ^ set(held)):
        which = because(ReasonCode.ONE_SIDED, names=listed(alone))
        found.append(measured(Aspect.SYNC, "tensors_not_matched", len(alone), which))
    return found


def _named(weights: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.removeprefix(prefix): digest for name, digest in weights.items() if name.startswith(prefix)}


def _are_tokens(stops: Any) -> bool:
    """Whether there are any, all of them ids."""
    return isinstance(stops, list | tuple) and bool(stops) and all(type(n) is int and 0 <= n < 1 << 31 for n in stops)


def ending_findings(sampler: StepEvidence) -> list[Finding]:
    """Share of the sampler's responses that end neither at a stop token nor at the length limit."""

    def unknown(reason: Reason) -> list[Finding]:
        return [missing(Aspect.ENDING, "unfinished_share", reason)]

    stops, limit = sampler.sampling.get("stop_token_ids"), sampler.sampling.get("max_tokens")
    last = sampler.rows.get("last_token")
    if sampler.sampling.get("multi_turn"):
        return unknown(because(ReasonCode.SEVERAL_TURNS))
    if not _are_tokens(stops) or not isinstance(limit, int | float):
        recorded = sampler.missing.get("sampling/stop_token_ids") or sampler.missing.get("sampling/max_tokens")
        return unknown(recorded or because(ReasonCode.NO_STOP_TOKENS))
    if last is None or last.shape != sampler.lengths.shape:
        return unknown(sampler.missing.get("rows/last_token") or because(ReasonCode.NO_LAST_TOKENS))
    some = sampler.lengths > 0
    if not some.any():
        return unknown(because(ReasonCode.RESPONSES_EMPTY))
    cut = some & (sampler.lengths < limit) & ~np.isin(last, np.asarray(stops, dtype=np.int64))
    count = int(cut.sum())
    reason = because(ReasonCode.SOME_RESPONSES, responses=count, all_responses=int(some.sum())) if count else None
    return [measured(Aspect.ENDING, "unfinished_share", count / int(some.sum()), reason)]
