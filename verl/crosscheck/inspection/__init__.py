# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts about an exchange directory, its runs and its files. Called by the commands and by `pair`; imports no click and
no rich."""
