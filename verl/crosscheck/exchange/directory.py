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
    """The absolute path of a directory that this process owns and can write in; created for its owner alone.

    `~` and relative paths are resolved here, against this process. A symbolic link is followed and what it names is
    judged. Whoever else can write in the directory could feed this run weights and rollouts of their own, so a
    directory of another user, or one that others may write in, is refused.

    Args:
        path: as the user typed it.
        key: the configuration key it came from, named in errors.

    Raises:
        DirectoryError: not creatable, not a directory, not writable, or not safe; says which and what to do.
    """
    absolute = Path(os.path.abspath(os.path.expanduser(path)))  # noqa: PTH100, PTH111  no symlink resolution wanted

    def refuse(reason: str, advice: str) -> DirectoryError:
        return DirectoryError(f"{key}={str(path)!r} cannot be used: {absolute} {reason}. {advice}")

    other = f"Name another directory with {key}=/path/of/your/own."
    try:
        absolute.mkdir(parents=True, exist_ok=True, mode=PRIVATE_MODE)
    except FileExistsError:
        raise refuse("is a file, expected a directory", other) from None
    except NotADirectoryError:
        raise refuse("lies below a file, expected directories all the way", other) from None
    except OSError as e:
        raise refuse(f"cannot be created ({e.strerror})", other) from e
    found = absolute.stat()
    if found.st_uid != os.geteuid():
        raise refuse(f"belongs to user {found.st_uid}, this process runs as user {os.geteuid()}", other)
    if stat.S_IMODE(found.st_mode) & (stat.S_IWGRP | stat.S_IWOTH):
        raise refuse(
            f"can be written by other users (mode {stat.S_IMODE(found.st_mode):o}), and what lies there is trained on",
            f"Type chmod go-w {absolute}",
        )
    _probe(absolute, refuse, other)
    return absolute


def _probe(directory: Path, refuse, advice: str) -> None:  # type: ignore[no-untyped-def]
    """Write, list and remove one file. Permission bits do not tell about read-only mounts, quotas or root squash."""
    probe = directory / f".probe-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        probe.write_bytes(b"probe")
        listed = probe.name in os.listdir(directory)  # noqa: PTH208
        probe.unlink()
    except OSError as e:
        raise refuse(f"is not writable ({e.strerror})", advice) from e
    if not listed:
        raise refuse("does not list a file just written there", advice)
