# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Reads reasons from files, also from those of 0.1.0, which hold English sentences in place of codes.

Nothing but old files needs this module. A sentence of 0.1.0 that is still the English sentence of a code is found by
that; one that was reworded since has its old wording in `REWORDED`. Any other text is shown as it is (`FREE_TEXT`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

from verl.crosscheck.reasons import Param, Reason, ReasonCode, free_text, reason_from_json

REWORDED = {
    "this rollout engine ({engine}) does not tell which weights it holds; only actor_rollout_ref.rollout.name=hf does. "
    "The rollout's log-probs, compared with training's, show stale weights": ReasonCode.ENGINE_WITHOUT_DIGESTS,
    "the engine does not tell digests of the weights it holds": ReasonCode.NO_DIGESTS,
    "the rollout engine cannot tell digests of the weights it holds": ReasonCode.NO_DIGESTS,
    "its trainer told none": ReasonCode.NO_FACTS,
}

_NO_SENTENCE = (ReasonCode.FREE_TEXT, ReasonCode.NAME, ReasonCode.BOTH)
_PATTERNS = {"own": r"[^ ]+( \w+)?", "other": r"[^ ]+( \w+)?", "metric": r"[\w/]+", "mode": r"\w+"}
_COUNTS = {"rows", "all_rows", "responses", "all_responses", "tokens", "first", "second", "count", "steps", "all_steps"}
_COUNTS |= {"own_ranks", "other_ranks", "mini_batches", "room", "prompt", "response", "step"}


def read_reason(value: Any) -> Reason:
    """Return a reason from a file of any version.

    Raises:
        ValueError: it is neither a reason nor text.
    """
    return _of_sentence(value) if isinstance(value, str) else reason_from_json(value)


def _of_sentence(text: str) -> Reason:
    for pattern, code in _sentences():
        match = pattern.fullmatch(text)
        if match:
            return Reason(code, {name: _param(name, found) for name, found in match.groupdict().items()})
    return free_text(text)


def _param(name: str, text: str) -> Param:
    if name == "why":
        return _of_sentence(text)
    return int(text) if name in _COUNTS else text


@cache
def _sentences() -> tuple[tuple[re.Pattern[str], ReasonCode], ...]:
    return tuple(_patterns())


def _patterns() -> Iterator[tuple[re.Pattern[str], ReasonCode]]:
    # First: a reason that holds for some steps has another one inside, whose pattern would take the whole.
    codes = [ReasonCode.IN_SOME_STEPS, *(each for each in ReasonCode if each not in _NO_SENTENCE)]
    for text, code in (*((code.english, code) for code in codes), *REWORDED.items()):
        parts = re.split(r"\{(\w+)\}", text)
        named = [_group(part) if at % 2 else re.escape(part) for at, part in enumerate(parts)]
        yield re.compile("".join(named), re.DOTALL), code


def _group(name: str) -> str:
    return f"(?P<{name}>{r'[0-9]+' if name in _COUNTS else _PATTERNS.get(name, '.+?')})"
