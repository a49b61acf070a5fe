# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Responses as the page's templates take them: each token with how dark it is and what is said of it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from verl.crosscheck.report.model import Token, TokenRow
from verl.crosscheck.report.wording.words import Words
from verl.crosscheck.text import number, row_name

LEVELS = (0.02, 0.1, 0.3, 1.0, 3.0)
"""Absolute difference of log-probs from which a token is this dark; below the first it has no colour."""


def row_facts(row: TokenRow, words: Words) -> dict[str, Any]:
    """All that is shown of a response."""
    last = row.first + len(row.tokens) - 1
    return {
        "head": words.label("row_head", step=row.global_step, row=row_name(row.row_id)),
        "aspect": words.aspect(row.aspect, row.scenario).name,
        "numbers": words.label(
            "row_numbers", mean=number(row.logprob_abs_diff_mean), max=number(row.logprob_abs_diff_max)
        ),
        "part": words.label("row_part", first=row.first, last=last, length=row.length),
        "prompt": row.prompt,
        "decoded": row.decoded,
        "tokens": [_token(row.first + at, token, words) for at, token in enumerate(row.tokens)],
    }


def note(rows: Sequence[TokenRow], words: Words) -> str:
    """How the tokens came to be shown as they are; empty if they are text."""
    kinds = {row.decoded for row in rows}
    keys = {"ids": "tokens_ids", "positions": "tokens_positions"}
    return " ".join(words.label(key) for kind, key in keys.items() if kind in kinds)


def scale() -> list[tuple[int, str]]:
    """Levels with the difference from which they are taken."""
    return [(level, f"\u2265 {limit:g}") for level, limit in enumerate(LEVELS, start=1)]


def _token(position: int, token: Token, words: Words) -> tuple[str, str, str]:
    apart = token.apart
    if apart is None:
        return "gap", words.label("token_tip_missing", position=position), token.text
    level = len(LEVELS) if apart != apart else bisect_right(LEVELS, apart)
    tip = words.label(
        "token_tip", position=position, one=number(token.one), other=number(token.other), apart=number(apart)
    )
    return (f"h{level}" if token.trained_on else "off"), tip, token.text
