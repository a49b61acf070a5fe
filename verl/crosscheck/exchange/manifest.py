# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The manifest of a checkpoint folder: every file with its size, and what the checkpoint belongs to."""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.documents import Count, Document, NotADocumentError, parse_document


class Manifest(Document, frozen=True):
    """What a complete checkpoint folder holds.

    Args:
        about: what the checkpoint is and what it belongs to.
        files: sizes in bytes by names relative to the folder, with forward slashes.
    """

    SCHEMA: ClassVar[str] = "verl-crosscheck/ckpt"

    about: dict[str, Any]
    files: dict[str, Count]


def read_checked(folder: Path) -> Manifest:
    """Return the manifest of `folder` after every listed file was found with its size and this process's owner.

    Upstream's native checkpoints are unpickled by its workers, so a file of another user must never be
    reached: names may not leave the folder, and neither links nor unlisted files are accepted.

    Raises:
        DamagedError: no manifest, one of another kind, or files that are not as listed. Names the first one.
    """
    if not folder.is_dir() or folder.is_symlink():
        raise _damaged(folder, f"expected a folder with a {layout.MANIFEST}, found {_kind(folder)}")
    manifest = read_manifest(folder)
    _require_own(folder)
    for name, size_bytes in manifest.files.items():
        _check_file(folder, name, size_bytes)
    found = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if not p.is_dir() or p.is_symlink()}
    unlisted = sorted(found - manifest.files.keys() - {layout.MANIFEST})
    if unlisted:
        raise _damaged(folder, f"{unlisted[0]!r} is there and the manifest does not list it")
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """Return the manifest of `folder` without comparing it with the files.

    Raises:
        DamagedError: see `read_checked`.
    """
    path = folder / layout.MANIFEST
    try:
        manifest = parse_document(path, Manifest)
    except FileNotFoundError:
        raise _damaged(folder, f"it has no {path.name}, so its save was never completed") from None
    except NotADocumentError as e:
        raise _damaged(folder, f"{path.name} {e}") from None
    if not manifest.files:
        raise _damaged(folder, f"{path.name} lists no files")
    return manifest


def _check_file(folder: Path, name: str, size_bytes: int) -> None:
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or "\0" in name or name != pure.as_posix():
        raise _damaged(folder, f"the manifest lists {name!r}, which is no plain name inside the folder")
    path = folder
    for part in pure.parts:
        path /= part
        if _is_link(path):
            raise _damaged(folder, f"{name!r} is reached through a symbolic link")
    try:
        found = path.lstat()
    except (OSError, ValueError):  # ValueError: no file can have such a name
        raise _damaged(folder, f"{name!r} is listed with {size_bytes} bytes and is missing") from None
    if not stat.S_ISREG(found.st_mode):
        raise _damaged(folder, f"{name!r} is not a regular file")
    if found.st_size != size_bytes:
        raise _damaged(folder, f"{name!r} has {found.st_size} bytes, expected {size_bytes}")


def _require_own(folder: Path) -> None:
    """Raise unless all of it belongs to this process's user, and only that user may write in its folders."""
    for path in (folder, *sorted(folder.rglob("*"))):
        found = path.lstat()
        name = "." if path == folder else path.relative_to(folder).as_posix()
        if found.st_uid != os.geteuid():
            raise _damaged(folder, f"{name!r} belongs to user {found.st_uid}, expected user {os.geteuid()}")
        if stat.S_ISDIR(found.st_mode) and found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise _damaged(folder, f"others may write in {name!r} (mode {stat.S_IMODE(found.st_mode):o})")


def _is_link(path: Path) -> bool:
    try:
        return path.is_symlink()
    except (OSError, ValueError):
        return False


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a symbolic link"
    return "a file" if path.exists() else "nothing"


def _damaged(folder: Path, reason: str) -> DamagedError:
    return DamagedError(f"checkpoint {folder} is damaged: {reason}. It was not loaded")
