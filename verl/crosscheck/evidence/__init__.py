# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a run remembers of each step, so that two runs can be compared in it."""

from verl.crosscheck.evidence.step import MASK, REF, ROLLOUT, TRAIN, Detail, StepEvidence, TensorChange

__all__ = ["MASK", "REF", "ROLLOUT", "TRAIN", "Detail", "StepEvidence", "TensorChange"]
