# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Opens a directory for artefacts: absolute, owner-only, and ours."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path

from verl.crosscheck.errors import DirectoryError

PRIVATE_MODE = 0o700


def open_directory(path: str | os.PathLike[str], key: str) -> Path:
    """The real, absolute path of a directory that this process owns and can write in; created for its owner alone.

    `~`, relative paths and symbolic links are resolved here, once. Whoever else can write in the directory, or put
    another in its place, could feed this run weights and rollouts of their own: a directory of another user, one that
    others may write in, and one below a folder in which anybody may rename it are refused. Owners of the folders above
    it are trusted.

    Args:
        path: as the user typed it.
        key: the configuration key it came from, named in errors.

    Raises:
        DirectoryError: not creatable, not a directory, not writable, or not safe; says which and what to do.
    """
    other = f"Name another directory with {key}=/path/of/your/own."
    absolute = Path(os.path.realpath(os.path.expanduser(path)))  # noqa: PTH111
    try:
        _create(absolute)
        _require_safe(absolute, other)
        _probe(absolute)
    except _Refusal as refusal:
        reason, advice = refusal.args
        raise DirectoryError(f"{key}={str(path)!r} cannot be used: {absolute} {reason}. {advice or other}") from None
    return absolute


class _Refusal(Exception):
    """Why a directory is refused, and what to do about it if not naming another one."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason, advice)


def _create(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=PRIVATE_MODE)
    except FileExistsError:
        raise _Refusal("is a file, expected a directory") from None
    except NotADirectoryError:
        raise _Refusal("lies below a file, expected directories all the way") from None
    except OSError as e:
        raise _Refusal(f"cannot be created ({e.strerror})") from None


def _require_safe(directory: Path, other: str) -> None:
    found = directory.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise _Refusal(f"belongs to user {found.st_uid}, this process runs as user {os.geteuid()}")
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Refusal(
            f"can be written by other users (mode {mode:o}), and what lies there is trained on",
            f"Type chmod go-w '{directory}'. {other}",
        )
    for above in directory.parents:
        mode = above.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise _Refusal(f"can be replaced by any user, since {above} is writable for all without a sticky bit")


def _probe(directory: Path) -> None:
    """Write, list and remove one file. Permission bits do not tell about read-only mounts, quotas or root squash."""
    probe = directory / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"probe")
        listed = probe.name in os.listdir(directory)  # noqa: PTH208
        probe.unlink()
    except OSError as e:
        raise _Refusal(f"is not writable ({e.strerror})") from None
    if not listed:
        raise _Refusal("does not list a file just written there")
