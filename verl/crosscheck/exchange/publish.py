# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The one place where something becomes visible to the other run: all of it, or nothing.

An artefact is prepared under a staging name beside its final one, flushed to the disk, and renamed; the folder that
holds the name is flushed last, or a lost node could forget the rename (a crash would then undo it, never half of it).
A folder is complete only with its manifest, written after every other file was flushed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from verl.crosscheck.errors import PublishError
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.manifest import Manifest


def publish_file(final: Path, write: Callable[[BinaryIO], object], *, replace: bool = False) -> int:
    """Make the file `final` out of what `write` puts into the binary file it is given. Returns its size in bytes.

    Args:
        replace: whether a file already there may be replaced. If not, it is left as it is and this is an error.

    Raises:
        PublishError: `final` exists and may not be replaced.
        OSError, EncodingError: from `write` or the file system. Nothing is left behind in any of these cases.
    """
    stage = layout.staging(final, _writer())
    with _removed_on_error(stage):
        with os.fdopen(os.open(stage, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600), "w+b") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
            size_bytes = os.fstat(file.fileno()).st_size
        if replace:
            stage.replace(final)
        else:
            _rename_new_file(stage, final)
    _flush_folder(final.parent)
    return size_bytes


def publish_folder(final: Path, fill: Callable[[Path], object], about: dict[str, object]) -> int:
    """Make the folder `final` out of the files that `fill` puts into the folder it is given. Returns their bytes.

    `fill` may have other processes write, on any host that shares the file system.

    Args:
        about: plain JSON, kept in the manifest: what the artefact is and what it belongs to.

    Raises:
        PublishError: `final` exists, or `fill` left something that is no regular file, or no file at all.
        Exception: from `fill` or the file system. Nothing is left behind in any of these cases.
    """
    _refuse_existing(final)
    stage = layout.staging(final, _writer())
    with _removed_on_error(stage):
        stage.mkdir(mode=0o700)
        fill(stage)
        sizes = {name: _flush_file(stage / name) for name in _files_below(stage)}
        _close_to_others(stage)
        if layout.MANIFEST in sizes:
            raise PublishError(f"{final} was not published: the save wrote a {layout.MANIFEST} of its own")
        if not sizes:
            raise PublishError(f"{final} was not published: the save returned without an error and wrote no file")
        (stage / layout.MANIFEST).write_text(Manifest.of(about, sizes).to_json(), encoding="utf-8")
        _flush_file(stage / layout.MANIFEST)
        for folder in sorted({stage, *(path for path in stage.rglob("*") if path.is_dir())}):
            _flush_folder(folder)
        _rename_new_folder(stage, final)
    _flush_folder(final.parent)
    return sum(sizes.values())


def _writer() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def _removed_on_error(stage: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            shutil.rmtree(stage) if stage.is_dir() else stage.unlink()
        raise


def _refuse_existing(final: Path) -> None:
    if final.name in os.listdir(final.parent):  # noqa: PTH208  a listing, not a look-up: NFS caches look-ups
        raise PublishError(
            f"{final} already exists and was not made by this run. Either another run in the same mode writes here, "
            "or an earlier one did. Name an empty directory with trainer.share_data_dir=... on both sides"
        )


def _rename_new_file(stage: Path, final: Path) -> None:
    """Rename without replacing: a hard link fails if the name is taken, which a plain rename would not."""
    try:
        os.link(stage, final)
    except FileExistsError:
        if not stage.samefile(final):  # else NFS sent our own link twice, and this answers the second
            _refuse_existing(final)
            raise
        stage.unlink()
    except OSError:  # a file system without hard links: the check and the rename are two steps then
        _refuse_existing(final)
        stage.rename(final)
    else:
        stage.unlink()


def _rename_new_folder(stage: Path, final: Path) -> None:
    try:
        stage.rename(final)  # fails if final is a folder with anything in it, which a published one always has
    except OSError:
        _refuse_existing(final)
        raise


def _files_below(folder: Path) -> list[str]:
    """Names, relative to `folder` and sorted, of the regular files below it."""
    names = []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        if stat.S_ISREG(mode):
            names.append(path.relative_to(folder).as_posix())
        elif not stat.S_ISDIR(mode):
            raise PublishError(f"{path} is neither a file nor a folder; a checkpoint is exchanged as plain files only")
    return names


def _close_to_others(stage: Path) -> None:
    """Take from others what a generous umask of the writing processes gave them; a reader refuses it."""
    for path in stage.rglob("*"):
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            path.chmod(mode & ~(stat.S_IWGRP | stat.S_IWOTH))


def _flush_file(path: Path) -> int:
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return os.fstat(file.fileno()).st_size


def _flush_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
