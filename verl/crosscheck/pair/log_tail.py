# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run's log, for people: last lines, and the line that names the error."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LONGEST_BYTES = 256 * 1024
"""Of a log that may have gigabytes, this much of its end is read."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RAY_PREFIX = re.compile(r"\A\([^()]*pid=\d+[^()]*\)\s*")
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?::\s.*)?\Z")
_SHELL_ERROR = re.compile(r"(?:\S*(?:ba|da|z)?sh: .*|.*: command not found)\Z")


def last_lines(path: Path, number: int, longest: int = 300) -> list[str]:
    """The last `number` lines that are not empty, oldest first, without colours; none if the file cannot be read.

    Args:
        longest: characters of a line, which are cut off beyond; a line of metrics has thousands.
    """
    lines = [line.expandtabs(4).rstrip() for line in _read_end(path) if line.strip()][-number:]
    return [line if len(line) <= longest else f"{line[: longest - 4]} ..." for line in lines]


def last_words(path: Path) -> str:
    """The last line, without Ray's prefix."""
    return "".join(_RAY_PREFIX.sub("", line.strip()) for line in last_lines(path, 1))


def error_line(path: Path) -> str:
    """The last line that names an error, such as `ValueError: ...`, without Ray's prefix; empty if there is none."""
    for line in reversed(_read_end(path)):
        text = _RAY_PREFIX.sub("", line.strip())
        if _ERROR.fullmatch(text) or _SHELL_ERROR.fullmatch(text):
            return text
    return ""


def _read_end(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LONGEST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar draws itself anew on the same line; only its last state counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _COLOURS.sub("", text).split("\n")]
    return lines[1:] if size > _LONGEST_BYTES else lines
