# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The only module that makes files visible to the other run: complete, or not at all.

An artefact is prepared under a staging name beside its final one, flushed to the disk, and renamed; the folder that
holds the name is flushed last, or a lost node could forget the rename (a crash would then undo it, never half of it).
A folder is complete only with its manifest, which is written after every other file was flushed. What is deleted is
renamed to a staging name first, so that no reader sees half of it either.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from verl.crosscheck.errors import PublishError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.documents import Document, plain
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.exchange.manifest import Manifest


def publish_file(
    final: Path, write: Callable[[BinaryIO], object], *, replace: bool = False, durable: bool = True
) -> int:
    """Make the file `final` from what `write` puts into the binary file it is given. Return its size in bytes.

    Args:
        replace: whether an existing file may be replaced. If not, it stays as it is and this is an error.
        durable: whether the file must survive a lost node. A reader sees all of it or nothing in either case.

    Raises:
        PublishError: `final` exists and may not be replaced.
        OSError, EncodingError: from `write` or the file system. Nothing is left behind in any of these cases.
    """
    disk = filesystem.active()
    stage = layout.staging(final, _writer())
    with _removed_on_error(stage):
        size_bytes = _write(stage, write, durable=durable)
        if replace:
            disk.rename(stage, final)
        else:
            _rename_new_file(stage, final)
    if durable:
        disk.flush_path(final.parent)
    return size_bytes


def publish_json(final: Path, document: Mapping[str, Any], *, replace: bool, durable: bool = True) -> None:
    """Make the small file `final` from plain JSON.

    Args:
        durable: see `publish_file`.

    Raises:
        PublishError: `final` exists and may not be replaced.
        OSError: the file system's own.
    """
    # A path or a message may hold surrogates, which UTF-8 cannot: an end must be written all the same.
    content = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False).encode(errors="replace") + b"\n"
    publish_file(final, lambda file: file.write(content), replace=replace, durable=durable)


def publish_document(final: Path, document: Document, *, replace: bool, durable: bool = True) -> None:
    """Make the small file `final` from a document. Raises as `publish_json`."""
    publish_json(final, plain(document), replace=replace, durable=durable)


def publish_folder(final: Path, fill: Callable[[Path], object], about: dict[str, object]) -> int:
    """Make the folder `final` from the files that `fill` puts into the folder it is given. Return their bytes.

    `fill` may have other processes write, on any host that shares the file system.

    Args:
        about: plain JSON for the manifest: what the artefact is and what it belongs to.

    Raises:
        PublishError: `final` exists, or `fill` left something that is no regular file, or no file at all.
        Exception: from `fill` or the file system. Nothing is left behind in any of these cases.
    """
    disk = filesystem.active()
    _refuse_existing(final)
    stage = layout.staging(final, _writer())
    with _removed_on_error(stage):
        disk.mkdir(stage)
        fill(stage)
        sizes = {name: disk.flush_path(stage / name) for name in _files_below(stage)}
        _close_to_others(stage)
        if layout.MANIFEST in sizes:
            raise PublishError(f"{final} was not published: the save wrote a {layout.MANIFEST} of its own")
        if not sizes:
            raise PublishError(f"{final} was not published: the save returned without an error and wrote no file")
        manifest = json.dumps(plain(Manifest(about, sizes)), indent=1, ensure_ascii=False).encode()
        _write(stage / layout.MANIFEST, lambda file: file.write(manifest))
        for folder in sorted({stage, *(path for path in stage.rglob("*") if path.is_dir())}):
            disk.flush_path(folder)
        rename_new_folder(stage, final)
    disk.flush_path(final.parent)
    return sum(sizes.values())


def discard(path: Path) -> None:
    """Delete an artefact; readers lose it at once and as a whole. A missing one is not an error.

    Raises:
        OSError: the file system's own; what is left has a staging name.
    """
    disk = filesystem.active()
    aside = layout.staging(path, _writer())
    try:
        disk.rename(path, aside)
    except FileNotFoundError:
        return
    disk.remove(aside)


def sweep(folder: Path, kind: ArtefactKind) -> None:
    """Remove staged artefacts of `kind` that a crash left behind.

    Only for the one run that writes that kind, before it writes any.
    """
    disk = filesystem.active()
    for name in layout.staged_of_kind(disk.names(folder), kind):
        # Renamed first: a run that was counted as dead and continues could else publish the half that is left.
        aside = layout.staging(folder / f"{kind}_swept", _writer())
        with suppress(FileNotFoundError):
            disk.rename(folder / name, aside)
            disk.remove(aside)


def _write(path: Path, write: Callable[[BinaryIO], object], *, durable: bool = True) -> int:
    """Make a file under its staging name. Return its size in bytes."""
    disk = filesystem.active()
    with disk.create(path) as file:
        write(file)
        file.flush()
        if durable:
            disk.flush(file.fileno())
        return os.fstat(file.fileno()).st_size


def _writer() -> str:
    return f"{os.getpid()}-{secrets.token_hex(4)}"


@contextmanager
def _removed_on_error(stage: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            filesystem.active().remove(stage)
        raise


def _refuse_existing(final: Path) -> None:
    if final.name in filesystem.active().names(final.parent):
        raise _taken(final)


def _taken(final: Path) -> PublishError:
    return PublishError(
        f"{final} already exists and was not made by this run. Another run in the same mode writes here: end one "
        "of them, or name an empty directory with trainer.share_data_dir=... on both sides of one pair"
    )


def _rename_new_file(stage: Path, final: Path) -> None:
    """Rename without replacing: a hard link fails if the name is taken, which a plain rename would not."""
    disk = filesystem.active()
    try:
        disk.link(stage, final)
    except FileExistsError:
        if not stage.samefile(final):  # else NFS sent our own link twice, and this answers the second
            raise _taken(final) from None
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        _refuse_existing(final)  # a file system without hard links: the check and the rename are two steps then
        disk.rename(stage, final)
        return
    disk.unlink(stage)


_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP)


_FOLDER_TAKEN = (errno.EEXIST, errno.ENOTEMPTY)


def rename_new_folder(stage: Path, final: Path) -> None:
    """Give a filled folder its final name, unless that is taken.

    Raises:
        PublishError: it is taken by a folder with anything in it, which one published this way always has.
        OSError: the file system's own.
    """
    try:
        filesystem.active().rename(stage, final)
    except OSError as e:
        if e.errno in _FOLDER_TAKEN:  # whatever a listing of a minute ago says
            raise _taken(final) from None
        _refuse_existing(final)
        raise


def _files_below(folder: Path) -> list[str]:
    """Return the names of the regular files below `folder`, relative to it and sorted."""
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
            filesystem.active().chmod(path, mode & ~(stat.S_IWGRP | stat.S_IWOTH))
