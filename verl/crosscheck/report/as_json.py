# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Write a report for machines: one JSON object, described in docs/command_line.md, and the exit status."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from verl.crosscheck.diagnosis.findings import Phase, Verdict
from verl.crosscheck.diagnosis.findings_json import to_json
from verl.crosscheck.report.model import Report, Scenario, SettingRow

SCHEMA = "verl-crosscheck/report"
SCHEMA_VERSION = 1


def report_json(report: Report) -> dict[str, Any]:
    """Strict JSON. Tokens of responses are not in it."""
    control = report.control
    return {
        "schema": SCHEMA,
        "schema_version": SCHEMA_VERSION,
        "exit_status": exit_status(report.verdict),
        "verdict": to_json(report.verdict),
        "scenarios": [_scenario(each) for each in report.scenarios],
        "control": None
        if control is None
        else {"directory": str(control.directory), "steps": len(control.steps), "alike": control.alike},
        "limits": report.limits or None,
        "versions": dict(report.versions),
    }


def _scenario(scenario: Scenario) -> dict[str, Any]:
    return {
        "number": scenario.number,
        "directory": str(scenario.directory),
        "session": scenario.session,
        "runs": [asdict(run) for run in scenario.runs],
        "steps": [to_json(step) for step in scenario.steps],
        "recomputed": scenario.recomputed,
        "lacking": list(scenario.lacking),
        "problems": dict(scenario.problems),
        "settings": [_setting(setting) for setting in scenario.settings],
        "settings_not_compared": {key: str(why) for key, why in scenario.settings_not_compared.items()},
    }


def _setting(setting: SettingRow) -> dict[str, Any]:
    """Return the row with its reason as text, and the reason's code and parameters beside it."""
    facts: dict[str, Any] = {"key": setting.key, "a": setting.a, "b": setting.b, "must_agree": setting.must_agree}
    if setting.reason is None:
        return {**facts, "reason": ""}
    coded = setting.reason.to_json()
    return {**facts, "reason": coded["text"], "code": coded["code"], "params": coded["params"]}


EXIT_STATUS = {
    Phase.NO_FAULT: 0,
    Phase.ROLLOUT: 10,
    Phase.TRAINING_FORWARD: 11,
    Phase.TRAINING_UPDATE: 12,
    Phase.BOTH: 13,
    Phase.INCONCLUSIVE: 14,
    Phase.REFERENCE: 15,
    Phase.REWARD_OR_ADVANTAGE: 16,
}
"""By verdict. 1 is left for a report that could not be made, 2 for wrong usage."""


def exit_status(verdict: Verdict) -> int:
    """That of a verdict."""
    return EXIT_STATUS[verdict.phase]
