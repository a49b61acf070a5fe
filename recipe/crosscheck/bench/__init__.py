# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: `scripts/bench NAME`, a module for each name; `harness` has what they share, `__main__` the command."""
