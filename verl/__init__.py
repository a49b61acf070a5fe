# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Speaks only where the fork cannot run; the overlay finder never loads it.

Without it, a shell in the clone's folder would run plain upstream, or nothing, and say nothing about the fork.
"""

import sys

if "_verl_overlay" in sys.modules:
    raise ImportError(
        "verl-crosscheck is installed in the Python you are running, but upstream's verl, which it changes, is not. "
        "Type `pip install verl==0.7.1`."
    )
raise ImportError(
    "this folder is a clone of verl-crosscheck that is not installed in the Python you are running, so the fork is not "
    "active. Type `pip install -e .` in the clone (or `scripts/demo`, which makes an environment of its own), "
    "or change to another folder to use a plain upstream verl."
)
