# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a report leaves for a shell, so that CI can gate an upgrade."""

from __future__ import annotations

from verl.crosscheck.diagnosis.findings import Phase, Verdict

EXIT_STATUS = {
    Phase.NO_FAULT: 0,
    Phase.ROLLOUT: 10,
    Phase.TRAINING_FORWARD: 11,
    Phase.TRAINING_UPDATE: 12,
    Phase.BOTH: 13,
    Phase.INCONCLUSIVE: 14,
}
"""By verdict. 1 is left for a report that could not be made, 2 for wrong usage."""


def exit_status(verdict: Verdict) -> int:
    """That of a verdict."""
    return EXIT_STATUS[verdict.phase]
