# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What to do next, with the commands to type. Commands are the same in every language."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from verl.crosscheck.diagnosis.reasons import Next
from verl.crosscheck.report.model import Report
from verl.crosscheck.report.wording.words import Words
from verl.crosscheck.text import NOTHING

_TRAIN = "python -m verl.trainer.main_ppo <your overrides> \\\n    "


@dataclass(frozen=True)
class Action:
    """One thing to do."""

    text: str
    commands: str
    """Lines for a shell, or overrides; empty if there is nothing to type."""


def actions(report: Report, words: Words) -> list[Action]:
    """What to do next, in the verdict's order."""
    step = report.verdict.first_step
    found = []
    for value in report.verdict.next_actions:
        text, commands = value, ""
        with suppress(ValueError):
            action = Next(value)
            text = words.next_actions[action].format(step=NOTHING if step is None else step)
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
        for mode, who in (("ckpt", first), ("rollout", second))
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
    alone = ["--suspect", "rollout"] if [each.number for each in report.scenarios] == [2] else []
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
