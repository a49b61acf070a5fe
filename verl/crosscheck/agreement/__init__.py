# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether two runs compute the same thing: their configurations and facts, compared."""
