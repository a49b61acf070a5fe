# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Findings as people read them."""

from __future__ import annotations

import math

from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import Finding, VerdictEvidence
from verl.crosscheck.report.wording.words import Words
from verl.crosscheck.text import number


def bound(finding: Finding, words: Words) -> str:
    """The limit, and on which side of it a value agrees."""
    if finding.limit is None:
        return words.label("no_limit")
    return words.label("at_most" if finding.above_is_bad else "at_least", limit=number(finding.limit))


def times(finding: Finding, words: Words) -> str:
    """How far beyond its limit a value is; empty if it is not, or if that cannot be said as a multiple."""
    ratio = strength(finding)
    if finding.value is None or not finding.limit or not 1.05 <= ratio < math.inf:
        return ""
    return words.label("times", times=f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}")


def evidence_name(evidence: VerdictEvidence, words: Words) -> str:
    """What was measured, in words: the quantity and between which engines."""
    finding = evidence.finding
    return f"{words.quantity(finding.quantity).name} ({words.aspect(finding.aspect, evidence.scenario).name})"
