# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the README says of the fork is what the fork says of itself."""

import subprocess
import sys
from pathlib import Path

from verl.utils.share_data import ShareDataTest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_table_of_changes_is_the_commands():
    command = [sys.executable, "-m", "verl.crosscheck", "--markdown"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout.splitlines()
    rows = [line for line in lines if line.startswith("|") and "| new |" not in line]
    assert len(rows) > 15
    assert "\n".join(rows) in README, "make the README's table anew from: python -m verl.crosscheck --markdown"


def test_the_files_it_names_are_there():
    for name in ("scripts/demo", "scripts/test", "scripts/check", "requirements.txt", "requirements-npu.txt", "NOTICE"):
        assert name in README
        assert (ROOT / name).exists()
    for link in ("docs/exchange.svg", "docs/format.md"):
        assert f"({link})" in README
        assert (ROOT / link).exists()


def test_the_mark_of_the_log_lines_is_the_codes():
    assert f"`{ShareDataTest.print_mark}`" in README
