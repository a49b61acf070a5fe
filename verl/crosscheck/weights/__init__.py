# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The actor's weights: how far an update moved them, and whether the rollout engine holds what it was sent.

    detail.py   how much is measured; imports nothing
    shards.py   the parameters that one rank holds, under names that mean the same on every rank
    memory.py   what one rank remembers of them, and sums of squares of their changes
    on_worker.py  what runs inside the training workers
    watch.py    what the trainer calls: norms of changes, summed over the ranks
    sync.py     what the trainer calls: digests of what was sent to the rollout engine and of what it holds

The training workers stay upstream's: Ray runs the functions of `on_worker` inside them. So all worker implementations
are served alike, those of recipes too, and nothing of this exists in a worker before it is asked for.
"""
