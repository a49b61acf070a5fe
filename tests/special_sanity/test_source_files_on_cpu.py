# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What holds for every file of the repository."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = ["# Copyright 2026 The verl-crosscheck authors", "# SPDX-License-Identifier: Apache-2.0"]
SUFFIXES = {".py", ".yaml", ".yml", ".sh", ".toml"}
COPIES = ROOT.parent / "shared" / "tools" / "upstream_copies"


def source_files():
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    for name in listed.stdout.splitlines():
        file = ROOT / name
        if not file.is_file():
            continue
        if file.suffix in SUFFIXES or file.parent.name in ("scripts", ".ci") or name.startswith("requirements"):
            yield file


def test_every_source_file_has_the_licence_header():
    without = []
    for file in source_files():
        lines = file.read_text(encoding="utf-8").splitlines()
        start = 1 if lines and lines[0].startswith("#!") else 0
        if lines and lines[start : start + 2] != HEADER:
            without.append(file.relative_to(ROOT).as_posix())
    assert not without


def test_no_package_of_tests():
    """Upstream's wheel installs a top-level package `tests`; ours are files, imported by path."""
    assert not list((ROOT / "tests").rglob("__init__.py"))


@pytest.mark.skipif(not COPIES.is_file(), reason="the tool that finds copied lines is not beside this clone")
def test_nothing_is_copied_from_upstream():
    found = subprocess.run([sys.executable, str(COPIES)], cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
