# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far an update moved the actor's weights.

on_worker.py  what runs inside the training workers: copies of weights, sums of squares of a rank's part of a change
watch.py      what the trainer calls: norms of changes, summed over the ranks
"""
