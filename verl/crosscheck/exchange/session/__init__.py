# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Who takes part in a directory: sessions, cards of runs, heartbeats, processes, waits."""
