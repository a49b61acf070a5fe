# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What is said of weights that were loaded."""

from verl.crosscheck.weights.portable.notices import Notices
from verl.crosscheck.weights.portable.transfer import Loaded


def test_each_thing_is_said_once():
    lines = []
    notices = Notices(lines.append)
    for _ in range(3):
        notices.tell(Loaded(27, 100, ("a", "b"), ("a",), ("base",)))
    notices.tell(Loaded(27, 100, (), (), ()))
    assert len(lines) == 2
    assert lines[0].startswith("1 of 27 tensors are rounded") and lines[0].endswith("the first is a")
    assert lines[1].startswith("Warning: 1 frozen tensors") and lines[1].endswith("the first is base")
