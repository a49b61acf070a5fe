# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of a rollout phase that need no healthy reference: sampling, independence, weight sync, ends of responses.

**Sampling.** For a token drawn from a distribution with entropy H, -log p - H is 0 on average, given all that came
before it. Row sums d of it are therefore a martingale, and z = sum(d) / sqrt(sum(d**2)) is about normal. It is the
score test for the temperature: hotter sampling gives z > 0; colder sampling, top-k and top-p give z < 0.

It wants care on the side below 0, where the sum may be small only because a rare token did not come up, and its square
is then lacking from the variance too. `RARE_TOKENS` such tokens are added to the variance on that side. Where responses
to a prompt repeat each other, d is summed over prompts instead of rows.

**Claim.** If the tokens were drawn from the log-probs p that came with them, no other distribution q explains them
better: exp(sum(log q - log p)) is on average 1 at most, so it exceeds x with probability 1/x at most (Ville). That
shows a fault of the rollout engine's log-probs whatever is wrong with the training engine's, as long as those are of a
distribution.

**Independence.** Of independent samples of one prompt, the next one is equal to an earlier one with probability q, the
sum of the probabilities of all that came before, each counted once. So the likelihood ratio of an engine that repeats
an earlier sample in half of all cases is a martingale too, and exceeds x with probability 1/x at most (Ville). The
order in which samples are gone through must not depend on them: it is drawn. First tokens are tested alike.
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
    variance: float
    """Sum of squares over rows, or groups of rows; without what is added for rare tokens."""

    @property
    def mean(self) -> float:
        """Nats per token, never below 0."""
        return abs(self.total) / self.tokens


def nll_minus_entropy(
    log_prob_sums: Floats, entropy_sums: Floats, tokens: Floats, groups: npt.NDArray[Any] | None = None
) -> Gap:
    """The score test described above.

    Args:
        log_prob_sums: [R] sum of each row's log-probs.
        entropy_sums: [R] sum of its entropies.
        tokens: [R] how many there are; rows without count for nothing.
        groups: [R] which rows may depend on each other; None if none do.
    """
    gaps = -log_prob_sums - entropy_sums
    if groups is not None:
        gaps = np.bincount(np.unique(groups, return_inverse=True)[1], gaps).astype(np.float64)
    total, count = float(gaps.sum()), float(tokens.sum())
    squares = float(np.dot(gaps, gaps))
    rare = RARE_TOKENS * (1.0 + float(np.log(count))) ** 2 if total < 0 else 0.0
    return Gap(total, count, abs(total) / float(np.sqrt(squares + rare)) if squares + rare else 0.0, squares)


def sampling_findings(rows: Alignment, independent: bool) -> list[Finding]:
    """Whether what the sampler's engine sampled fits the log-probs that came with it.

    Args:
        independent: whether responses to a prompt are independent, as far as is known.
    """
    if reason := _unfit(rows.sides[0].sampling):
        return [missing(Aspect.SAMPLING, "nll_minus_entropy_mean", reason)]
    columns = _columns(rows, None if independent else rows.column(False, "prompt_id"))
    if isinstance(columns, Reason):
        return [missing(Aspect.SAMPLING, "nll_minus_entropy_mean", columns)]
    findings: list[Finding] = []
    entropy, tokens, groups = columns["entropy"], columns["tokens"], columns.get("groups")
    for column, name in ((ROLLOUT, "nll_minus_entropy"), (TRAIN, "nll_minus_entropy_train")):
        if column in columns:
            gap = nll_minus_entropy(columns[column], entropy, tokens, groups)
            hint = because(ReasonCode.HOTTER if gap.total > 0 else ReasonCode.COLDER)
            findings += [
                measured(Aspect.SAMPLING, f"{name}_mean", gap.mean, hint),
                measured(Aspect.SAMPLING, f"{name}_z", gap.z, hint),
                measured(Aspect.SAMPLING, f"{name}_nats", gap.total),
                measured(Aspect.SAMPLING, f"{name}_variance", gap.variance),
                measured(Aspect.SAMPLING, f"{name}_tokens", gap.tokens),
            ]
    if ROLLOUT in columns and TRAIN in columns:
        nats = float(columns[TRAIN].sum() - columns[ROLLOUT].sum())
        findings += [
            measured(Aspect.SAMPLING, "logprob_gain_train_mean", max(0.0, nats) / float(tokens.sum())),
            measured(Aspect.SAMPLING, "logprob_gain_train_nats", max(0.0, nats)),
            measured(Aspect.SAMPLING, "logprob_gain_train_signed_nats", nats),
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


def _columns(rows: Alignment, groups: npt.NDArray[Any] | None) -> dict[str, Floats] | Reason:
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
    if not rows.sides[0].sampling.get("multi_turn") and (tokens != rows.lengths).any():
        return because(ReasonCode.MASKS_NOT_WHOLE)
    fine = np.logical_and.reduce([np.isfinite(each) for each in found.values()]) & (tokens > 0)
    if not fine.any():
        return because(ReasonCode.NO_FINITE_ROW)
    chosen = {name: each[fine].astype(np.float64) for name, each in found.items()}
    if groups is not None:
        chosen["groups"] = np.unique(groups[fine], return_inverse=True)[1].astype(np.float64)
    return chosen if chosen["entropy"].any() else because(ReasonCode.ENTROPIES_ZERO)


REPEATS = 0.5
"""Probability of repeating an earlier sample, beyond that by chance, of the engine that independence is tested
against."""


def independence_findings(sampler: StepEvidence) -> list[Finding]:
    """Whether responses to one prompt, and their first tokens, are equal no more often than independent samples are."""

    def unknown(reason: Reason) -> list[Finding]:
        return [missing(Aspect.INDEPENDENCE, "equal_responses_nats", reason)]

    if reason := _unfit(sampler.sampling):
        return unknown(reason)
    if sampler.sampling.get("multi_turn"):
        return unknown(because(ReasonCode.SEVERAL_TURNS))
    names = ("prompt_id", "response_id", "rollout_sum", "first_token", "first_rollout", "mask_tokens")
    columns = {name: sampler.rows.get(name) for name in names}
    lacking = [name for name, column in columns.items() if column is None or column.shape != sampler.row_ids.shape]
    if lacking:
        recorded = sampler.missing.get("tokens/rollout")
        return unknown(recorded or because(ReasonCode.NO_ROW_COLUMN, column=lacking[0]))
    fine = np.isfinite(columns["rollout_sum"]) & np.isfinite(columns["first_rollout"])  # type: ignore[arg-type]
    if not np.array_equal(sampler.rows["mask_tokens"], sampler.lengths):
        return unknown(because(ReasonCode.MASKS_NOT_WHOLE))
    fine &= sampler.lengths > 0
    prompts, responses, sums, first, first_sums, _ = (column[fine] for column in columns.values())  # type: ignore[index]
    if not len(prompts) or np.unique(prompts).size == len(prompts):
        return unknown(because(ReasonCode.NO_PROMPT_TWICE))
    if not sums.any():
        return unknown(because(ReasonCode.NO_SAMPLED_LOG_PROBS))
    order = np.random.default_rng(sampler.global_step).permutation(len(prompts))
    found = []
    for name, values, log_probs in (
        ("equal_responses_nats", responses, sums),
        ("equal_first_tokens_nats", first, first_sums),
    ):
        nats, repeats = repeat_evidence(prompts[order], values[order], log_probs[order])
        which = because(ReasonCode.SOME_RESPONSES, responses=repeats, all_responses=len(prompts)) if repeats else None
        found.append(measured(Aspect.INDEPENDENCE, name, nats, which))
    return found


def repeat_evidence(groups: npt.NDArray[Any], values: npt.NDArray[Any], log_probs: Floats) -> tuple[float, int]:
    """The logarithm of the likelihood ratio described above, in nats, and how many samples repeat an earlier one.

    Args:
        groups: [R] which samples belong together.
        values: [R] equal for equal samples.
        log_probs: [R] of each sample, by the engine that drew it.
    """
    before: dict[Any, dict[Any, float]] = {}
    nats, repeats = 0.0, 0
    for group, value, log_prob in zip(groups.tolist(), values.tolist(), log_probs.tolist(), strict=True):
        seen = before.setdefault(group, {})
        chance = min(sum(seen.values()), 1.0)
        other = chance + REPEATS * (1.0 - chance)
        if value in seen:
            repeats += 1
            nats += float(np.log(other / max(chance, 1e-300)))
        elif seen and chance < 1.0:
            nats += float(np.log((1.0 - other) / (1.0 - chance)))
        seen.setdefault(value, float(np.exp(min(log_prob, 0.0))))
    return nats, repeats


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
    """Share of the sampler's responses that end neither at a stop token nor at the length limit, and of those that go
    on after a stop token."""
    return [*_unfinished(sampler), _going_on(sampler)]


def _going_on(sampler: StepEvidence) -> Finding:
    inside = sampler.rows.get("stops_inside")
    if inside is None or inside.shape != sampler.row_ids.shape:
        return missing(Aspect.ENDING, "stop_inside_share", because(ReasonCode.STOPS_INSIDE_NOT_RECORDED))
    count, rows = int(np.count_nonzero(inside)), max(1, len(inside))
    reason = because(ReasonCode.SOME_RESPONSES, responses=count, all_responses=rows) if count else None
    return measured(Aspect.ENDING, "stop_inside_share", count / rows, reason)


def _unfinished(sampler: StepEvidence) -> list[Finding]:
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
