# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The import name that users have: `ShareDataTest`, one run's part in the cross-check of two runs."""

from verl.crosscheck.run.share_data import ShareDataTest

__all__ = ["ShareDataTest"]
