# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From the evidence of two runs to a verdict. Reads files and numbers only: nothing of ray, hydra or the trainer."""
