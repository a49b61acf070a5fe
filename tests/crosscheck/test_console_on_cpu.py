# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines."""

from verl.crosscheck.console import MARK, say


def test_what_comes_from_the_other_run_cannot_command_the_terminal(capsys):
    say(MARK, "tensor \x1b[2J\x07 of \u202e layer \u00e4\nsecond line")
    assert capsys.readouterr().out == "[ShareDataTest] tensor \\x1b[2J\\x07 of \\u202e layer \u00e4\nsecond line\n"
