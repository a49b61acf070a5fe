# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the commands share in speaking to people and to machines: arguments, errors, colours, JSON, sizes and times."""

from __future__ import annotations

import errno
import json
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import click
import msgspec
from rich.console import Console
from rich.text import Text

from verl.crosscheck.console import printable
from verl.crosscheck.errors import CrossCheckError

ATTENTION = 1
"""Exit status: the command did its work, and what it found needs somebody."""

USAGE = 2
"""Exit status: wrong arguments, or a directory or file that cannot be used."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


class FolderArgument(click.Path):
    """A directory that is there, as an absolute path without links; `~` is the user's home."""

    def __init__(self) -> None:
        super().__init__(exists=True, file_okay=False, resolve_path=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(expanded(value), param, ctx)


def expanded(value: str | os.PathLike[str]) -> str:
    """A path as typed, with `~` replaced."""
    return os.path.expanduser(os.fspath(value))  # noqa: PTH111  a Path would raise for a user that is not there


class _Failure(click.ClickException):
    exit_code = USAGE


def reported(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """For a command: what went wrong becomes one line on standard error and exit status 2, not a traceback."""

    @wraps(function)
    def command(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return function(*args, **kwargs)
        except CrossCheckError as e:
            raise _Failure(printable(str(e))) from None
        except OSError as e:
            if e.errno == errno.EPIPE:  # `... | head`: click ends quietly
                raise
            where = f"{e.filename}: " if e.filename else ""
            raise _Failure(printable(f"{where}{e.strerror or e}")) from None

    return command


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that what it must undo is undone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, signal.default_int_handler) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def console() -> Console:
    """Standard output: in colour on a terminal without NO_COLOR, 80 columns wide in a pipe unless COLUMNS says more.

    Nothing that is printed is taken for markup.
    """
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def data(value: object, style: str = "") -> Text:
    """What comes from a file or a name, as it is, on however many lines it needs."""
    return Text(printable(str(value)), style=style, overflow="fold")


def print_json(facts: Any, *, indent: int | None = 1) -> None:
    """Facts (a dataclass) as one JSON object on standard output; with `indent` None, on one line."""
    click.echo(json.dumps(_plain(asdict(facts)), indent=indent, ensure_ascii=True, allow_nan=False))


def _plain(value: Any) -> Any:
    """`value` in terms of JSON, which knows neither NaN nor infinity: those become text."""
    if isinstance(value, msgspec.Struct):
        return _plain(msgspec.to_builtins(value))
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    return value if value is None or isinstance(value, str | bool | int) else str(value)
