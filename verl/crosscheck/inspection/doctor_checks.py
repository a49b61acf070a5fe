# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Try out each operation that the exchange needs of a file system, once. Called by `verl-crosscheck doctor`.

The checks work in a scratch folder with a staging name, which runs ignore, and make the same calls as the exchange.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from verl.crosscheck.clock import Clock
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.text import data_size, duration

FLUSHES = 20
LISTING_DEADLINE_S = 5.0
SKEW_LIMIT_S = 60.0
SLOW_FLUSH_S = 0.5
FEW_INODES = 10_000
_BLOCK_BYTES = 1 << 20


class CheckResult(str, Enum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"
    """Works, and something is worth knowing."""
    FAILED = "failed"
    """Two runs cannot rely on this directory."""


@dataclass(frozen=True)
class Check:
    """A check that was made.

    Args:
        found: what was found, in words.
        advice: what to do; may be empty.
        measured: numbers by name, units in the names.
    """

    name: str
    result: CheckResult = field(metadata={"key": "verdict"})
    found: str
    advice: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckContext:
    """What a check works with.

    Args:
        folder: the scratch folder.
        size_bytes: of the file that is written and read for the throughput.
        wall_s: this host's wall clock.
    """

    folder: Path
    clock: Clock
    size_bytes: int
    wall_s: Callable[[], float] = time.time


class _Broken(Exception):
    """A check failed: what was found, and what to do."""


_Outcome = tuple[CheckResult, str, str, dict[str, float]]
"""Result, what was found, advice, numbers."""


def _ok(found: str, **measured: float) -> _Outcome:
    return CheckResult.OK, found, "", measured


def _warning(found: str, advice: str, **measured: float) -> _Outcome:
    return CheckResult.WARNING, found, advice, measured


@contextmanager
def scratch(places: Layout) -> Iterator[Path]:
    """Yield a new folder that runs ignore; remove it afterwards, also after an error."""
    disk = filesystem.active()
    folder = layout.staging(places.doctor, f"{os.getpid()}-{secrets.token_hex(4)}")
    disk.mkdir(folder)
    try:
        yield folder
    finally:
        with suppress(OSError):
            disk.remove(folder)


def file_clock_s(folder: Path) -> float:
    """Return the time of the file system's clock: the modification time of a file written now.

    Raises:
        OSError: the file system's own.
    """
    path = folder / f"now-{secrets.token_hex(4)}"
    with filesystem.active().create(path) as file:
        file.write(b"now")
        file.flush()
    return path.lstat().st_mtime


def run_checks(context: CheckContext) -> Iterator[Check]:
    """Yield each check of the file system as soon as it is done."""
    for name, check in _CHECKS.items():
        try:
            result, found, advice, measured = check(context)
        except _Broken as broken:
            found, advice = broken.args
            yield Check(name, CheckResult.FAILED, found, advice)
        except OSError as e:
            yield Check(name, CheckResult.FAILED, _reason(e), "Ask who runs this file system; the exchange needs it")
        else:
            yield Check(name, result, found, advice, measured)


def _create(context: CheckContext) -> _Outcome:
    path = context.folder / "created"
    start_s = context.clock.monotonic_s()
    _write(path, b"one")
    took_s = context.clock.monotonic_s() - start_s
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.geteuid():
        raise _Broken(
            f"the file belongs to user {found.st_uid}, and this process runs as user {os.geteuid()}",
            "The server maps users (root_squash?), and runs refuse files of others: run as a user that it knows",
        )
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _Broken(
            f"a file made with mode 600 has mode {mode:o}, so others may write it",
            "Mount it with Unix modes, or with file_mode=0600,dir_mode=0700",
        )
    if mode != 0o600:
        return _warning(f"a file made with mode 600 has mode {mode:o}: others may read it", "", create_s=took_s)
    return _ok(f"{_ms(took_s)}; owner and mode are kept", create_s=took_s)


def _exclusive(context: CheckContext) -> _Outcome:
    path = context.folder / "exclusive"
    _write(path, b"one")
    try:
        filesystem.active().raw(path).close()
    except FileExistsError:
        return _ok("a name that is taken is refused")
    raise _Broken(
        "a name that is taken was created a second time", "Two runs could overwrite each other: do not use it"
    )


def _rename_file(context: CheckContext) -> _Outcome:
    old, new = context.folder / "old", context.folder / "new"
    _write(old, b"one")
    _write(new, b"two")
    filesystem.active().rename(old, new)
    if new.read_bytes() != b"one" or old.name in filesystem.active().names(context.folder):
        raise _Broken(
            "a file renamed over another left both, or the wrong one", "Progress would be lost: do not use it"
        )
    return _ok("replaces another at once")


def _rename_folder(context: CheckContext) -> _Outcome:
    disk = filesystem.active()
    folders = [context.folder / name for name in ("folder-1", "folder-2", "folder-3")]
    for folder in folders[:2]:
        disk.mkdir(folder)
        _write(folder / "file", folder.name.encode())
    disk.rename(folders[0], folders[2])
    try:
        disk.rename(folders[1], folders[2])
    except OSError:
        return _ok("a name that is taken is refused")
    raise _Broken("a folder took the name of another that was full", "Two runs could take one place: do not use it")


def _link(context: CheckContext) -> _Outcome:
    disk = filesystem.active()
    one, two, name = (context.folder / each for each in ("link-1", "link-2", "link-name"))
    _write(one, b"one")
    _write(two, b"two")
    try:
        disk.link(one, name)
    except OSError as e:
        if e.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EOPNOTSUPP):
            raise
        return _warning(
            f"there are none here ({_reason(e)})",
            "Files are published with a look and a rename instead: never start two runs of one mode at the same moment",
        )
    with suppress(FileExistsError):
        disk.link(two, name)
        raise _Broken("a link took a name that was taken", "Two runs could overwrite each other: do not use it")
    return _ok("a name that is taken is refused")


def _listing(context: CheckContext) -> _Outcome:
    path = context.folder / "listed"
    filesystem.active().names(context.folder)  # what a cache would remember
    _write(path, b"one")
    appeared_s = _until(context, lambda names: path.name in names, "a new file")
    filesystem.active().unlink(path)
    _until(context, lambda names: path.name not in names, "the end of a file")
    return _ok(f"shows a new name after {_ms(appeared_s)}, on this host", listing_s=appeared_s)


def _until(context: CheckContext, seen: Callable[[list[str]], bool], what: str) -> float:
    start_s = context.clock.monotonic_s()
    while not seen(filesystem.active().names(context.folder)):
        if context.clock.monotonic_s() - start_s > LISTING_DEADLINE_S:
            raise _Broken(
                f"{what} was not shown for {LISTING_DEADLINE_S:.0f} s, on the very host that made it",
                "Mount without caching of folders (nfs: noac or lookupcache=none)",
            )
        context.clock.sleep(0.005)
    return context.clock.monotonic_s() - start_s


def _overwrite(context: CheckContext) -> _Outcome:
    path = context.folder / "heartbeat"
    _write(path, b"%020d\n" % 0)
    with path.open("rb") as reader:
        reader.read()
        filesystem.active().overwrite(path, b"%020d\n" % 1)
    if path.read_bytes() != b"%020d\n" % 1:
        raise _Broken("what was written over a file is not read back", "A run would seem dead: mount without caching")
    return _ok("is read back, as a heartbeat needs")


def _flush(context: CheckContext) -> _Outcome:
    disk, seconds = filesystem.active(), []
    with disk.create(context.folder / "flushed") as file:
        for _ in range(FLUSHES):
            file.write(b"x" * 4096)
            file.flush()
            start_s = context.clock.monotonic_s()
            disk.flush(file.fileno())
            seconds.append(context.clock.monotonic_s() - start_s)
    disk.flush_path(context.folder)
    median_s = statistics.median(seconds)
    found = f"{_ms(median_s)} in the middle of {FLUSHES}, {_ms(max(seconds))} at most"
    measured = {"fsync_median_s": median_s, "fsync_max_s": max(seconds)}
    if median_s > SLOW_FLUSH_S:
        return _warning(found, "Slow: each step waits for a few of these; take a faster file system", **measured)
    return _ok(found, **measured)


def _lock(context: CheckContext) -> _Outcome:
    path = context.folder / "locked"
    _write(path, b"one")
    without = "The exchange does not need locks; other tools in this directory may"
    with path.open("r+b") as one, path.open("r+b") as other:
        try:
            fcntl.flock(one, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            return _warning(f"flock is refused ({_reason(e)})", without)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return _ok("flock holds a second one off")
        return _warning("flock let two in at once", without)


def _clock(context: CheckContext) -> _Outcome:
    before_s = context.wall_s()
    file_s = file_clock_s(context.folder)
    skew_s = file_s - (before_s + context.wall_s()) / 2
    if abs(skew_s) < 1:
        return _ok("file times and this host's clock agree within a second", skew_s=skew_s)
    ahead = "ahead of" if skew_s > 0 else "behind"
    found = f"file times are {duration(abs(skew_s))} {ahead} this host's clock"
    if abs(skew_s) > SKEW_LIMIT_S:
        return _warning(found, "Runs do not mind; ages that `status` shows are off by this. Start NTP", skew_s=skew_s)
    return _ok(found, skew_s=skew_s)


def _throughput(context: CheckContext) -> _Outcome:
    path, disk, clock = context.folder / "large", filesystem.active(), context.clock
    block = os.urandom(_BLOCK_BYTES)
    blocks = max(context.size_bytes // _BLOCK_BYTES, 1)
    start_s = clock.monotonic_s()
    with disk.create(path) as file:
        for number in range(blocks):
            file.write(number.to_bytes(8, "little"))
            file.write(block[8:])
        file.flush()
        disk.flush(file.fileno())
        write_s = clock.monotonic_s() - start_s
        with suppress(OSError):
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    start_s = clock.monotonic_s()
    with path.open("rb", buffering=0) as reader:
        for number in range(blocks):
            if reader.read(_BLOCK_BYTES) != number.to_bytes(8, "little") + block[8:]:
                raise _Broken(f"block {number} of {blocks} came back altered", "This file system loses data")
    read_s = clock.monotonic_s() - start_s
    disk.unlink(path)
    size_bytes = blocks * _BLOCK_BYTES
    rates = {"write_bytes_per_s": size_bytes / max(write_s, 1e-9), "read_bytes_per_s": size_bytes / max(read_s, 1e-9)}
    return _ok(
        f"{data_size(rates['write_bytes_per_s'])}/s written and flushed, {data_size(rates['read_bytes_per_s'])}/s read "
        f"({data_size(size_bytes)})",
        **rates,
    )


def _inodes(context: CheckContext) -> _Outcome:
    found = os.statvfs(context.folder)
    if not found.f_files:
        return _ok("not counted here")
    free, text = float(found.f_favail), f"{found.f_favail:,} more files can be made"
    if found.f_favail < FEW_INODES:
        return _warning(text, "Delete small files there: a step makes some tens", free_inodes=free)
    return _ok(text, free_inodes=free)


_CHECKS: dict[str, Callable[[CheckContext], _Outcome]] = {
    "create a file": _create,
    "create, name taken": _exclusive,
    "rename a file": _rename_file,
    "rename a folder": _rename_folder,
    "hard link": _link,
    "list a folder": _listing,
    "write over a file": _overwrite,
    "flush to the disk": _flush,
    "lock": _lock,
    "clock": _clock,
    "throughput": _throughput,
    "inodes": _inodes,
}


def _write(path: Path, content: bytes) -> None:
    with filesystem.active().create(path) as file:
        file.write(content)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else duration(seconds)


def _reason(error: OSError) -> str:
    return error.strerror or str(error)
