# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Read a user's training command as a shell does, check it, and append overrides.

Starts nothing and expands nothing: the shell expands `$HOME` and `~` when the command runs.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.errors import SettingsError

PROGRAM = "verl.trainer.main_ppo"

_SHELLS = frozenset({"bash", "sh", "dash", "zsh", "ksh"})
_OPERATORS = ";&|()<>\n"
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\+?=(.*)", re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\([^()]*\)|`[^`]*`")
_OF_THE_TOOL = re.compile(r"[+~]*trainer\.share_data(?:_dir|_replay)?(?:=.*)?", re.DOTALL)
_PORT = re.compile(r"-*\+*((?:[\w.-]*[._-])?port)=(\d+)", re.IGNORECASE)
_RESUMED = re.compile(r"\+*trainer\.resume_from_path=.*global_step_(\d+)\W*", re.DOTALL)
_PASSES_ON = re.compile(r"\$(?:[@*]|\{[@*])")
_EXPANDED = frozenset("$`~*?[")


@dataclass(frozen=True)
class TrainingCommand:
    """A training command whose last part takes overrides at its end.

    Args:
        option: the option that it came from, such as `--a`, named in errors.
        text: as typed.
        assignments: variables that stand in front of its last part.
        words: its last part, without those.
        simple: whether there are no other parts.
    """

    option: str
    text: str
    assignments: Mapping[str, str]
    words: tuple[str, ...]
    simple: bool

    @property
    def names_program(self) -> bool:
        """Whether its words start `main_ppo` without a script between."""
        return runs_program(self.words)

    @property
    def script(self) -> Path | None:
        """Path of the shell script that it runs, as typed; None if it runs none."""
        words = self.words
        if Path(words[0]).name in _SHELLS:
            words = tuple(each for each in words[1:] if not each.startswith("-"))[:1]
            return Path(words[0]) if words else None
        return Path(words[0]) if words[0].endswith(".sh") else None

    @property
    def first_step(self) -> int:
        """Global step of the checkpoint that it resumes from; 0 if its words name none."""
        found = [int(match[1]) for match in map(_RESUMED.fullmatch, self.words) if match]
        return found[-1] if found else 0

    def ports(self, env: Mapping[str, str]) -> dict[int, str]:
        """Return the fixed ports that its words or the variables name: the name by port number."""
        variables = [f"{name}={value}" for name, value in {**env, **self.assignments}.items()]
        matches = (_PORT.fullmatch(each) for each in (*variables, *self.words))
        return {int(match[2]): match[1] for match in matches if match and int(match[2])}

    def argv(self, overrides: Sequence[str]) -> list[str]:
        """Return the arguments to execute: a shell that reads the text and passes the overrides on unchanged."""
        return [shutil.which("bash") or "sh", "-c", f'{self.text} "$@"', f"verl-crosscheck {self.option}", *overrides]

    def line(self, overrides: Sequence[str]) -> str:
        """Return what a person would type, one override a line."""
        return " \\\n    ".join([self.text, *map(shlex.quote, overrides)])


def parse(text: str, option: str) -> TrainingCommand:
    """Return a command that was read from text.

    Raises:
        SettingsError: it is empty or no command of a shell, words appended to it would not go to the training, or it
            already says what the tool must say.
    """
    text = text.strip()
    if not text:
        raise SettingsError(f"{option} is empty; expected a training command, such as 'python -m {PROGRAM} ...'")
    parts = _parts(text, option)
    assignments: dict[str, str] = {}
    words = list(parts[-1])
    while words and (match := _ASSIGNMENT.fullmatch(words[0])):
        assignments[match[1]] = match[2]
        words.pop(0)
    if not words:
        raise SettingsError(
            f"{option} ends with {parts[-1][-1]!r}, which runs nothing; expected a training command at its end."
            f"{_hint(text)}"
        )
    _require_untaken([word for part in parts for word in part], option)
    return TrainingCommand(option, text, assignments, tuple(words), simple=len(parts) == 1)


def require_found(command: TrainingCommand, path: str) -> None:
    """Raise unless the program or script exists, or only the shell can know.

    Args:
        path: the value of PATH to look in.

    Raises:
        SettingsError: it does not exist.
    """
    first = command.words[0]
    if not command.simple or _EXPANDED & set(first):
        return
    if shutil.which(first, path=path) is None:
        raise SettingsError(f"{command.option}: command not found: {first}. Is the environment active that has it?")
    script = command.script
    if script and not _EXPANDED & set(str(script)) and not script.is_file():
        raise SettingsError(f"{command.option}: there is no script {script} in {Path.cwd()}")


def doubts(command: TrainingCommand) -> list[str]:
    """Return sentences about why overrides at its end may not reach the training."""
    script = command.script
    if command.names_program:
        return []
    if script is None:
        return [
            f"{command.option} names neither {PROGRAM} nor a shell script. It must hand the overrides at its end on to "
            "the training."
        ]
    try:
        content = script.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    if _PASSES_ON.search(content):
        return []
    return [f'{command.option}: {script} does not contain "$@", so overrides do not reach the training that it starts.']


def runs_program(words: Sequence[str]) -> bool:
    """Return whether the words of a command line start `main_ppo`."""
    return any(word == PROGRAM or Path(word).name == "main_ppo.py" for word in words)


def _parts(text: str, option: str) -> list[list[str]]:
    """Return the simple commands of a line, each as words.

    Raises:
        SettingsError: words at the end of the line would not be arguments of its last command.
    """
    parts: list[list[str]] = [[]]
    redirected = ""
    for token in _tokens(text, option):
        if token.startswith("#"):
            raise SettingsError(f"{option}: the comment {token!r} would swallow the overrides at the end; leave it out")
        if not set(token) <= set(_OPERATORS):
            parts[-1].append(token)
        elif "<" in token or ">" in token:
            redirected = token
        else:
            parts.append([])
            redirected = ""
    if not parts[-1] or any(map(runs_program, parts[:-1])):
        raise SettingsError(
            f"{option}: overrides are appended at the end, and would not reach the training there. Let it end with "
            "the training command (no `| tee`, `;` or `&` after it: the log is kept), or put it into a script that "
            f'ends its training command in "$@".{_hint(text)}'
        )
    if redirected:
        raise SettingsError(f"{option}: leave the redirection ({redirected}) out; the run's log is kept")
    return [part for part in parts if part]


def _hint(text: str) -> str:
    return " A line that goes on in the next one needs a backslash at its end." if "\n" in text else ""


def _tokens(text: str, option: str) -> list[str]:
    plain = _SUBSTITUTION.sub("$_", text.replace("\\\n", " "))
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError as e:
        raise SettingsError(f"{option} is no command line: {e}: {text}") from None


def _require_untaken(words: Sequence[str], option: str) -> None:
    for word in words:
        if _OF_THE_TOOL.fullmatch(word):
            raise SettingsError(
                f"{option} already says {word}, which the command line says itself for each scenario. Leave it out; "
                "--dir names the directory"
            )
