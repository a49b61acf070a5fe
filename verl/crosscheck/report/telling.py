# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A verdict's values in the words of a language; what has no words is shown as it is."""

from __future__ import annotations

from collections.abc import Sequence

from verl.crosscheck.diagnosis.findings import Aspect, Verdict
from verl.crosscheck.diagnosis.reasons import Because
from verl.crosscheck.exchange.session.claim import OTHER
from verl.crosscheck.report.model import MODE_OF_A, Report, Scenario
from verl.crosscheck.report.wording.words import Words


def reasons(verdict: Verdict, words: Words) -> list[str]:
    """The rules that led to a verdict, a sentence each."""
    known = {each.value: each for each in Because}
    return [words.because[known[value]] if value in known else value for value in verdict.because]


def not_compared(report: Report, words: Words) -> list[tuple[str, str]]:
    """What was not compared, and why; also steps of which a run left nothing."""
    number = report.scenarios[0].number if len(report.scenarios) == 1 else 1
    grouped: dict[tuple[str, str], list[str]] = {}
    for name, why in report.verdict.not_compared.items():
        grouped.setdefault((name.partition("/")[0], words.reason(why)), []).append(name)
    found = [
        (subject(names[0] if len(names) == 1 else first, number, words), why) for (first, why), names in grouped.items()
    ]
    for each in report.scenarios:
        if each.lacking:
            which = words.label("scenario_short", number=each.number)
            lacking = words.label("of", whole=which, part=steps_in_words(each.lacking, words))
            found.append((lacking, words.label("steps_lacking")))
        found += _absent(each, words)
    return found


def _absent(scenario: Scenario, words: Words) -> list[tuple[str, str]]:
    """Runs that have not taken part, and a scenario without any step."""
    which = words.label("scenario_short", number=scenario.number)
    modes = (MODE_OF_A[scenario.number], OTHER[MODE_OF_A[scenario.number]])
    found = [
        (words.label("of", whole=which, part=words.label("run_lacking", letter=letter, mode=mode)), "run_never_came")
        for letter, mode in zip("AB", modes, strict=True)
        if letter not in {run.letter for run in scenario.runs}
    ]
    if not found and not scenario.steps and not scenario.lacking:
        found.append((which, "no_step_recorded"))
    return [(what, words.label(why)) for what, why in found]


def steps_in_words(steps: Sequence[int], words: Words) -> str:
    """`steps 3 to 5, 9`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    listed = [str(a) if a == b else words.label("span", first=a, last=b) for a, b in spans]
    return words.label("steps_listed", steps=", ".join(listed))


def subject(name: str, scenario: int, words: Words) -> str:
    """`aspect`, `quantity`, `aspect/quantity` or `scenario_1` in words."""
    first, _, rest = name.partition("/")
    if name in ("scenario_1", "scenario_2"):
        return words.label("scenario_short", number=name[-1])
    aspects = {each.value: each for each in Aspect}
    if first in aspects:
        aspect = words.aspect(aspects[first], scenario).name
        return words.label("of", whole=aspect, part=words.quantity(rest).name) if rest else aspect
    return words.quantity(name).name
