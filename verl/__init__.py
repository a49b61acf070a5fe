# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Speaks only where this clone is not installed; the overlay finder never loads it.

Without it, a shell in the clone's folder would run plain upstream, or nothing, and say nothing about the fork.
"""

raise ImportError(
    "this folder is a clone of verl-crosscheck that is not installed in the Python you are running, so the fork is not "
    "active. Type `pip install -e .` in the clone (or `scripts/demo`, which makes an environment of its own), "
    "or change to another folder to use a plain upstream verl."
)
