# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The texts of the report, English and Chinese: tables keyed by the members of the enums of a diagnosis."""

from verl.crosscheck.report.texts.texts import LANGUAGES, texts_of

__all__ = ["LANGUAGES", "texts_of"]
