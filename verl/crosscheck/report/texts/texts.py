# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Define what a catalogue of texts in one language has. The catalogues are `en` and `zh`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.reasons import Reason, ReasonCode
from verl.crosscheck.report.model import Cell


@dataclass(frozen=True)
class Named:
    """A short name, and what it means in a sentence or two."""

    name: str
    meaning: str


@dataclass(frozen=True)
class Texts:
    """All texts of the report in one language."""

    language: str
    """As HTML's `lang` has it."""
    phases: Mapping[Phase, Named]
    """Headline and sentence of each verdict."""
    confidence: Mapping[Confidence, Named]
    aspects: Mapping[Aspect, Named]
    """`{sampler}` and `{taker}` stand for the letters of the runs."""
    cells: Mapping[Cell, str]
    because: Mapping[Because, str]
    next_actions: Mapping[Next, str]
    quantities: Mapping[str, Named]
    outcomes: Mapping[str, str]
    labels: Mapping[str, str]
    """Headings and single sentences of the page, by what they are for."""
    reasons: Mapping[ReasonCode, str]
    """The sentence of each reason; a code without one is shown in English."""

    def label(self, key: str, **values: object) -> str:
        """A label with its values in place."""
        return self.labels[key].format(**values)

    def aspect(self, aspect: Aspect, scenario: int) -> Named:
        """Name and meaning of an aspect, with the letters of the runs in place."""
        letters = {"sampler": "A", "taker": "B"} if scenario == 1 else {"sampler": "B", "taker": "A"}
        texts = self.aspects[aspect]
        return Named(texts.name.format(**letters), texts.meaning.format(**letters))

    def quantity(self, name: str) -> Named:
        """Name and meaning of a quantity; its own name if it has no texts."""
        return self.quantities.get(name, Named(name, ""))

    def outcome(self, name: str) -> str:
        return self.outcomes.get(name, name)

    def reason(self, reason: Reason | None) -> str:
        """The sentence of a reason; empty without one."""
        return "" if reason is None else reason.sentence(lambda code: self.reasons.get(code, code.english))
