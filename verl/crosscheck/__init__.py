# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Cross-check of two RL runs: which phase is at fault, rollout or training."""
