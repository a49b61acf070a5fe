# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""docs/format.md names a test for each abuse: those tests exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_abuse_has_its_test():
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", (ROOT / "docs" / "format.md").read_text())
    assert len(named) > 10
    for file, test in named:
        [path] = (ROOT / "tests").rglob(file)
        functions = {node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.FunctionDef)}
        assert test in functions, f"{file} has no {test}"
