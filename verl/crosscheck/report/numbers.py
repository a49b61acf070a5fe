# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Numbers as people read them, in any language."""

from __future__ import annotations

import math

NOTHING = "\u2013"
"""In place of what is not known."""


def number(value: float | None) -> str:
    """Three significant digits: `0.0703`, `3.4e-05`, `12`, `inf`; more just beside an integer; a dash for None."""
    if value is None:
        return NOTHING
    value = float(value)
    if not math.isfinite(value):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return str(int(value))
    if 1e-4 <= abs(value) < 1e6:
        digits = f"{value:.3g}"
        if float(digits) == round(value) and abs(value) < 10:  # 1.002 against a limit of 1.0004 must not both read 1
            digits = f"{value:.6g}"
        return f"{value:.0f}" if "e" in digits else digits
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def row_name(row_id: int) -> str:
    """Identity of a row as hexadecimal digits, of which eight tell rows of a step apart."""
    return f"{row_id & (2**64 - 1):016x}"[:8]
