# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Opens a directory for artefacts: absolute, owned by this user, writable by no other."""

from __future__ import annotations

import logging
import os
import secrets
import shlex
import stat
from pathlib import Path

from verl.crosscheck.errors import DamagedError, DirectoryError

logger = logging.getLogger(__name__)

PRIVATE_MODE = 0o700


def open_directory(path: str | os.PathLike[str], key: str, *, write: bool = True) -> Path:
    """Return the real, absolute path of a directory that this process owns and can write in; create it if missing.

    `~`, relative paths and symbolic links are resolved here, once. A user who can write in the directory or replace it
    could make this run train on weights and rollouts of their own. So a directory is refused if it belongs to another
    user, if others may write in it, or if it lies below another user's folder in a public place such as /tmp. Owners of
    folders elsewhere are the administrator's choice; a folder above that all may write in without a sticky bit gives a
    warning.

    Args:
        path: as the user typed it.
        key: the configuration key that it came from, for errors.
        write: whether anything will be written there. If not, it must exist, and is left as it is.

    Raises:
        DirectoryError: not creatable, not a directory, not writable, or not safe; says which and what to do.
    """
    other = f"Name another directory with {key}=/path/of/your/own."
    absolute = Path(os.fspath(path))
    try:
        absolute = _resolved(path)
        if write:
            _create(absolute)
        elif not absolute.is_dir():
            raise _Refusal("is no directory, and only what is there can be read")
        _require_safe(absolute, other)
        if write:
            _probe(absolute)
    except _Refusal as refusal:
        reason, advice = refusal.args
        raise DirectoryError(f"{key}={str(path)!r} cannot be used: {absolute} {reason}. {advice or other}") from None
    return absolute


class _Refusal(Exception):
    """The reason why a directory is refused, and advice other than to name another directory."""

    def __init__(self, reason: str, advice: str = "") -> None:
        super().__init__(reason, advice)


def _resolved(path: str | os.PathLike[str]) -> Path:
    expanded = os.path.expanduser(path)  # noqa: PTH111
    if os.fspath(expanded).startswith("~"):
        raise _Refusal("names a user that does not exist here")
    try:
        return Path(os.path.realpath(expanded))
    except OSError as e:
        raise _Refusal(f"cannot be resolved ({e.strerror}): is the working directory still there?") from None
    except ValueError as e:
        raise _Refusal(f"is no path ({e})") from None


def require_own_file(path: Path) -> None:
    """Raise unless `path`, in an opened directory, belongs to this process's user.

    Raises:
        DamagedError: it is somebody else's, who then replaced the directory; or it is gone.
    """
    try:
        owner = path.lstat().st_uid
    except OSError as e:
        raise DamagedError(
            f"{path} was listed and cannot be found ({e.strerror}). Was the exchange directory removed or unmounted?"
        ) from None
    if owner != os.geteuid():
        raise DamagedError(
            f"{path} belongs to user {owner}, expected user {os.geteuid()}. It was not used; start both runs again in "
            "a directory that nobody else can replace"
        )


def _create(directory: Path) -> None:
    try:
        missing = [folder for folder in directory.parents if not folder.exists()]
        for folder in reversed(missing):  # `parents=True` would make these by the umask, maybe writable for all
            folder.mkdir(exist_ok=True, mode=PRIVATE_MODE)
        directory.mkdir(exist_ok=True, mode=PRIVATE_MODE)
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
            f"Type chmod go-w {shlex.quote(str(directory))}. {other}",
        )
    _require_safe_above(directory)


def _require_safe_above(directory: Path) -> None:
    public = ""
    for above in reversed(directory.parents):
        found = above.stat()
        if public and found.st_uid not in (0, os.geteuid()):
            raise _Refusal(
                f"can be replaced by user {found.st_uid}, who owns {above} in {public}, where anybody may make one"
            )
        if found.st_mode & stat.S_IWOTH:
            public = str(above)
            if not found.st_mode & stat.S_ISVTX:
                # Common in containers, where there is no other user; elsewhere somebody should know.
                logger.warning(
                    "%s can be replaced by any user, since %s is writable for all without a sticky bit (chmod +t %s)",
                    directory,
                    above,
                    shlex.quote(str(above)),
                )


def _probe(directory: Path) -> None:
    """Write, list and remove one file: permission bits do not show read-only mounts, quotas or root squash."""
    probe = directory / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"probe")
        listed = probe.name in os.listdir(directory)  # noqa: PTH208
        probe.unlink()
    except OSError as e:
        raise _Refusal(f"is not writable ({e.strerror})") from None
    if not listed:
        raise _Refusal("does not list a file just written there")
