# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What `verl-crosscheck doctor` sees of the two runs that have met in a directory: do they suit each other?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.run.ckpt_format import choose
from verl.crosscheck.inspection.doctor_checks import Check, Verdict
from verl.crosscheck.errors import CrossCheckError, MismatchError
from verl.crosscheck.exchange.session.claim import cards
from verl.crosscheck.exchange.session.cards import Card
from verl.crosscheck.exchange.session.claim import OTHER, current_session
from verl.crosscheck.agreement.batch_split import portions_of, why_other_updates


def pair_checks(root: Path) -> Iterator[Check]:
    """Nothing, unless a run of each mode has taken part in the directory's current session."""
    try:
        pair = _pair(root)
    except (CrossCheckError, OSError) as e:
        yield Check("the two runs", Verdict.WARNING, f"what they say of themselves cannot be read: {e}")
        return
    if pair is None:
        return
    try:
        choice = choose(*pair)
    except MismatchError as e:
        yield Check("checkpoints", Verdict.FAILED, str(e))
    else:
        yield Check("checkpoints", Verdict.OK, f"exchanged in the {choice.format.value} form: {choice.reason}")
    why = why_other_updates(*(portions_of(flatten(card.config)) for card in pair))
    if why:
        yield Check("updates", Verdict.WARNING, f"the verdict will not compare them: {why}")
    else:
        yield Check("updates", Verdict.OK, "both runs do the same update on the same rows, whatever their layout")


def _pair(root: Path) -> tuple[Card, Card] | None:
    """The cards of the current runs, mode `ckpt` first: "here" in the texts is that one."""
    session = current_session(root)
    names = [None if session is None else session.newest(mode) for mode in OTHER]
    ckpt, rollout = names
    return None if ckpt is None or rollout is None else (cards.read_card(ckpt), cards.read_card(rollout))
