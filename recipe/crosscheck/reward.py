# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rule reward of the demo, for `reward.custom_reward_function.path`. Imports nothing: Ray loads it by path."""

from __future__ import annotations

from typing import Any


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: object
) -> float:
    """1.0 if the response is the sum and nothing else, otherwise 0.0. No partial credit.

    Args:
        data_source: Not looked at; every row of the demo is an addition.
        solution_str: The decoded response, without special tokens.
        ground_truth: The sum in decimal digits.
        extra_info: Not looked at.
    """
    return float(solution_str.strip() == ground_truth)
