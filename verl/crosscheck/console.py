# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines that people grep for: one mark, flushed at once, coloured on a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

MARK = "[ShareDataTest]"
"""Of the cross-check's lines."""

COLOUR_VARIABLE = "VERL_CROSSCHECK_COLOUR"
"""Environment variable, 1 or 0: set by the driver for processes whose output reaches its terminal through Ray."""

_CODES = {"red": 31, "green": 32, "yellow": 33}


def say(mark: str, line: str, colour: Literal["red", "green", "yellow"] | None = None) -> None:
    """Print `line` behind `[mark]`; in colour if the output ends on a terminal and NO_COLOR is not set.

    What a terminal would obey is escaped: a line may hold names and messages that come from the other run.
    """
    text = f"{mark} {printable(line)}"
    if colour and _coloured():
        text = f"\033[{_CODES[colour]}m{text}\033[0m"
    print(text, flush=True)  # noqa: T201  the log lines of the contract go to standard output


def printable(text: str) -> str:
    """`text` without what a terminal would obey or could not show; lines stay lines."""
    return "".join(each if each.isprintable() or each == "\n" else _escaped(each) for each in text)


def _escaped(letter: str) -> str:
    return letter.encode("unicode_escape", "backslashreplace").decode()


@contextmanager
def failure_told(mark: str, failure: str) -> Iterator[None]:
    """Print `failure` and the error behind it as a red line if the block raises; the error goes on."""
    try:
        yield
    except Exception as e:
        say(mark, f"{failure}{e}", "red")
        raise


def _coloured() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    chosen = os.environ.get(COLOUR_VARIABLE)
    return chosen == "1" if chosen is not None else sys.stdout.isatty()
