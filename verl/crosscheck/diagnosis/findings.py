# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The words of a diagnosis: what was compared, with which result, and what follows. Plain data that JSON can hold.

`compare` makes a `StepComparison` from the evidence of two runs, `verdict` makes a `Verdict` from many of those, the
report and the live lines show them. Texts for people are made where they are shown, from the members of these enums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from verl.crosscheck.reasons import Reason


class Aspect(str, Enum):
    """What a finding is about. "The sampler" is the run in mode `ckpt`, whose engine generated; "the taker" is the
    other one, in mode `rollout`."""

    INPUTS = "inputs"
    """Rows, masks, rewards and advantages that both trained on: exactly equal, or the two did different work."""
    ROLLOUT_TAKER = "rollout_taker"
    """Log-probs of the sampler's rollout engine against the taker's training engine."""
    ROLLOUT_SAMPLER = "rollout_sampler"
    """Log-probs of the sampler's rollout engine against its own training engine."""
    FORWARD = "forward"
    """Log-probs of both training engines."""
    REFERENCE = "reference"
    """Log-probs of both reference policies."""
    SAMPLING = "sampling"
    """Whether the sampled tokens look drawn from the distribution that their log-probs claim."""
    SYNC = "sync"
    """Whether the rollout engine holds the weights that it was sent."""
    ENDING = "ending"
    """Whether responses end at a stop token or at the length limit."""
    INDEPENDENCE = "independence"
    """Whether responses to one prompt were sampled independently of each other."""
    UPDATE = "update"
    """What the update did: gradient norm, losses, change of the weights."""
    OUTCOME = "outcome"
    """Reward, response length, entropy; numbers that are not finite."""


class State(str, Enum):
    """Result of one comparison."""

    AGREE = "agree"
    DIFFER = "differ"
    MISSING = "missing"
    """Not compared; never counted as agreement."""


@dataclass(frozen=True)
class Finding:
    """One quantity of one step against its limit."""

    aspect: Aspect
    quantity: str
    """Such as `logprob_abs_diff_mean`, `k3`, `grad_norm_rel_diff`; unique within an aspect, and the name of a plot."""
    state: State
    value: float | None = None
    limit: float | None = None
    """The value beyond which it differs."""
    above_is_bad: bool = True
    """False for a correlation, where values below the limit differ."""
    reason: Reason | None = None
    """If missing: why, and what to set. If different: where, such as the tensor or the number of rows."""
    predicted: float | None = None
    """The value that two healthy engines would have, as the runs predict it from their number formats."""
    error: float | None = None
    """Standard error of the value, from its scatter over rows; None where it is exact or not known."""


@dataclass(frozen=True)
class WorstRow:
    """A row that a person should look at."""

    row_id: int
    aspect: Aspect
    """Which two log-probs are apart in it."""
    logprob_abs_diff_mean: float
    logprob_abs_diff_max: float


@dataclass(frozen=True)
class StepComparison:
    """Everything that was compared of one step of two runs."""

    global_step: int
    update_index: int
    rows: int
    """Rows that were matched."""
    tokens: int
    """Trained-on tokens of these rows whose log-probs were compared; 0 in detail `summary`."""
    findings: tuple[Finding, ...]
    worst_rows: tuple[WorstRow, ...] = ()
    """At most 8, worst first."""
    changes: Mapping[str, float] = field(default_factory=dict)
    """Relative difference of the two runs' changes by tensor."""
    outcomes: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)
    """What people watch, of sampler and taker: reward, response length, entropy, gradient norm, loss."""
    compare_s: float = 0.0
    """Seconds that comparing took."""


class Phase(str, Enum):
    """The verdict's one word."""

    NO_FAULT = "no_fault"
    ROLLOUT = "rollout"
    TRAINING_FORWARD = "training_forward"
    TRAINING_UPDATE = "training_update"
    BOTH = "both"
    """Rollout and training."""
    REFERENCE = "reference"
    """Run B, which was taken for healthy, is at fault."""
    REWARD_OR_ADVANTAGE = "reward_or_advantage"
    """What the trainer does between rollout and update is at fault, in either run."""
    INCONCLUSIVE = "inconclusive"


class Confidence(str, Enum):
    """How certain a verdict is, by the rule beside `thresholds.STRONG`."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


@dataclass(frozen=True)
class VerdictEvidence:
    """A finding that the verdict rests on."""

    scenario: int
    global_step: int
    finding: Finding


@dataclass(frozen=True)
class Verdict:
    """Which phase of run A is at fault, since when, and why one may say so."""

    phase: Phase
    confidence: Confidence
    first_step: int | None
    """Global step in which the fault first acts; None without one."""
    steps: int
    """Steps that were compared, in all scenarios."""
    because: tuple[str, ...]
    """Values of `rules.Because`: the rules that led here, in order."""
    evidence: tuple[VerdictEvidence, ...]
    """Strongest first."""
    not_compared: Mapping[str, Reason]
    """What was not: why, and what to set."""
    next_actions: tuple[str, ...]
    """Values of `rules.Next`."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Numbers that the reasons mention, by name."""
