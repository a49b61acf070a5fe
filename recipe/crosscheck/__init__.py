# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The demo recipe: a tiny model, its data and its reward, small enough to train on any CPU in minutes."""
