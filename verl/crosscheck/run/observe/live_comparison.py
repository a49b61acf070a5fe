# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Mode `ckpt` compares its evidence of each step with the other run's, as soon as it has both: metrics for the tracker,
one line in the log, and a file for the report. Never stops the run."""

from __future__ import annotations

from verl.crosscheck.console import MARK, say
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import State, StepComparison
from verl.crosscheck.diagnosis.findings_json import to_json
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence.files import load_of_step
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.exchange.publish import publish_json
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.report.live_line import live_line
from verl.crosscheck.run.observe.attempts import Attempts
from verl.crosscheck.settings import ShareMode

PREFIX = "crosscheck/"
"""Of the metrics."""


class LiveComparison:
    """Compares a run in mode `ckpt` with the other run, step by step.

    Args:
        slot: the run's place in its session.
        attempts: of the run.
    """

    def __init__(self, slot: RunSlot, attempts: Attempts) -> None:
        self._slot, self._attempts = slot, attempts
        self.metrics: dict[str, float] = {}
        """Of the latest step, by the names that a tracker shows."""

    def compare(self, own: StepEvidence) -> None:
        """Compare the step that `own` is of; the other run has recorded it before it published its checkpoint."""
        self.metrics = {}
        other = self._other(own.global_step)
        if other is None:
            return
        comparison = self._attempts.result(
            "the comparison", lambda: compare_step(own, other, limits_for(own.sampling, other.sampling))
        )
        if comparison is None:
            return
        self.metrics = metrics_of(comparison)
        differs = any(each.state is State.DIFFER for each in comparison.findings)
        say(MARK, live_line(comparison), "red" if differs else "green")
        self._attempts.keep(
            self._slot.names.comparison(own.global_step),
            lambda path: publish_json(path, to_json(comparison), replace=True, durable=False),
        )

    def _other(self, global_step: int) -> StepEvidence | None:
        try:
            return load_of_step(self._slot.session.folder, ShareMode.ROLLOUT, global_step)
        except Exception as e:  # whatever the other run has left there
            say(MARK, f"Warning: step {global_step} cannot be compared: {e}. The run goes on", "yellow")
            return None


def metrics_of(comparison: StepComparison) -> dict[str, float]:
    """Return each quantity that was compared, how many exceed their threshold, and how many were not compared."""
    values = {
        f"{PREFIX}{each.aspect.value}/{each.quantity}": each.value
        for each in comparison.findings
        if each.value is not None
    }
    count = {state: sum(each.state is state for each in comparison.findings) for state in State}
    return {
        **values,
        f"{PREFIX}beyond_limit": float(count[State.DIFFER]),
        f"{PREFIX}not_compared": float(count[State.MISSING]),
    }
