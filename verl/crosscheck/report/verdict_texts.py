# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Put a verdict into the words of a language: banner, rules, evidence, what was not compared, what to do next.

Commands to type are the same in every language. A value without words is shown as it is.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import Aspect, Finding, Phase, Verdict, VerdictEvidence
from verl.crosscheck.diagnosis.rules import Because, Next
from verl.crosscheck.exchange.layout import OTHER
from verl.crosscheck.report.model import MODE_OF_A, Report, Scenario
from verl.crosscheck.report.texts.texts import Texts
from verl.crosscheck.settings import MODES, ShareMode
from verl.crosscheck.text import NOTHING, number

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
    Phase.REFERENCE: (UNKNOWN, UNKNOWN, UNKNOWN),
    Phase.REWARD_OR_ADVANTAGE: (OK, OK, UNKNOWN),
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
    confidence: str
    confidence_kind: str
    """`high`, `medium`, `low`; empty if there is nothing to be sure of."""
    over: str
    """What it is about: the runs and how many steps."""
    phases: tuple[PhaseOfA, ...]


def banner(report: Report, texts: Texts) -> Banner:
    """The verdict of a report in texts."""
    verdict = report.verdict
    kind = KINDS.get(verdict.phase, FAULT)
    named = texts.phases[verdict.phase]
    return Banner(
        kind=kind,
        sign=SIGNS[kind],
        headline=named.name,
        since="" if verdict.first_step is None else texts.label("since", step=verdict.first_step),
        sentence=named.meaning,
        confidence=_confidence(verdict, kind, texts, [action.text for action in actions(report, texts)]),
        confidence_kind="" if kind == OPEN else verdict.confidence.value,
        over=" \u00b7 ".join((texts.label("report"), _steps(verdict, texts), *_where(report))),
        phases=tuple(
            PhaseOfA(texts.label(name), state, SIGNS[state], texts.label(f"phase_{state}"))
            for name, state in zip(("rollout", "forward", "update"), _states(verdict), strict=True)
        ),
    )


def _states(verdict: Verdict) -> tuple[str, ...]:
    """Of rollout, forward pass and update."""
    states = _PHASES[verdict.phase]
    at_fault = verdict.details.get("phases")
    if verdict.phase is not Phase.BOTH or not isinstance(at_fault, Mapping):
        return states
    phases = (Phase.ROLLOUT, Phase.TRAINING_FORWARD, Phase.TRAINING_UPDATE)
    return tuple(FAULT if phase.value in at_fault else UNKNOWN for phase in phases)


def _confidence(verdict: Verdict, kind: str, texts: Texts, todo: Sequence[str]) -> str:
    """How sure, and what that rests on; without a verdict there is nothing to be sure of, and something to do."""
    named = texts.confidence[verdict.confidence]
    if kind == OPEN:
        return " ".join([texts.label("sure_open"), *(texts.label("first_thing", action=first) for first in todo[:1])])
    meaning = named.meaning if kind == FAULT else texts.label(f"sure_ok_{verdict.confidence.value}")
    return texts.label("sure", confidence=named.name, meaning=meaning)


def _steps(verdict: Verdict, texts: Texts) -> str:
    if verdict.steps == 0:
        return texts.label("no_steps")
    key = "one_step_compared" if verdict.steps == 1 else "steps_compared"
    return texts.label(key, steps=verdict.steps)


def _where(report: Report) -> list[str]:
    return [str(each.directory) for each in report.scenarios]


def reasons(verdict: Verdict, texts: Texts) -> list[str]:
    """The rules that led to a verdict, a sentence each."""
    known = {each.value: each for each in Because}
    return [texts.because[known[value]] if value in known else value for value in verdict.because]


def not_compared(report: Report, texts: Texts) -> list[tuple[str, str]]:
    """What was not compared, and why; also steps of which a run left nothing."""
    number = report.scenarios[0].number if len(report.scenarios) == 1 else 1
    grouped: dict[tuple[str, str], list[str]] = {}
    for name, why in report.verdict.not_compared.items():
        grouped.setdefault((name.partition("/")[0], texts.reason(why)), []).append(name)
    found = [
        (subject(names[0] if len(names) == 1 else first, number, texts), why) for (first, why), names in grouped.items()
    ]
    for each in report.scenarios:
        if each.lacking:
            which = texts.label("scenario_short", number=each.number)
            lacking = texts.label("of", whole=which, part=steps_in_words(each.lacking, texts))
            found.append((lacking, texts.label("steps_lacking")))
        found += _absent(each, texts)
    return found


def _absent(scenario: Scenario, texts: Texts) -> list[tuple[str, str]]:
    """Runs that have not taken part, and a scenario without any step."""
    which = texts.label("scenario_short", number=scenario.number)
    modes = (MODE_OF_A[scenario.number], OTHER[MODE_OF_A[scenario.number]])
    found = [
        (texts.label("of", whole=which, part=texts.label("run_lacking", letter=letter, mode=mode)), "run_never_came")
        for letter, mode in zip("AB", modes, strict=True)
        if letter not in {run.letter for run in scenario.runs}
    ]
    if not found and not scenario.steps and not scenario.lacking:
        found.append((which, "no_step_recorded"))
    return [(what, texts.label(why)) for what, why in found]


def steps_in_words(steps: Sequence[int], texts: Texts) -> str:
    """`steps 3 to 5, 9`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and step == spans[-1][1] + 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    listed = [str(a) if a == b else texts.label("span", first=a, last=b) for a, b in spans]
    return texts.label("steps_listed", steps=", ".join(listed))


def subject(name: str, scenario: int, texts: Texts) -> str:
    """`aspect`, `quantity`, `aspect/quantity` or `scenario_1` in texts."""
    first, _, rest = name.partition("/")
    if name in ("scenario_1", "scenario_2"):
        return texts.label("scenario_short", number=name[-1])
    aspects = {each.value: each for each in Aspect}
    if first in aspects:
        aspect = texts.aspect(aspects[first], scenario).name
        return texts.label("of", whole=aspect, part=texts.quantity(rest).name) if rest else aspect
    return texts.quantity(name).name


_TRAIN = "python -m verl.trainer.main_ppo <your overrides> \\\n    "


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    text: str
    commands: str
    """Lines for a shell, or overrides; empty if there is nothing to type."""


def actions(report: Report, texts: Texts) -> list[Action]:
    """What to do next, in the verdict's order."""
    step = report.verdict.first_step
    found = []
    for value in report.verdict.next_actions:
        text, commands = value, ""
        with suppress(ValueError):
            action = Next(value)
            text = texts.next_actions[action].format(step=NOTHING if step is None else step)
            commands = commands_for(action, report)
        found.append(Action(text, commands))
    return found


def commands_for(action: Next, report: Report) -> str:
    """What to type for an action; empty if there is nothing."""
    made = _COMMANDS.get(action)
    return made(report) if made else ""


def _pair(directory: str, first: str, second: str) -> str:
    name = shlex.quote(directory)
    return "\n".join(
        f"{_TRAIN}trainer.share_data={mode} \\\n    trainer.share_data_dir={name}   # {who}"
        for mode, who in zip(MODES, (first, second), strict=True)
    )


def _control(report: Report) -> str:
    runs = _pair(_beside(report, "control"), "B", "B again, on other devices")
    return f"{runs}\n{_again(report, control=True)}"


def _scenario(number: int) -> Callable[[Report], str]:
    def commands(report: Report) -> str:
        first, second = ("A", "B") if number == 1 else ("B", "A")
        other = _beside(report, f"scenario-{number}")
        given = [str(each.directory) for each in report.scenarios]
        both = [other, *given] if number == 1 else [*given, other]
        return f"{_pair(other, first, second)}\n{shlex.join(['verl-crosscheck', 'report', *both, '-o', 'report.html'])}"

    return commands


def _again(report: Report, *, control: bool = False) -> str:
    given = [str(each.directory) for each in report.scenarios]
    alone = ["--suspect", ShareMode.ROLLOUT.value] if [each.number for each in report.scenarios] == [2] else []
    more = ["--control", _beside(report, "control")] if control else ["--tokenizer", "MODEL"]
    return shlex.join(["verl-crosscheck", "report", *given, *alone, *more, "-o", "report.html"])


def _beside(report: Report, what: str) -> str:
    first = str(report.scenarios[0].directory).rstrip("/") if report.scenarios else "DIR"
    return f"{first}-{what}"


def _collect(*settings: str) -> Callable[[Report], str]:
    return lambda report: "\n".join(settings)


def _status(report: Report) -> str:
    return "\n".join(shlex.join(["verl-crosscheck", "status", str(each.directory)]) for each in report.scenarios)


_COMMANDS: dict[Next, Callable[[Report], str]] = {
    Next.LOOK_AT_STATUS: _status,
    Next.GET_CONTROL: _control,
    Next.GET_LONGER_CONTROL: _control,
    Next.CHECK_REFERENCE: lambda report: _pair(_beside(report, "control"), "B", "B"),
    Next.RUN_SCENARIO_1: _scenario(1),
    Next.RUN_SCENARIO_2: _scenario(2),
    Next.SET_CALCULATE_LOG_PROBS: _collect("actor_rollout_ref.rollout.calculate_log_probs=True"),
    Next.SET_EVIDENCE_TOKENS: _collect("trainer.share_data_evidence=tokens"),
    Next.SET_RECOMPUTE_LOG_PROBS: _collect("algorithm.rollout_correction.bypass_mode=False"),
    Next.COLLECT_ROLLOUT: _collect(
        "actor_rollout_ref.rollout.enforce_eager=True",
        "actor_rollout_ref.rollout.enable_prefix_caching=False",
        "actor_rollout_ref.rollout.enable_chunked_prefill=False",
    ),
    Next.COLLECT_ACTOR_FORWARD: _collect(
        "msprobe compare -tp DUMP_OF_A/step0 -gp DUMP_OF_B/step0 -o compare -da   # the first module that differs"
    ),
    Next.COLLECT_ACTOR_UPDATE: _collect(
        "msprobe compare -tp DUMP_OF_A/step0 -gp DUMP_OF_B/step0 -o compare -da   # the first module that differs"
    ),
    Next.DECODE_WORST_ROWS: _again,
}


def bound(finding: Finding, texts: Texts) -> str:
    """The limit, on which side of it a value agrees, and what was predicted."""
    if finding.limit is None:
        return texts.label("no_limit")
    said = texts.label("at_most" if finding.above_is_bad else "at_least", limit=number(finding.limit))
    if finding.predicted is None:
        return said
    return f"{said} ({texts.label('predicted', value=number(finding.predicted))})"


def times(finding: Finding, texts: Texts) -> str:
    """How far beyond its limit a value is; empty if it is not, or if that cannot be said as a multiple."""
    ratio = strength(finding)
    if finding.value is None or not finding.limit or not 1.05 <= ratio < math.inf:
        return ""
    return texts.label("times", times=f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}")


def evidence_name(evidence: VerdictEvidence, texts: Texts) -> str:
    """What was measured, in texts: the quantity and between which engines."""
    finding = evidence.finding
    return f"{texts.quantity(finding.quantity).name} ({texts.aspect(finding.aspect, evidence.scenario).name})"
