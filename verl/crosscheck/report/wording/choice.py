# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""All texts of a language by its name; only that language's tables are imported."""

from __future__ import annotations

from verl.crosscheck.report.wording.words import Words

LANGUAGES = ("en", "zh")


def words_of(language: str) -> Words:
    """All texts in one of `LANGUAGES`."""
    if language == "zh":
        from verl.crosscheck.report.wording.zh import WORDS as chinese

        return chinese
    from verl.crosscheck.report.wording.en import WORDS as english

    return english
