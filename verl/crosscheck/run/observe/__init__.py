# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a run observes of each of its steps: evidence, and the live comparison."""
