# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The import name that users have: `RolloutSkip`. Takes upstream's module's place."""

from verl.crosscheck.run.rollout_skip import RolloutSkip

__all__ = ["RolloutSkip"]
