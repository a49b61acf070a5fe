# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The hooks before a commit are the commands of scripts/check, and fetch nothing."""

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
HOOKS = [
    (repo["repo"], hook)
    for repo in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    for hook in repo["hooks"]
]


def test_the_hooks_are_the_commands_of_scripts_check():
    script = (ROOT / "scripts" / "check").read_text(encoding="utf-8")
    always = re.sub(r"^if .*?^fi$", "", script, flags=re.MULTILINE | re.DOTALL)
    commands = re.findall(r'^"\$VENV_PYTHON" (.*)$', always, re.MULTILINE)
    assert len(commands) >= 3
    assert [hook["entry"] for _, hook in HOOKS] == [f".venv/bin/python {command}" for command in commands]


def test_the_hooks_fetch_nothing_and_look_at_everything():
    for repo, hook in HOOKS:
        assert (repo, hook["language"]) == ("local", "system")
        assert hook["pass_filenames"] is False
        assert hook["always_run"] is True
