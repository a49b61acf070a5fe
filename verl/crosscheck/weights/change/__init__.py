# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far an update moved the actor's weights.

memory.py     what one rank remembers, and sums of squares of its part of a change
on_worker.py  what runs inside the training workers
watch.py      what the trainer calls: norms of changes, summed over the ranks
"""
