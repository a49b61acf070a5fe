# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is loaded only if it is exactly what was saved."""

import json
import os

import pytest

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.layout import MANIFEST
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.publish import publish_folder


@pytest.fixture
def ckpt(tmp_path):
    def fill(stage):
        (stage / "model.pt").write_bytes(b"12345")
        (stage / "sub").mkdir()
        (stage / "sub" / "extra.pt").write_bytes(b"123")

    publish_folder(tmp_path / "ckpt_0", fill, {"index": 0})
    return tmp_path / "ckpt_0"


def edit(ckpt, change):
    data = json.loads((ckpt / MANIFEST).read_text())
    change(data)
    (ckpt / MANIFEST).write_text(json.dumps(data))


def test_intact(ckpt):
    assert read_checked(ckpt).files == {"model.pt": 5, "sub/extra.pt": 3}


DAMAGE = {
    "no manifest": (lambda c: (c / MANIFEST).unlink(), "has no manifest.json"),
    "short file": (lambda c: (c / "model.pt").write_bytes(b"1234"), "'model.pt' has 4 bytes, expected 5"),
    "missing file": (
        lambda c: (c / "sub" / "extra.pt").unlink(),
        "'sub/extra.pt' is listed with 3 bytes and is missing",
    ),
    "extra file": (lambda c: (c / "evil.pt").write_bytes(b""), "'evil.pt' is there and the manifest does not list it"),
    "truncated manifest": (lambda c: (c / MANIFEST).write_text('{"schema": "verl'), "is not JSON"),
    "deep manifest": (lambda c: (c / MANIFEST).write_text("[" * 100_000), "is not JSON"),
    "not ours": (lambda c: (c / MANIFEST).write_text('{"a": 1}'), "not of the schema"),
    "list": (lambda c: (c / MANIFEST).write_text("[]"), "not of the schema"),
    "version is no number": (
        lambda c: edit(c, lambda d: d.update(schema_version=True)),
        "schema version True, expected 1",
    ),
    "impossible name": (lambda c: edit(c, lambda d: d["files"].update({"\ud800": 1})), "is not JSON"),
    "endless name": (lambda c: edit(c, lambda d: d["files"].update({"x" * 300: 1})), "is missing"),
    "writable folder": (lambda c: (c / "sub").chmod(0o777), "others may write in 'sub'"),
    "other version": (lambda c: edit(c, lambda d: d.update(schema_version=2)), "schema version 2, expected 1"),
    "no files": (lambda c: edit(c, lambda d: d.pop("files")), "has no field 'files'"),
    "empty files": (lambda c: edit(c, lambda d: d.update(files={})), "lists no files"),
    "about as list": (lambda c: edit(c, lambda d: d.update(about=[])), r"has \[\] in field 'about', expected dict"),
    "size as text": (
        lambda c: edit(c, lambda d: d["files"].update({"model.pt": "5"})),
        "in field 'files', expected int as each value",
    ),
    "escape": (lambda c: edit(c, lambda d: d["files"].update({"../x": 1})), "no plain name inside"),
    "absolute": (lambda c: edit(c, lambda d: d["files"].update({"/etc/passwd": 1})), "no plain name inside"),
    "folder as file": (lambda c: edit(c, lambda d: d["files"].update({"sub": 1})), "'sub' is not a regular file"),
    "manifest is a folder": (lambda c: ((c / MANIFEST).unlink(), (c / MANIFEST).mkdir()), "is not a regular file"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_refused_by_name(ckpt, kind):
    damage, message = DAMAGE[kind]
    damage(ckpt)
    with pytest.raises(DamagedError, match=message) as caught:
        read_checked(ckpt)
    assert str(ckpt) in str(caught.value)


def test_a_linked_file_is_refused(ckpt, tmp_path):
    (tmp_path / "elsewhere").write_bytes(b"12345")
    (ckpt / "model.pt").unlink()
    (ckpt / "model.pt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match="symbolic link"):
        read_checked(ckpt)


def test_a_linked_folder_is_refused(ckpt, tmp_path):
    (tmp_path / "ckpt_1").symlink_to(ckpt)
    with pytest.raises(DamagedError, match="found a symbolic link"):
        read_checked(tmp_path / "ckpt_1")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "ckpt_0").write_bytes(b"")
    with pytest.raises(DamagedError, match="expected a folder.*found a file"):
        read_checked(tmp_path / "ckpt_0")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["model.pt", "sub", MANIFEST, "."])
def test_what_belongs_to_another_user_is_refused(ckpt, name):
    os.chown(ckpt / name, 12345, -1)
    with pytest.raises(DamagedError, match=f"{name}'? belongs to user 12345, expected user 0"):
        read_checked(ckpt)
