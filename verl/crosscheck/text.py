# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers, counts, durations, sizes and lists of names as people read them. Plain text, in any language with digits."""

from __future__ import annotations

import math
from collections.abc import Sequence

NOTHING = "\u2013"
"""Stands for a value that is not known."""

_UNITS = ("B", "kB", "MB", "GB", "TB")

NAMES_SHOWN = 4
"""Names that `listed` writes out."""


def duration(seconds: float) -> str:
    """Return seconds as people say them: `0.4 s`, `12 s`, `5 min`, `2 h 05 min`, `3 d 4 h`."""
    if seconds < 10:
        return f"{max(seconds, 0):.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = int(seconds // 60)
    if minutes < 120:
        return f"{minutes} min"
    hours = minutes // 60
    return f"{hours} h {minutes % 60:02d} min" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def data_size(size_bytes: float) -> str:
    """Return a number of bytes with a decimal unit: `1.5 GB`."""
    for unit in _UNITS[:-1]:
        if size_bytes < 1000:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} {_UNITS[-1]}"


def count(number: int, what: str, plural: str | None = None) -> str:
    """Return a number with its noun: `1 file`, `2 files`."""
    return f"{number} {what if number == 1 else plural or what + 's'}"


def listed(names: Sequence[str], shown: int = NAMES_SHOWN) -> str:
    """Return the first few names and how many more there are: `a, b, c, d +12`. The same in every language."""
    more = f" +{len(names) - shown}" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def number(value: float | None) -> str:
    """Return three significant digits: `0.0703`, `3.4e-05`, `12`, `inf`; more just beside an integer; a dash for
    None."""
    if value is None:
        return NOTHING
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e6:
        digits = f"{value:.3g}"
        # A value of 1.002 against a threshold of 1.0004 must not read as 1 against 1.
        if float(digits) == round(value) and abs(value) < 10:
            digits = f"{value:.6g}"
        return f"{value:.0f}" if "e" in digits else digits
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def row_name(row_id: int) -> str:
    """Return a row's identity as eight hexadecimal digits, enough to tell the rows of a step apart."""
    return f"{row_id & (2**64 - 1):016x}"[:8]
