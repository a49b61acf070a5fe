# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What one step of one scenario shows by itself. `verdict` puts the steps of both scenarios together.

Both runs hold equal weights at the start of each step, so a step is an experiment of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from verl.crosscheck.diagnosis.alone import Alone, alone_in, rollout_is_off_too
from verl.crosscheck.diagnosis.assess import state_of
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.diagnosis.rules import Because

AGREE, DIFFER, MISSING = State.AGREE, State.DIFFER, State.MISSING

SELF_EVIDENT = {
    Aspect.SAMPLING: Because.SAMPLING_NOT_AS_CLAIMED,
    Aspect.SYNC: Because.WEIGHTS_NOT_IN_ENGINE,
    Aspect.ENDING: Because.RESPONSES_CUT,
    Aspect.INDEPENDENCE: Because.SAMPLES_NOT_INDEPENDENT,
}
"""Aspects that show a fault of the sampler's rollout phase without a reference."""

STOP_INSIDE = "stop_inside_share"
GAIN = "logprob_gain_train"

UNMOVED = {"sampler": "sampler_unmoved_tensors", "taker": "taker_unmoved_tensors"}
"""Counts of tensors that one run alone left as they were."""


@dataclass(frozen=True)
class StepReading:
    """What one step shows."""

    scenario: int
    global_step: int
    alone: Alone
    """The engine that stands alone."""
    rollout_off_too: bool = False
    """Whether the rollout engine differs from both training engines, whatever these do."""
    rollout: tuple[Because, ...] = ()
    """Why the rollout phase of the run that samples is at fault, by what needs no reference."""
    update: tuple[Because, ...] = ()
    """How the updates differ while the forward passes agree; empty if they do not."""
    update_follows: bool = False
    """Whether the updates differ and the forward passes do too."""
    driver: tuple[Because, ...] = ()
    """What differs of reward and advantage while all that they rest on agrees."""
    inputs_follow: bool = False
    """Whether rewards or advantages differ and the forward passes do too, from which they may be computed."""
    reference_policy: bool = False
    """Whether the reference policies differ."""
    doubts: tuple[Because, ...] = ()
    """What differs and shows no phase at fault."""
    findings: tuple[Finding, ...] = ()
    """All that differs."""

    def evidence(self, aspects: Iterable[Aspect]) -> tuple[Finding, ...]:
        """What differs in some aspects."""
        chosen = set(aspects)
        return tuple(each for each in self.findings if each.aspect in chosen)


def read_step(comparison: StepComparison, scenario: int) -> StepReading:
    """What a step shows.

    Args:
        comparison: of the step, assessed.
        scenario: 1 if run A is the sampler, 2 if it is the taker.
    """
    findings = tuple(each for each in comparison.findings if each.state is DIFFER)
    blank = StepReading(scenario, comparison.global_step, Alone.NOT_RUN, findings=findings)
    states = {each: state_of(comparison.findings, each) for each in Aspect}
    if not comparison.rows:
        return replace(blank, doubts=(Because.NO_COMMON_ROWS,))
    counts = _Counts(comparison)
    if counts.reference_not_finite(scenario):
        return replace(blank, doubts=(Because.REFERENCE_NOT_FINITE,))
    forward = states[Aspect.FORWARD] is DIFFER or states[Aspect.REFERENCE] is DIFFER
    suspect = "sampler" if scenario == 1 else "taker"
    inputs = states[Aspect.INPUTS] is DIFFER
    update = states[Aspect.UPDATE] is DIFFER or counts.of(f"{suspect}_nonfinite_update") > 0
    driver = () if forward or not inputs else _driver(comparison)
    doubts = []
    if inputs and not driver and not (forward and _may_follow(findings)):
        doubts.append(Because.INPUTS_DIFFER)
    if update and not inputs and not forward and states[Aspect.FORWARD] is MISSING:
        doubts.append(Because.FORWARD_UNKNOWN)
    rests = update and not inputs and not forward and not doubts
    return replace(
        blank,
        alone=alone_in(comparison, scenario),
        rollout_off_too=rollout_is_off_too(comparison),
        rollout=_self_evident(comparison, states, counts),
        update=_update(counts, scenario) if rests else (),
        update_follows=update and forward,
        driver=driver,
        inputs_follow=inputs and forward and _may_follow(findings),
        reference_policy=states[Aspect.REFERENCE] is DIFFER and states[Aspect.FORWARD] is not DIFFER,
        doubts=tuple(doubts),
    )


class _Counts:
    """Counts that a step's findings hold."""

    def __init__(self, comparison: StepComparison) -> None:
        self._findings = comparison.findings

    def of(self, *quantities: str) -> float:
        return sum(each.value or 0.0 for each in self._findings if each.quantity in quantities)

    def reference_not_finite(self, scenario: int) -> bool:
        """Whether B has numbers that are not finite, and not because A's rollout engine has."""
        if scenario == 2:
            return self.of("sampler_nonfinite_rollout", "sampler_nonfinite_train", "sampler_nonfinite_update") > 0
        by_b = self.of("taker_nonfinite_train", "taker_nonfinite_update")
        return by_b > 0 and not self.of("sampler_nonfinite_rollout")


def _self_evident(comparison: StepComparison, states: dict[Aspect, State], counts: _Counts) -> tuple[Because, ...]:
    """What shows a fault of the rollout phase of the sampler whatever its reference does.

    That training explains the samples better than the rollout engine claims is not among it: log-probs of a training
    engine that do not sum to 1 look the same.
    """
    gains = {f.quantity.startswith(GAIN) for f in comparison.findings if f.aspect is Aspect.SAMPLING and _differs(f)}
    found = [SELF_EVIDENT[aspect] for aspect in SELF_EVIDENT if states[aspect] is DIFFER]
    if gains == {True}:
        found.remove(Because.SAMPLING_NOT_AS_CLAIMED)
    ending = {f.quantity for f in comparison.findings if f.aspect is Aspect.ENDING and _differs(f)}
    if STOP_INSIDE in ending:
        at = found.index(Because.RESPONSES_CUT)
        found[at : at + 1] = [Because.STOP_TOKEN_INSIDE, *([Because.RESPONSES_CUT] if len(ending) > 1 else [])]
    if counts.of("sampler_nonfinite_rollout") > 0:
        found.append(Because.ROLLOUT_NOT_FINITE)
    return tuple(found)


def _differs(finding: Finding) -> bool:
    return finding.state is DIFFER


def _update(counts: _Counts, scenario: int) -> tuple[Because, ...]:
    """How the updates differ, and whether that shows which is wrong.

    A run that left tensors unmoved is the likelier one at fault, but they may be meant to stay; only numbers that are
    not finite show which run is wrong.
    """
    of_a, of_b = UNMOVED["sampler" if scenario == 1 else "taker"], UNMOVED["taker" if scenario == 1 else "sampler"]
    only_a, only_b = counts.of(of_a) > 0, counts.of(of_b) > 0
    nonfinite = counts.of(f"{'sampler' if scenario == 1 else 'taker'}_nonfinite_update") > 0
    named = [Because.ONLY_A_LEFT_UNMOVED] * only_a + [Because.ONLY_B_LEFT_UNMOVED] * only_b
    assumed = [Because.UPDATE_OF_B_TAKEN_AS_RIGHT] * (only_a == only_b and not nonfinite)
    assumed += [Because.UNMOVED_MAY_BE_MEANT] * (only_a != only_b and not nonfinite)
    return (Because.UPDATE_DIFFERS, *named, *assumed)


_FROM_LOG_PROBS = ("advantage_rel_diff", "reward_rel_diff_max")
_REWARDS = ("reward_rel_diff_max", "reward_recomputed_rel_diff_max")


def _may_follow(findings: Iterable[Finding]) -> bool:
    """Whether all inputs that differ may be computed from log-probs: KL may be taken into the reward."""
    return all(each.quantity in _FROM_LOG_PROBS for each in findings if each.aspect is Aspect.INPUTS)


def _driver(comparison: StepComparison) -> tuple[Because, ...]:
    """Reward or advantage, if these alone differ and no critic is between them."""
    differing = [f.quantity for f in comparison.findings if f.aspect is Aspect.INPUTS and f.state is DIFFER]
    critic = any(each.quantity == "critic_update" for each in comparison.findings)
    if set(_REWARDS) & set(differing) and set(differing) <= {*_FROM_LOG_PROBS, *_REWARDS}:
        return (Because.REWARDS_DIFFER,)
    return (Because.ADVANTAGES_DIFFER,) if differing == ["advantage_rel_diff"] and not critic else ()
