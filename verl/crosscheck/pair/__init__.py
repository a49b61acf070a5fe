# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two training commands of a user, run as the two sides of a cross-check: planned, started, watched, ended.

`commands` reads what the user typed, `plan` says what is appended to it and where files go, `process` is one run,
`watch` follows a pair, `play` plays pairs for a view that its caller gives. Imports neither torch nor Ray.
"""
