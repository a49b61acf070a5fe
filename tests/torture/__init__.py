# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Proof that the exchange can be trusted: two fake runs through the real code, killed, starved and lied to.

`scripts/torture` runs all of it; `tests/recipe/torture` a short form of each part. Needs Linux.
"""
