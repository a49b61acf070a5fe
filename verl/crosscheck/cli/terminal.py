# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What all commands share: arguments, errors, signals, colours, JSON."""

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
from dataclasses import fields, is_dataclass
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
    """A directory; `~` is the user's home. One that must exist becomes an absolute path without links."""

    def __init__(self, *, exists: bool = True) -> None:
        super().__init__(exists=exists, file_okay=False, resolve_path=exists, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(expanded(value), param, ctx)


def expanded(value: str | os.PathLike[str]) -> str:
    """Return a path as typed, with `~` replaced."""
    return os.path.expanduser(os.fspath(value))  # noqa: PTH111  a Path would raise for a user that is not there


class _Failure(click.ClickException):
    exit_code = USAGE


def reported(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wrap a command: an error becomes one line on standard error and exit status 2, not a traceback."""

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
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt in the block, so that its clean-up is done."""
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
    """Return standard output: in colour on a terminal without NO_COLOR; 80 columns wide in a pipe without COLUMNS.

    Square brackets in what is printed are not read as markup.
    """
    return Console(file=sys.stdout, markup=False, highlight=False, emoji=False)


def data(value: object, style: str = "") -> Text:
    """Return text from a file or a name, control characters escaped, folded over as many lines as needed."""
    return Text(printable(str(value)), style=style, overflow="fold")


def print_json(facts: Any, *, indent: int | None = 1) -> None:
    """Print facts (a dataclass) as one JSON object on standard output; with `indent` None, on one line.

    A field whose metadata has a `key` stands under that name, which users' programs know from earlier versions.
    """
    click.echo(json.dumps(_plain(facts), indent=indent, ensure_ascii=True, allow_nan=False))


def _plain(value: Any) -> Any:
    """Return `value` in terms of JSON, which knows neither NaN nor infinity: those become text."""
    if is_dataclass(value):
        return {each.metadata.get("key", each.name): _plain(getattr(value, each.name)) for each in fields(value)}
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
