# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The actor's weights: how far an update moved them, whether the rollout engine holds them, and their checkpoints.

    calls.py    calls to all workers, and where a worker holds the actor's model
    regions.py  which elements of a tensor a rank holds
    naming.py   portable names of a model's tensors
    tensors.py  the tensors that one rank holds, found without communication
    sync.py     what the trainer calls: digests of what was sent to the rollout engine and of what it holds
    change/     how far an update moved each tensor
    noise/      how far rounding can move log-probs, gradients and the change, predicted on the run's own weights
    portable/   checkpoints that any layout of ranks reads

The training workers stay upstream's: Ray runs the functions of the modules `on_worker` inside them.
"""
