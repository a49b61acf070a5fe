# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every command that a page or a script's comment shows can be typed: its own parser reads it, its files are there.

Nothing is started. A command of a kind that this test does not know fails it, so that none goes unread.
"""

import os
import re
import shlex
import subprocess
from argparse import ArgumentParser
from functools import cache
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import click
import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra

from recipe.crosscheck import demo
from recipe.crosscheck.bench import __main__ as bench
from torture import __main__ as torture
from verl.crosscheck import __main__ as installed
from verl.crosscheck.cli import main as verl_crosscheck

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"})
SCRIPTS = sorted(path for path in (ROOT / "scripts").iterdir() if os.access(path, os.X_OK))
EXAMPLES = sorted((ROOT / "examples").glob("*.sh"))

FENCE = re.compile(r"^[ ]*```(\w*)\n(.*?)^[ ]*```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(.+?)\1", re.DOTALL)
PLACEHOLDER = re.compile(r"<[^<>=]+>|^[A-Z]+$|^\.\.\.$")
ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=.*", re.DOTALL)
OVERRIDE = re.compile(r"[+~]*[a-z_]+(?:\.\w+)+=.*", re.DOTALL)

# Of other projects or of the shell: nothing of ours to read. An inline code span is a command if it begins with one of
# these, or is one of ours with a word behind it.
FOREIGN = {
    "grep",
    "source",
    "export",
    "git",
    "tail",
    "head",
    "tee",
    "py-spy",
    "msprobe",
    "cd",
    "echo",
    "rm",
    "if",
    "exit",
}
FOREIGN_MODULES = {"pip", "pre_commit"}
OURS = re.compile(r"(?:[A-Z_]+=\S* )*(?:scripts/\w|examples/\w|verl-crosscheck |python -m |pip |bash )")


def commands_of(text):
    """Commands of a page: lines of its shell blocks, lines behind a prompt in others, and spans that look like one."""
    for language, block in FENCE.findall(text):
        lines = re.sub(r"\\\n\s*", " ", block).splitlines()
        if language in ("bash", "sh", "shell", "console"):
            yield from filter(None, (line.strip() for line in lines))
        elif not language:
            yield from (line.strip()[2:] for line in lines if line.strip().startswith("$ "))
    for _, span in SPAN.findall(FENCE.sub("", text)):
        command = " ".join(span.split())
        if OURS.match(command):
            yield command


def words_of(command):
    """The words of a command's parts; `|` and so on begin another one."""
    lexer = shlex.shlex(command.removeprefix("$ "), posix=True, punctuation_chars=";&|>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for token in lexer:
        if set(token) == {">"}:
            next(lexer, None)  # a file to write
        elif set(token) <= set(";&|"):
            yield words
            words = []
        else:
            words.append(token)
    yield words


def require_readable(command):
    """Raise unless a command can be typed."""
    hidden = re.sub(r"<[^<>=]+>", "PLACEHOLDER", command)
    for part in words_of(hidden):
        variables = [word for word in part if ASSIGNMENT.fullmatch(word)] if part else []
        while part and ASSIGNMENT.fullmatch(part[0]):
            part.pop(0)
        if part:
            require_part(part, variables)


def require_part(words, variables):
    program, rest = words[0].removeprefix(".venv/bin/"), words[1:]
    if program == "bash" and rest and rest[0].endswith(".sh"):
        program, rest = rest[0], rest[1:]
    if program in FOREIGN or (program.endswith(".sh") and "/" not in program):  # a user's own script
        return
    if all(OVERRIDE.fullmatch(word) for word in words):
        compose_overrides(words)
    elif program == "verl-crosscheck":
        require_click(verl_crosscheck, rest)
    elif program in ("python", "python3") and rest[:1] == ["-m"]:
        require_module(rest[1], rest[2:])
    elif program == "pip":
        require_pip(rest)
    elif program.startswith("scripts/"):
        require_script(program, rest)
    elif program.startswith("examples/"):
        assert (ROOT / program).is_file(), program
        compose_overrides(rest, "ppo_megatron_trainer" if "megatron" in program else "ppo_trainer")
        unknown = {each.split("=")[0] for each in variables} - variables_of_examples()
        assert not unknown, f"examples/ know no {unknown}"
    elif program == ".ci/run":
        assert os.access(ROOT / program, os.X_OK)
    else:
        raise AssertionError(f"a kind of command that this test does not know: {' '.join(words)}")


def variables_of_examples():
    return set(re.findall(r"\$\{(\w+)", "".join(path.read_text() for path in EXAMPLES))) | {"MODE", "DIR", "MODEL"}


def require_script(name, words):
    assert os.access(ROOT / name, os.X_OK), f"{name} is not there, or cannot be executed"
    if name == "scripts/demo":
        demo.parse(words)
    elif name == "scripts/bench":
        require_bench(words)
    elif name == "scripts/torture":
        torture.parser().parse_args(words)
    elif name == "scripts/check":
        assert words in ([], ["--fix"])
    elif name in ("scripts/test", "scripts/test-vllm"):
        assert all((ROOT / word).exists() for word in words if word.startswith("tests/")), words
    else:
        assert name in ("scripts/lock", "scripts/schemas"), f"this test does not know {name}"


def require_bench(words):
    if words and words[0] in bench.BENCHMARKS:
        _, parser = bench.load(words[0])
        parser.parse_args(words[1:])
    else:
        assert words in (["--list"], ["NAME", "[--quick]"], ["NAME"], []), words


def require_module(name, words):
    if name in FOREIGN_MODULES:
        return
    assert find_spec(name) is not None, f"no module {name}"
    if name == "verl.trainer.main_ppo":
        compose_overrides(words)
    elif name == "verl.crosscheck":
        installed_arguments(words)
    elif words:
        raise AssertionError(f"this test does not know the options of {name}")


def installed_arguments(words):
    assert set(words) <= {"--markdown", "--help"}, f"{installed.__name__} has no such option: {words}"


def require_pip(words):
    files = [word for option, word in pairwise(words) if option in ("-r", "-c")]
    assert words[0] in ("install", "uninstall")
    assert all((ROOT / file.removeprefix("CLONE/")).is_file() for file in files), files


def require_click(command, words):
    """Let click read the words, as far as it does without files: commands, options, numbers of arguments."""
    context = click.Context(command, info_name="verl-crosscheck")
    if isinstance(command, click.Group):
        _, rest, _ = command.make_parser(context).parse_args(list(words))
        if rest:
            below = command.get_command(context, rest[0])
            assert below is not None, f"verl-crosscheck has no command {rest[0]}"
            require_click(below, rest[1:])
        return
    options, rest, _ = command.make_parser(context).parse_args(list(words))
    assert not rest, f"too many arguments: {rest}"
    for option in command.params:
        value = options.get(option.name)
        if isinstance(option.type, click.Choice) and isinstance(value, str) and not PLACEHOLDER.search(value):
            option.type.convert(value, option, context)


def compose_overrides(words, name="ppo_trainer"):
    """Compose what a training would compose."""
    words = [word for word in words if not PLACEHOLDER.search(word) and not word.startswith("${")]
    if words[:1] and words[0].startswith("--config-name="):
        name, words = words[0].removeprefix("--config-name="), words[1:]
    if words[:1] == ["--cfg"]:
        words = words[2:]
    composed(name, tuple(words))


@cache
def composed(name, overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        compose(name, overrides=list(overrides))


@pytest.fixture(autouse=True)
def fresh_hydra():
    GlobalHydra.instance().clear()
    yield
    GlobalHydra.instance().clear()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_commands_of_a_page_can_be_typed(page):
    wrong = []
    for command in dict.fromkeys(commands_of(page.read_text(encoding="utf-8"))):
        try:
            require_readable(command)
        except (Exception, SystemExit) as e:
            wrong.append(f"{command}\n    {type(e).__name__}: {e}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("path", [*SCRIPTS, *EXAMPLES], ids=lambda path: path.relative_to(ROOT).as_posix())
def test_a_script_is_read_by_its_shell_and_its_comment_can_be_typed(path):
    text = path.read_text()
    assert text.startswith("#!/usr/bin/env bash\n") or "Sourced, not run" in text
    subprocess.run(["bash", "-n", str(path)], check=True)
    comment = " ".join(line.lstrip("# ") for line in text.splitlines() if line.startswith("# "))
    for found in re.findall(r"scripts/[\w-]+(?: (?:--?\w[\w-]*|tests/\S+))*", comment):
        if not found.endswith(" --help"):  # which `test_help_of_every_program` types
            require_readable(found.rstrip("."))
    for module in re.findall(r"^exec \"\$VENV_PYTHON\" -m (\S+)", text, re.MULTILINE):
        assert find_spec(module) is not None, module


def test_every_script_is_read_here():
    known = {"bench", "check", "demo", "lock", "schemas", "test", "test-vllm", "torture"}
    assert {path.name for path in SCRIPTS} == known


@pytest.mark.parametrize("name", bench.BENCHMARKS)
def test_help_of_every_benchmark(name, capsys):
    with pytest.raises(SystemExit) as ended:
        bench.main([name, "--help"])
    assert ended.value.code == 0
    assert f"usage: scripts/bench {name}" in capsys.readouterr().out


@pytest.mark.parametrize("main", [demo.parse, torture.parser().parse_args, bench.main, installed.main])
def test_help_of_every_program(main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "usage: " in capsys.readouterr().out.lower()


@pytest.mark.parametrize(
    "command",
    [
        *("frobnicate --now", "scripts/gone", "scripts/demo --fault nonsense", "scripts/bench exchanges"),
        *("scripts/bench faults --sensitivity", "python -m recipe.crosscheck.bench_faults", "pip install -r gone.txt"),
        *("verl-crosscheck tell DIR", "verl-crosscheck report DIR --colour", "verl-crosscheck show A B"),
        *("verl-crosscheck report DIR --lang fr", "scripts/test tests/gone", "python -m verl.crosscheck --gone"),
        *("python -m verl.trainer.main_ppo trainer.share_dat=ckpt", "trainer.share_dat=ckpt"),
        *("MODES=ckpt examples/crosscheck_fsdp_gpu.sh", "examples/crosscheck_fsdp_tpu.sh"),
    ],
)
def test_what_cannot_be_typed_is_noticed(command):
    with pytest.raises((Exception, SystemExit)):
        require_readable(command)


def test_commands_are_found_where_they_stand():
    page = (
        "Type `scripts/demo\n--fault none`, or:\n```bash\na \\\n  b\n```\n```\n$ c\nd\n```\n``verl-crosscheck run`` `x`"
    )
    assert list(commands_of(page)) == ["a  b", "c", "scripts/demo --fault none", "verl-crosscheck run"]
    assert isinstance(torture.parser(), ArgumentParser)
