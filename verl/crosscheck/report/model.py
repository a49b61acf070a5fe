# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""All that a report shows, as plain data: read by `load`, shown by `page`, `text` and `as_json`.

A is the suspect run, B the healthy one. In scenario 1 run A is the sampler (mode `ckpt`), in scenario 2 the taker (mode
`rollout`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from verl.crosscheck.diagnosis.assess import state_of, strength
from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison, Verdict
from verl.crosscheck.reasons import Reason
from verl.crosscheck.settings import ShareMode

MODE_OF_A = {1: ShareMode.CKPT, 2: ShareMode.ROLLOUT}
"""Mode of run A by scenario."""


@dataclass(frozen=True)
class RunSummary:
    """Who a run is, from its card; of the current run, if it was started again."""

    letter: str
    """`A` or `B`."""
    mode: str
    run_id: str
    host: str
    device: str
    strategy: str
    world_size: int
    started: str
    versions: Mapping[str, str]
    number: int
    """Which run of its mode in the session it is."""
    ending: str
    """`finished`, `failed`, `interrupted`; empty if it told of no end."""


@dataclass(frozen=True)
class SettingRow:
    """A setting, fact or version that differs. Values as text; empty where there is none."""

    key: str
    a: str
    b: str
    must_agree: bool
    reason: Reason | None = None
    """Why it may differ."""


@dataclass(frozen=True)
class Token:
    """One response token of which two log-probs are compared."""

    text: str
    """Decoded, or its id, or its position if not even that is known."""
    one: float | None
    """Log-prob by the first of the two; None if it was not recorded."""
    other: float | None
    trained_on: bool

    @property
    def apart(self) -> float | None:
        """Absolute difference; None if one is not known."""
        return None if self.one is None or self.other is None else abs(self.one - self.other)


@dataclass(frozen=True)
class TokenRow:
    """One of the responses in which two log-probs are apart most: a part of it around the worst token."""

    scenario: int
    global_step: int
    aspect: Aspect
    row_id: int
    logprob_abs_diff_mean: float
    logprob_abs_diff_max: float
    length: int
    """Response tokens."""
    first: int
    """Position of the first token that is shown."""
    tokens: tuple[Token, ...]
    decoded: str
    """How `Token.text` came about: `text`, `ids`, or `positions` if the rollout is not there any more."""
    prompt: str = ""
    """Its end, decoded or as ids."""


@dataclass(frozen=True)
class Scenario:
    """One pair of runs."""

    number: int
    """1: A samples and takes B's weights. 2: A takes B's rollouts and trains."""
    directory: Path
    session: int
    runs: tuple[RunSummary, ...]
    """A, then B; one is missing if it has not taken part."""
    steps: tuple[StepComparison, ...]
    """In order of steps."""
    recomputed: int = 0
    """How many of them were made from evidence now; the others are as they were logged."""
    lacking: tuple[int, ...] = ()
    """Steps that were recorded and not compared, since the evidence of a run is not there or cannot be used."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Why a file could not be used, by its name."""
    settings: tuple[SettingRow, ...] = ()
    settings_not_compared: Mapping[str, Reason] = field(default_factory=dict)

    @property
    def aspects(self) -> list[Aspect]:
        """Those that any step has a finding of, in the order of the enum."""
        present = {finding.aspect for step in self.steps for finding in step.findings}
        return [aspect for aspect in Aspect if aspect in present]

    def series(self) -> dict[tuple[Aspect, str], list[tuple[int, Finding]]]:
        """The findings of each quantity with their global steps, in order; what differs first."""
        found: dict[tuple[Aspect, str], list[tuple[int, Finding]]] = {}
        for step in self.steps:
            for finding in step.findings:
                found.setdefault((finding.aspect, finding.quantity), []).append((step.global_step, finding))
        return found


@dataclass(frozen=True)
class Control:
    """Two healthy runs, from which the limits come."""

    directory: Path
    steps: tuple[StepComparison, ...]
    alike: bool = True
    """Whether devices, engine and number formats of the runs are those of the control."""


@dataclass(frozen=True)
class Report:
    """The whole."""

    verdict: Verdict
    scenarios: tuple[Scenario, ...]
    rows: tuple[TokenRow, ...] = ()
    control: Control | None = None
    limits: str = ""
    """Where limits come from besides: the file that was named, or empty."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the software that made the report."""


class Cell(str, Enum):
    """What became of an aspect in a step."""

    AGREE = "agree"
    PARTLY = "partly"
    """What was compared agrees, and something was not compared."""
    DIFFER = "differ"
    MISSING = "missing"


def cell(step: StepComparison, aspect: Aspect) -> Cell:
    """What became of an aspect in a step; missing where nothing was found about it."""
    state = state_of(step.findings, aspect)
    if state is State.AGREE and any(each.state is State.MISSING for each in step.findings if each.aspect is aspect):
        return Cell.PARTLY
    return Cell(state.value)


def worst_findings(step: StepComparison) -> Iterator[Finding]:
    """The findings of a step that differ, those furthest beyond their limits first."""
    yield from sorted((each for each in step.findings if each.state is State.DIFFER), key=lambda each: -strength(each))
