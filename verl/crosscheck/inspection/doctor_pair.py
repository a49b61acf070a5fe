# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What `verl-crosscheck doctor` sees of the two runs that have met in a directory: do they suit each other?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl.crosscheck.agreement.batch_split import batch_split_of, why_other_updates
from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.errors import CrossCheckError, MismatchError
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import current_session
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.inspection.doctor_checks import Check, CheckResult
from verl.crosscheck.run.ckpt_format import choose
from verl.crosscheck.settings import MODES


def pair_checks(root: Path) -> Iterator[Check]:
    """Nothing, unless a run of each mode has taken part in the directory's current session."""
    try:
        pair = _pair(root)
    except (CrossCheckError, OSError) as e:
        yield Check("the two runs", CheckResult.WARNING, f"what they say of themselves cannot be read: {e}")
        return
    if pair is None:
        return
    try:
        choice = choose(*pair)
    except MismatchError as e:
        yield Check("checkpoints", CheckResult.FAILED, str(e))
    else:
        yield Check("checkpoints", CheckResult.OK, f"exchanged in the {choice.format.value} form: {choice.reason}")
    why = why_other_updates(*(batch_split_of(flatten(card.config)) for card in pair))
    if why:
        yield Check("updates", CheckResult.WARNING, f"the verdict will not compare them: {why}")
    else:
        yield Check("updates", CheckResult.OK, "both runs do the same update on the same rows, whatever their layout")


def _pair(root: Path) -> tuple[Card, Card] | None:
    """The cards of the current runs, mode `ckpt` first: "here" in the texts is that one."""
    session = current_session(root)
    names = [None if session is None else session.newest(mode) for mode in MODES]
    ckpt, rollout = names
    return None if ckpt is None or rollout is None else (run_files.read_card(ckpt), run_files.read_card(rollout))
