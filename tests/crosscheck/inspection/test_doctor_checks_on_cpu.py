# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The checks of `verl-crosscheck doctor`: on a good file system, and on file systems that lack one thing each."""

import errno
import fcntl
import os

import pytest

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.filesystem import Filesystem
from verl.crosscheck.inspection.doctor_checks import CheckContext, CheckResult, run_checks


@pytest.fixture
def checks(tmp_path):
    """Verdict and words of every check, on a file system."""

    def checks(disk=None, **context):
        folder = tmp_path / f"bench-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        with filesystem.replaced(disk or Filesystem()):
            return {each.name: each for each in run_checks(CheckContext(folder, ManualClock(), 2_000_000, **context))}

    return checks


def failed(found):
    return {name for name, check in found.items() if check.result is not CheckResult.OK}


def test_a_local_disk_passes(checks):
    found = checks()
    assert failed(found) == set()
    assert found["throughput"].measured["write_bytes_per_s"] > 0
    assert set(found["flush to the disk"].measured) == {"fsync_median_s", "fsync_max_s"}


class NoLinks(Filesystem):
    def link(self, source, target):
        raise OSError(errno.EPERM, "Operation not permitted")


class LinksReplace(Filesystem):
    def link(self, source, target):
        target.unlink(missing_ok=True)
        super().link(source, target)


class NotExclusive(Filesystem):
    def raw(self, path):
        path.touch()
        return open(path, "r+b", buffering=0)  # noqa: PTH123


class FoldersReplace(Filesystem):
    def rename(self, source, target):
        if target.is_dir():
            self.remove(target)
        super().rename(source, target)


class RenameCopies(Filesystem):
    def rename(self, source, target):
        if source.is_dir():
            super().rename(source, target)
        else:
            target.write_bytes(source.read_bytes())


class Stale(Filesystem):
    """Shows new names never."""

    def names(self, folder):
        return []


class LateHeartbeat(Filesystem):
    def overwrite(self, path, content):
        pass


class OthersFiles(Filesystem):
    def raw(self, path):
        file = super().raw(path)
        os.chown(path, 12345, -1)
        return file


class OthersMayWrite(Filesystem):
    def raw(self, path):
        file = super().raw(path)
        path.chmod(0o666)
        return file


class NoFlush(Filesystem):
    def flush(self, descriptor):
        raise OSError(errno.EIO, "Input/output error")


BROKEN = {
    NoLinks: ("hard link", CheckResult.WARNING, "there are none here"),
    LinksReplace: ("hard link", CheckResult.FAILED, "a link took a name that was taken"),
    NotExclusive: ("create, name taken", CheckResult.FAILED, "created a second time"),
    FoldersReplace: ("rename a folder", CheckResult.FAILED, "took the name of another"),
    RenameCopies: ("rename a file", CheckResult.FAILED, "left both"),
    Stale: ("list a folder", CheckResult.FAILED, "was not shown for 5 s"),
    LateHeartbeat: ("write over a file", CheckResult.FAILED, "is not read back"),
    OthersFiles: ("create a file", CheckResult.FAILED, "belongs to user 12345"),
    OthersMayWrite: ("create a file", CheckResult.FAILED, "others may write it"),
    NoFlush: ("flush to the disk", CheckResult.FAILED, "Input/output error"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_what_a_file_system_lacks_is_found(checks, kind):
    if kind is OthersFiles and os.geteuid():
        pytest.skip("only root gives files away")
    name, result, words = BROKEN[kind]
    found = checks(kind())[name]
    assert found.result is result
    assert words in found.found
    assert found.advice


def test_locks_that_do_not_hold_are_a_warning(checks, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    assert "let two in" in checks()["lock"].found

    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    found = checks()["lock"]
    assert (found.result, "No locks available" in found.found) == (CheckResult.WARNING, True)


@pytest.mark.parametrize(
    ("ahead_s", "result"), [(0, CheckResult.OK), (30, CheckResult.OK), (-600, CheckResult.WARNING)]
)
def test_the_clock_of_the_files_is_held_against_this_hosts(checks, tmp_path, ahead_s, result):
    (tmp_path / "now").touch()
    now_s = (tmp_path / "now").stat().st_mtime
    found = checks(wall_s=lambda: now_s - ahead_s)["clock"]
    assert found.result is result
    assert found.measured["skew_s"] == pytest.approx(ahead_s, abs=5)


def test_an_altered_block_is_found(checks, monkeypatch):
    class Altering(Filesystem):
        def flush(self, descriptor):
            if os.fstat(descriptor).st_size > 1_000_000:
                os.pwrite(descriptor, b"?", 1_000_000)

    assert "came back altered" in checks(Altering())["throughput"].found


# ---------------------------------------------------------------- the command
