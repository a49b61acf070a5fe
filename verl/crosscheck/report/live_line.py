# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One line a step for the log of the run in mode `ckpt`: what agrees, what does not, by how much against which limit.

Imports no jinja2: a training run calls it.
"""

from __future__ import annotations

from collections.abc import Iterable

from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.report.model import Cell, cell, worst_findings
from verl.crosscheck.text import number

ASPECTS = {
    Aspect.INPUTS: "inputs",
    Aspect.ROLLOUT_TAKER: "own rollout to the other run's training",
    Aspect.ROLLOUT_SAMPLER: "own rollout to own training",
    Aspect.FORWARD: "training to training",
    Aspect.REFERENCE: "reference to reference",
    Aspect.SAMPLING: "sampling",
    Aspect.SYNC: "weight sync",
    Aspect.ENDING: "ends of responses",
    Aspect.INDEPENDENCE: "independence of samples",
    Aspect.UPDATE: "update",
    Aspect.OUTCOME: "outcome",
}
"""As the run that samples calls them."""

_ASPECTS_SHOWN, _EACH = 3, 2
"""Aspects that differ whose numbers are shown, and how many of each."""
_REASON_CHARS = 80


def live_line(comparison: StepComparison) -> str:
    """A step in one line of plain English, such as `step 3: differs: own rollout to the other run's training
    (logprob_abs_diff_mean 0.0703, threshold 0.05); agrees: training to training, update; not compared: weight sync`."""
    present = {finding.aspect for finding in comparison.findings}
    kinds = {aspect: cell(comparison, aspect) for aspect in Aspect if aspect in present}
    agreeing = [aspect for aspect, kind in kinds.items() if kind in (Cell.AGREE, Cell.PARTLY)]
    parts = [
        _part("differs", _beyond(comparison)),
        _part("agrees", [ASPECTS[aspect] for aspect in agreeing], _closest(comparison, agreeing)),
        _part("not compared", [ASPECTS[aspect] for aspect, kind in kinds.items() if kind is Cell.MISSING]),
    ]
    said = "; ".join(filter(None, parts)) or "nothing was compared"
    line = f"step {comparison.global_step}, {comparison.rows} rows, {comparison.tokens} tokens: {said}"
    return " ".join(line.split())


def _part(title: str, things: Iterable[str], more: str = "") -> str:
    listed = ", ".join(things)
    return f"{title}: {listed}{more}" if listed else ""


def _beyond(comparison: StepComparison) -> list[str]:
    """By aspect, its quantities beyond their limits; the worst first, and not more than a line holds."""
    wrong = list(worst_findings(comparison))
    found = []
    for place, aspect in enumerate(dict.fromkeys(each.aspect for each in wrong)):
        own = [each for each in wrong if each.aspect is aspect]
        shown = own[:_EACH] if place < _ASPECTS_SHOWN else []
        told = [_numbers(each) for each in shown]
        told += [_reason(str(shown[0].reason))] if shown and shown[0].reason else []
        told += [f"{len(own) - len(shown)} more"] if shown and len(own) > len(shown) else []
        found.append(f"{ASPECTS[aspect]} ({', '.join(told)})" if told else ASPECTS[aspect])
    return found


def _numbers(finding: Finding) -> str:
    return f"{finding.quantity} {number(finding.value)}, threshold {number(finding.limit)}"


def _reason(reason: str) -> str:
    return reason if len(reason) <= _REASON_CHARS else f"{reason[:_REASON_CHARS]}..."


def _closest(comparison: StepComparison, agreeing: Iterable[Aspect]) -> str:
    """The agreeing quantity that comes closest to its limit."""
    among = [
        each
        for each in comparison.findings
        if each.state is State.AGREE and each.aspect in agreeing and each.limit and each.value is not None
    ]
    if not among:
        return ""
    worst = max(among, key=strength)
    return f" (closest to its threshold: {ASPECTS[worst.aspect]}, {_numbers(worst)})"
