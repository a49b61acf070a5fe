# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The verdict in a few words: what page and terminal show first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verl.crosscheck.diagnosis.findings import Phase, Verdict
from verl.crosscheck.report.model import Report
from verl.crosscheck.report.next_steps import actions
from verl.crosscheck.report.wording.words import Words

FAULT, OK, OPEN, UNKNOWN = "fault", "ok", "open", "unknown"
SIGNS = {FAULT: "\u2715", OK: "\u2713", OPEN: "?", UNKNOWN: "?"}
"""By kind: colour is never alone."""

KINDS = {Phase.NO_FAULT: OK, Phase.INCONCLUSIVE: OPEN}
"""Of a banner; every other verdict is a fault."""

_PHASES = {
    Phase.NO_FAULT: (OK, OK, OK),
    Phase.ROLLOUT: (FAULT, OK, OK),
    Phase.TRAINING_FORWARD: (UNKNOWN, FAULT, UNKNOWN),
    Phase.TRAINING_UPDATE: (OK, OK, FAULT),
    Phase.BOTH: (FAULT, FAULT, UNKNOWN),
    Phase.INCONCLUSIVE: (UNKNOWN, UNKNOWN, UNKNOWN),
}
"""What a verdict says of A's rollout, of its forward pass and of its update. While the forward pass is at fault, it
distorts what the others are held against."""


@dataclass(frozen=True)
class PhaseOfA:
    """One of A's phases."""

    name: str
    state: str
    """`fault`, `ok`, `unknown`."""
    sign: str
    note: str


@dataclass(frozen=True)
class Banner:
    """The verdict."""

    kind: str
    """`fault`, `ok`, `open`."""
    sign: str
    headline: str
    since: str
    sentence: str
    sureness: str
    sureness_kind: str
    """`high`, `fair`, `low`; empty if there is nothing to be sure of."""
    over: str
    """What it is about: the runs and how many steps."""
    phases: tuple[PhaseOfA, ...]


def banner(report: Report, words: Words) -> Banner:
    """The verdict of a report in words."""
    verdict = report.verdict
    kind = KINDS.get(verdict.phase, FAULT)
    named = words.phases[verdict.phase]
    return Banner(
        kind=kind,
        sign=SIGNS[kind],
        headline=named.name,
        since="" if verdict.first_step is None else words.label("since", step=verdict.first_step),
        sentence=named.meaning,
        sureness=_sureness(verdict, kind, words, [action.text for action in actions(report, words)]),
        sureness_kind="" if kind == OPEN else verdict.sureness.value,
        over=" \u00b7 ".join((words.label("report"), _steps(verdict, words), *_where(report))),
        phases=tuple(
            PhaseOfA(words.label(name), state, SIGNS[state], words.label(f"phase_{state}"))
            for name, state in zip(("rollout", "forward", "update"), _states(verdict), strict=True)
        ),
    )


def _states(verdict: Verdict) -> tuple[str, ...]:
    """Of rollout, forward pass and update."""
    states = _PHASES[verdict.phase]
    accused = verdict.details.get("phases")
    if verdict.phase is not Phase.BOTH or not isinstance(accused, Mapping):
        return states
    phases = (Phase.ROLLOUT, Phase.TRAINING_FORWARD, Phase.TRAINING_UPDATE)
    return tuple(FAULT if phase.value in accused else UNKNOWN for phase in phases)


def _sureness(verdict: Verdict, kind: str, words: Words, todo: Sequence[str]) -> str:
    """How sure, and what that rests on; without a verdict there is nothing to be sure of, and something to do."""
    named = words.sureness[verdict.sureness]
    if kind == OPEN:
        return " ".join([words.label("sure_open"), *(words.label("first_thing", action=first) for first in todo[:1])])
    meaning = named.meaning if kind == FAULT else words.label(f"sure_ok_{verdict.sureness.value}")
    return words.label("sure", sureness=named.name, meaning=meaning)


def _steps(verdict: Verdict, words: Words) -> str:
    if verdict.steps == 0:
        return words.label("no_steps")
    key = "one_step_compared" if verdict.steps == 1 else "steps_compared"
    return words.label(key, steps=verdict.steps)


def _where(report: Report) -> list[str]:
    return [str(each.directory) for each in report.scenarios]
