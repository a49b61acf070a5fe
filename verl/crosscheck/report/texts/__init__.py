# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The texts of the report, English and Chinese: tables keyed by the members of the enums of a diagnosis."""

from __future__ import annotations

from verl.crosscheck.report.texts.texts import Texts

__all__ = ["LANGUAGES", "Texts", "texts_of"]

LANGUAGES = ("en", "zh")


def texts_of(language: str) -> Texts:
    """All texts in one of `LANGUAGES`."""
    if language == "zh":
        from verl.crosscheck.report.texts.zh import TEXTS as chinese

        return chinese
    from verl.crosscheck.report.texts.en import TEXTS as english

    return english
