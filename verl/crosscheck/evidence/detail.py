# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How much of a step is recorded. Imports nothing, since the configuration is read before anything heavy."""

from __future__ import annotations

from enum import Enum


class Detail(str, Enum):
    """How much of a step is recorded."""

    OFF = "off"
    """Nothing."""
    SUMMARY = "summary"
    """Numbers of each row and of the update."""
    TOKENS = "tokens"
    """Those, and the log-probs of each response token."""
