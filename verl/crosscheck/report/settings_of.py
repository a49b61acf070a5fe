# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Who the two runs are, and how they are set up: from their cards and facts, from which runs left out secrets."""

from __future__ import annotations

import json
from typing import Any

from verl.crosscheck.agreement.compare import NOT_SET, Difference, compare
from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.session import cards
from verl.crosscheck.exchange.session.cards import Card
from verl.crosscheck.exchange.session.claim import OTHER
from verl.crosscheck.reasons import Reason
from verl.crosscheck.report.model import MODE_OF_A, RunSummary, SettingRow
from verl.crosscheck.report.pairs import RecordedPair

VALUE_CHARS = 300
"""Longest value that is shown."""


def runs_of(pair: RecordedPair, scenario: int) -> tuple[RunSummary, ...]:
    """A, then B, as far as they are there."""
    modes = (MODE_OF_A[scenario], OTHER[MODE_OF_A[scenario]])
    return tuple(
        _run(pair, letter, pair.cards[mode]) for letter, mode in zip("AB", modes, strict=True) if mode in pair.cards
    )


def settings_of(pair: RecordedPair, scenario: int) -> tuple[tuple[SettingRow, ...], dict[str, Reason]]:
    """What differs between the two set-ups, what must agree first; and what was not compared, with the reason."""
    mode = MODE_OF_A[scenario]
    if len(pair.cards) < len(OTHER):
        return (), {}
    a, b = pair.cards[mode], pair.cards[OTHER[mode]]
    facts = [_facts(pair, each) for each in (mode, OTHER[mode])]
    known = [each for each in facts if each is not None]
    resumed = any(card.start.session is not None for card in (a, b))
    # Facts are compared once both runs have told theirs.
    found = compare(a.config, b.config, *(known if len(known) == len(facts) else ({}, {})), resumed=resumed)
    must = [_setting(each, must_agree=True) for each in (*found.differences, *found.fact_differences)]
    may = [_setting(each.difference, must_agree=False, reason=each.reason) for each in found.allowed]
    return (*must, *_versions(a, b), *may), {each.key: each.reason for each in found.not_compared}


def _run(pair: RecordedPair, letter: str, card: Card) -> RunSummary:
    number, names = pair.session.runs(card.mode)[-1]
    try:
        end = cards.read_end(names)
    except (DamagedError, OSError) as e:
        pair.tell_problem(names.end, e)
        end = None
    return RunSummary(
        letter=letter,
        mode=card.mode,
        run_id=card.run_id,
        host=card.host,
        device=card.device,
        strategy=card.strategy,
        world_size=card.world_size,
        started=card.started,
        versions={str(name): str(version) for name, version in card.versions.items()},
        number=number,
        ending="" if end is None else end.state.value,
    )


def _facts(pair: RecordedPair, mode: str) -> dict[str, Any] | None:
    names = pair.session.newest(mode)
    try:
        return cards.read_facts(names) if names else None
    except (DamagedError, OSError):
        return None


def _versions(a: Card, b: Card) -> list[SettingRow]:
    names = sorted(a.versions.keys() | b.versions.keys())
    return [
        SettingRow(name, _text(a.versions.get(name, NOT_SET)), _text(b.versions.get(name, NOT_SET)), must_agree=False)
        for name in names
        if a.versions.get(name) != b.versions.get(name)
    ]


def _setting(difference: Difference, *, must_agree: bool, reason: Reason | None = None) -> SettingRow:
    return SettingRow(difference.key, _text(difference.own), _text(difference.other), must_agree, reason)


def _text(value: Any) -> str:
    if value is NOT_SET:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= VALUE_CHARS else f"{text[:VALUE_CHARS]}..."
