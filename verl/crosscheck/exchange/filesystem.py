# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every change that the exchange makes on a disk, and every listing it reads; one method per system call.

Tests replace it by one that kills the process at the n-th call, fails with EIO, writes short, or shows a listing of a
minute ago (`scripts/torture`). What upstream writes into a checkpoint's folder does not pass through here.
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
    """The real file system. Errors are the operating system's own."""

    def raw(self, path: Path) -> io.FileIO:
        """Return a new file, for its owner alone, open for writing and reading. Raise if the name is taken."""
        return io.FileIO(path, "x+b", opener=lambda name, flags: os.open(name, flags, _OWNER_FILE))

    def create(self, path: Path) -> BinaryIO:
        """Return a new file as `raw` does, with a buffer: all is written, or an error is raised."""
        return cast(BinaryIO, io.BufferedRandom(self.raw(path)))

    def overwrite(self, path: Path, content: bytes) -> None:
        """Overwrite the start of an existing file in one write. Not atomic, not flushed."""
        descriptor = os.open(path, os.O_WRONLY)
        try:
            os.pwrite(descriptor, content, 0)
        finally:
            os.close(descriptor)

    def flush(self, descriptor: int) -> None:
        """Return when what was written is on the disk."""
        os.fsync(descriptor)

    def flush_path(self, path: Path) -> int:
        """Do as `flush`, for a file or folder by name. Return its size in bytes."""
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
        """Rename. Replaces a file, and an empty folder by a folder; raises if the target is a folder with entries."""
        source.rename(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def mkdir(self, path: Path) -> None:
        """Make a folder for its owner alone."""
        path.mkdir(mode=_OWNER_FOLDER)

    def rmdir(self, path: Path) -> None:
        path.rmdir()

    def chmod(self, path: Path, mode: int) -> None:
        path.chmod(mode)

    def names(self, folder: Path) -> list[str]:
        """Return the names in a folder. A listing, not a look-up: a network file system may cache a failed look-up for
        a minute."""
        return os.listdir(folder)  # noqa: PTH208

    def free_bytes(self, folder: Path) -> int:
        """Return the bytes that a user without privileges may still write there."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize

    def remove(self, path: Path) -> None:
        """Remove a file, or a folder with its content; a link is removed itself and never followed."""
        if path.is_symlink() or not path.is_dir():
            self.unlink(path)
            return
        for name in self.names(path):
            self.remove(path / name)
        self.rmdir(path)


_active = Filesystem()


def active() -> Filesystem:
    """Return the file system in use."""
    return _active


@contextmanager
def replaced(filesystem: Filesystem) -> Iterator[None]:
    """Use another file system in this process, in all its threads."""
    global _active
    before, _active = _active, filesystem
    try:
        yield
    finally:
        _active = before
