# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far a number format can move what training computes, predicted on its own weights by rounding at random.

rounding.py   hooks that round each module's output at random
gradient.py   how far two gradients, and the optimizer's changes by them, are apart
on_worker.py  what runs inside the training workers
"""
