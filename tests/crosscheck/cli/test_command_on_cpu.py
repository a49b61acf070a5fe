# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The console script in processes of its own: how light it is, and how it ends."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from verl.crosscheck.cli import main

SCRIPT = Path(sys.executable).parent / "verl-crosscheck"
DOCUMENT = Path(__file__).parents[3] / "docs" / "command_line.md"
HEAVY = (
    "torch",
    "ray",
    "tensordict",
    "numpy",
    "omegaconf",
    "hydra",
    "transformers",
    "safetensors",
    "xxhash",
    "verl.protocol",
)

IMPORTS = """
import json, sys
from _verl_overlay.command import main
sys.argv = ["verl-crosscheck", *sys.argv[1:]]
try:
    main()
except SystemExit as e:
    print("\\n" + json.dumps([e.code or 0, sorted(sys.modules)]))
"""


def run(*arguments, **options):
    environ = {**os.environ, "COLUMNS": "80", **options.pop("environ", {})}
    return subprocess.run(
        [SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60, env=environ, **options
    )


def imports(*arguments):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("command", ["--help", "--version", "status", "doctor", "clean", "show"])
def test_nothing_heavy_is_imported(pair, command):
    a, b = pair.start("ckpt"), pair.start("rollout")
    pair.rollout(a, 0), pair.ckpt(b, 0)
    arguments = {
        "status": ["status", pair.root],
        "doctor": ["doctor", pair.root, "--megabytes", 1, "--model", DOCUMENT.parents[1] / "recipe/crosscheck/model"],
        "clean": ["clean", pair.root, "--all"],
        "show": ["show", pair.root / "ckpt_0"],
    }.get(command, [command])
    status, modules = imports(*arguments)
    assert status == 0
    assert [name for name in modules if name in HEAVY] == []
    assert not any(name.startswith("verl.") and not name.startswith("verl.crosscheck") for name in modules)


def test_not_even_a_rollout_needs_torch(pair):
    path = pair.rollout(pair.start("ckpt"), 0)
    status, modules = imports("show", path)
    assert status == 2  # this rollout has no call
    assert "torch" not in modules
    assert "verl.protocol" not in modules
    assert "ray" not in modules


def test_the_light_package_does_not_leave_its_process(tmp_path):
    """Ray, upstream's modules and `python -m verl.crosscheck` see the real one."""
    done = run("installation", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "The fork is active." in done.stdout


def test_inside_another_program_verl_stays_what_it_is():
    code = (
        "import sys, verl, _verl_overlay.command as command\nsys.argv = ['x', '--version']\n"
        "try: command.main()\nfinally: print(verl.__file__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout.splitlines()[-1].endswith("__init__.py")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["stats"], "No such command 'stats'"),
        (["status"], "Missing argument 'DIR'"),
        (["status", "nowhere"], "Directory 'nowhere' does not exist"),
        (["status", ".", "--wait", "-1"], "--wait"),
        (["show"], "Missing argument 'PATH'"),
        (["clean", "."], "holds no session of two runs"),
        (["doctor", ".", "--keep", "1"], "--keep"),
        (["status", "~nobody-of-that-name/x"], "does not exist"),
    ],
)
def test_wrong_input_is_told_in_a_line(tmp_path, arguments, words):
    tmp_path.chmod(0o700)
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_the_home_directory_is_replaced(pair):
    pair.start("ckpt")
    assert run("status", "~/share", environ={"HOME": str(pair.root.parent)}).returncode == 0


def test_a_reader_that_goes_away_is_no_error(pair):
    pair.start("ckpt")
    with subprocess.Popen(
        [SCRIPT, "status", pair.root, "--watch"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout.readline()
        process.stdout.close()
        pair.start("rollout")  # the next line finds nobody
        error = process.stderr.read()
        assert process.wait(timeout=30) in (0, 1)
    assert b"Traceback" not in error


def on_terminal(arguments, environ=()):
    """Runs the script on a terminal, stops it once it has shown a page, and gives status and output."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", "LINES": "50", **dict(environ)}
    with subprocess.Popen(
        [SCRIPT, *map(str, arguments)], stdout=slave, stderr=slave, stdin=slave, env=environ
    ) as process:
        os.close(slave)
        seen = b""
        while b"starting" not in seen:
            seen += os.read(master, 1 << 16)
        process.send_signal(signal.SIGINT)
        try:
            while chunk := os.read(master, 1 << 16):
                seen += chunk
        except OSError:  # how a terminal says that nobody writes any more
            pass
        status = process.wait(timeout=30)
    os.close(master)
    return status, seen.decode()


def test_watching_on_a_terminal_ends_cleanly_with_ctrl_c(pair):
    pair.start("ckpt")
    status, seen = on_terminal(["status", pair.root, "--watch"])
    assert status == 0
    assert "Traceback" not in seen
    assert seen.rstrip().endswith("\x1b[?25h")  # the cursor is back
    assert re.search(r"\x1b\[[0-9;]*3[0-9]m", seen)  # in colour


def test_no_color_is_obeyed_on_a_terminal(pair):
    pair.start("ckpt")
    _, seen = on_terminal(["status", pair.root, "--watch"], {"NO_COLOR": "1"})
    assert not re.search(r"\x1b\[[0-9;]*[34][0-9]m", seen)


def test_a_terminal_without_utf_8_is_enough(tmp_path):
    folder = tmp_path / "é→"
    folder.mkdir()
    done = run("status", folder, environ={"PYTHONIOENCODING": "ascii", "COLUMNS": "300"})
    assert done.returncode == 0, done.stderr
    assert "\\xe9\\u2192" in done.stdout


def test_every_command_has_help_and_a_section_in_the_document():
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, command in main.commands.items():
        assert command.help or command.get_short_help_str()
        assert f"verl-crosscheck {name}" in text
        for option in command.params:
            for flag in option.opts:
                assert not flag.startswith("--") or f"`{flag}" in text, f"{flag} of {name} is not in {DOCUMENT.name}"
