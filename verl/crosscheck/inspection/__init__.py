# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts about an exchange directory. Imports neither click nor rich."""
