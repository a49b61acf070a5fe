# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which directories are used, and what the others are told."""

import os
from pathlib import Path

import pytest

from verl.crosscheck.errors import DirectoryError
from verl.crosscheck.exchange.directory import open_directory

KEY = "trainer.share_data_dir"


def test_it_is_made_for_its_owner_alone(tmp_path):
    made = open_directory(tmp_path / "a" / "b", KEY)
    assert made == tmp_path / "a" / "b"
    assert made.stat().st_mode & 0o777 == 0o700
    assert list(made.iterdir()) == []


@pytest.mark.parametrize("name", ["plain", "with space", "umlaut-\u00e4-\u4e2d\u6587"])
def test_relative_paths_and_any_characters(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    assert open_directory(name, KEY) == tmp_path / name
    monkeypatch.setenv("HOME", str(tmp_path))
    assert open_directory(f"~/{name}", KEY) == tmp_path / name


def test_a_file_is_refused(tmp_path):
    (tmp_path / "x").touch()
    with pytest.raises(DirectoryError, match=f"{KEY}=.*x is a file, expected a directory"):
        open_directory(tmp_path / "x", KEY)
    with pytest.raises(DirectoryError, match="lies below a file"):
        open_directory(tmp_path / "x" / "y", KEY)


def test_what_cannot_be_created_is_refused():
    with pytest.raises(DirectoryError, match=r"/proc/none cannot be created"):
        open_directory("/proc/none", KEY)


def test_what_others_may_write_is_refused(tmp_path):
    tmp_path.chmod(0o770)
    with pytest.raises(DirectoryError, match=r"written by other users \(mode 770\).*Type chmod go-w"):
        open_directory(tmp_path, KEY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_what_belongs_to_somebody_else_is_refused(tmp_path):
    os.chown(tmp_path, 12345, -1)
    with pytest.raises(DirectoryError, match="belongs to user 12345, this process runs as user 0"):
        open_directory(tmp_path, KEY)


def test_what_anybody_can_replace_is_warned_of(tmp_path, caplog):
    tmp_path.chmod(0o777)
    assert open_directory(tmp_path / "share", KEY) == tmp_path / "share"
    assert f"can be replaced by any user, since {tmp_path} is writable for all" in caplog.text
    caplog.clear()
    tmp_path.chmod(0o1777)
    open_directory(tmp_path / "share", KEY)
    assert caplog.text == ""


def test_an_impossible_name_is_refused():
    with pytest.raises(DirectoryError, match="is no path"):
        open_directory("a\0b", KEY)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_what_somebody_else_made_in_a_public_place_is_refused(tmp_path):
    public, theirs = tmp_path / "public", tmp_path / "public" / "verl"
    theirs.mkdir(parents=True)
    public.chmod(0o1777)
    assert open_directory(theirs / "share", KEY)
    os.chown(theirs, 12345, -1)
    with pytest.raises(DirectoryError, match=f"can be replaced by user 12345, who owns {theirs}"):
        open_directory(theirs / "share", KEY)


def test_folders_on_the_way_are_made_for_their_owner_alone(tmp_path):
    before = os.umask(0)
    try:
        open_directory(tmp_path / "a" / "b" / "c", KEY)
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700


def test_what_cannot_be_resolved_is_refused(tmp_path, monkeypatch):
    with pytest.raises(DirectoryError, match="names a user that does not exist here"):
        open_directory("~nosuchuser/share", KEY)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(DirectoryError, match="is the working directory still there"):
        open_directory("share", KEY)


def test_a_link_is_followed_once(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert open_directory(tmp_path / "link" / "share", KEY) == tmp_path / "real" / "share"


def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch):
    def read_only(self, data):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Path, "write_bytes", read_only)
    with pytest.raises(DirectoryError, match=r"is not writable \(Read-only file system\)"):
        open_directory(tmp_path / "new", KEY)
