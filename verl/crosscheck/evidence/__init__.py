# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a run remembers of each step, so that two runs can be compared in it.

detail.py        how much; imports nothing
step.py          the data: numbers of rows, of tokens, of the update
row_identity.py  which row of one run is which row of the other
packing.py       log-probs in few bytes
files.py         all of it as a file; lookup.py finds that of a step
"""
