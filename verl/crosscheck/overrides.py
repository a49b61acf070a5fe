# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Hydra overrides that give a setting a value, whatever characters are in it. Imports neither Hydra nor OmegaConf."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_BARE_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")
_WORDS_WITH_A_MEANING = frozenset({"null", "true", "false", "inf", "nan"})
_BEFORE_INTERPOLATION = re.compile(r"(\\*)\$\{")
_BEFORE_QUOTE = re.compile(r"(\\*)'")
_AT_THE_END = re.compile(r"(\\+)\Z")


def assignment(key: str, value: Any, *, known: bool) -> str:
    """The override that sets `key` to a value of plain JSON.

    Args:
        known: whether the configuration has the key already; a new one needs `++`.
    """
    return f"{'' if known else '++'}{key}={literal(value)}"


def removal(key: str) -> str:
    """The override that takes `key` out of the configuration."""
    return f"~{key}"


def literal(value: Any) -> str:
    """`value`, plain JSON, in the grammar of Hydra's overrides."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{literal(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(literal, value)) + "]"
    return _text(str(value))


def _text(text: str) -> str:
    """Text: bare if it can only be read as text, else in quotes.

    Backslashes count as themselves, but in front of what they could protect: OmegaConf's `${`, and Hydra's quote.
    """
    if _BARE_WORD.fullmatch(text) and text.lower() not in _WORDS_WITH_A_MEANING:
        return text
    text = _BEFORE_INTERPOLATION.sub(lambda found: found[1] * 2 + r"\${", text)
    text = _BEFORE_QUOTE.sub(lambda found: found[1] * 2 + r"\'", text)
    text = _AT_THE_END.sub(lambda found: found[1] * 2, text)
    return f"'{text}'"
