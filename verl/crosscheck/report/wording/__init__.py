# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The texts of the report, English and Chinese: tables keyed by the members of the enums of a diagnosis."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from verl.crosscheck.report.wording.words import Words as _Words

LANGUAGES = ("en", "zh")


def words_of(language: str) -> _Words:
    """All texts in one of `LANGUAGES`."""
    if language == "zh":
        from verl.crosscheck.report.wording.zh import WORDS as chinese

        return chinese
    from verl.crosscheck.report.wording.en import WORDS as english

    return english


__all__ = ["LANGUAGES", "words_of"]
