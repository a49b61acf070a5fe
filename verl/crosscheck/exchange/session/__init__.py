# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The runs that take part in a directory: sessions, cards, heartbeats, processes, waits."""
