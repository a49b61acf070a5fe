# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Plan, start, watch and end two training commands of a user as the two runs of a cross-check.

`commands` reads what the user typed, `plan` says what is appended to it and where files go, `process` is one run,
`watch` follows a pair, `play` plays pairs for a view that its caller gives. Imports neither torch nor Ray.
"""
