# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every change that the exchange makes on a disk, and every listing it reads, one method a system call.

It exists to be replaced: a test puts in its place one that kills the process at the n-th call, fails with EIO, writes
short, or shows a listing of a minute ago (`scripts/torture`). What the *saving* of a checkpoint does inside the folder
that it is given is upstream's, and not seen here.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

_OWNER_FILE = 0o600
_OWNER_FOLDER = 0o700


class Filesystem:
    """The real one. Errors are the operating system's own."""

    def raw(self, path: Path) -> io.FileIO:
        """A new file, for its owner alone, open for writing and reading; fails if the name is taken."""
        return io.FileIO(path, "x+b", opener=lambda name, flags: os.open(name, flags, _OWNER_FILE))

    def create(self, path: Path) -> BinaryIO:
        """As `raw`, buffered: whatever the raw file takes at once, all is written or an error is raised."""
        return cast(BinaryIO, io.BufferedRandom(self.raw(path)))

    def overwrite(self, path: Path, content: bytes) -> None:
        """Put `content` over the start of a file that is there, in one write. Not atomic, not flushed."""
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def flush(self, descriptor: int) -> None:
        """Return once what was written lies on the disk."""
        os.fsync(descriptor)

    def flush_path(self, path: Path) -> int:
        """As `flush`, for a file or folder by name; its size in bytes."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.flush(descriptor)
            return os.fstat(descriptor).st_size
        finally:
            os.close(descriptor)

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; fails if that is taken."""
        os.link(source, target)

    def rename(self, source: Path, target: Path) -> None:
        """Rename; replaces a file, or an empty folder by a folder, and fails on a folder with anything in it."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path) -> None:
        """A folder for its owner alone."""
        path.mkdir(mode=_OWNER_FOLDER)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def chmod(self, path: Path, mode: int) -> None:
        path.chmod(mode)

    def names(self, folder: Path) -> list[str]:
        """Names in a folder. A listing, not a look-up: a network file system may answer a look-up from a cache that
        holds "not there" for a minute."""
        return os.listdir(folder)  # noqa: PTH208

    def free_bytes(self, folder: Path) -> int:
        """What a user without privileges may still write there."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with all that is in it; a link is removed itself, and never followed."""
        if path.is_symlink() or not path.is_dir():
            self.unlink(path)
            return
        for name in self.names(path):
            self.remove(path / name)
        self.rmdir(path)


_active = Filesystem()


def active() -> Filesystem:
    """The one in force."""
    return _active


@contextmanager
def replaced(filesystem: Filesystem) -> Iterator[None]:
    """Put another one in force in this process, in all its threads."""
    global _active
    before, _active = _active, filesystem
    try:
        yield
    finally:
        _active = before
