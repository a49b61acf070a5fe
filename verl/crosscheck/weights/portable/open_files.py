# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Open files of a folder that may hold more of them than a process may have open."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Generic, Protocol, TypeVar

MAX_OPEN = 64


class Closable(Protocol):
    """An open file."""

    def close(self) -> None: ...


FileT = TypeVar("FileT", bound=Closable)


class OpenFiles(Generic[FileT]):
    """Opens each file when it is asked for; closes the one that was not asked for longest, and in the end all.

    Args:
        open_one: opens the file of a name.
        most: how many are open at once.
    """

    def __init__(self, open_one: Callable[[str], FileT], most: int = MAX_OPEN) -> None:
        self._open_one, self._most = open_one, most
        self._files: OrderedDict[str, FileT] = OrderedDict()

    def __getitem__(self, name: str) -> FileT:
        if name in self._files:
            self._files.move_to_end(name)
            return self._files[name]
        while len(self._files) >= self._most:
            self._files.popitem(last=False)[1].close()
        self._files[name] = file = self._open_one(name)
        return file

    def __enter__(self) -> OpenFiles[FileT]:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all of them, also if that is an error for some: the first one is raised."""
        with ExitStack() as stack:
            while self._files:
                stack.callback(self._files.popitem()[1].close)
