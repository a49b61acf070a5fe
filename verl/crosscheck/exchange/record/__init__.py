# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One rollout as one safetensors file: tensors, and everything else as JSON in it."""
