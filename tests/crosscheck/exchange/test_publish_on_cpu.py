# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Publishing: all of an artefact or nothing of it, whatever goes wrong."""

import os
from pathlib import Path

import pytest

from verl.crosscheck.errors import PublishError
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.publish import publish_file, publish_folder


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_a_file_appears_whole_and_alone(tmp_path):
    size_bytes = publish_file(tmp_path / "rollout_0", lambda f: f.write(b"abc"))
    assert size_bytes == 3
    assert (tmp_path / "rollout_0").read_bytes() == b"abc"
    assert names(tmp_path) == ["rollout_0"]
    assert (tmp_path / "rollout_0").stat().st_mode & 0o777 == 0o600


def test_nothing_has_the_final_name_while_it_is_written(tmp_path):
    def write(file):
        file.write(b"half")
        file.flush()
        seen = names(tmp_path)
        assert len(seen) == 1
        assert seen[0].startswith(layout.STAGING_PREFIX)

    publish_file(tmp_path / "rollout_0", write)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_nothing(tmp_path, error):
    def write(file):
        file.write(b"half")
        raise error

    with pytest.raises(type(error)):
        publish_file(tmp_path / "rollout_0", write)
    assert names(tmp_path) == []


def test_a_taken_name_is_refused_and_kept(tmp_path):
    publish_file(tmp_path / "rollout_0", lambda f: f.write(b"first"))
    with pytest.raises(PublishError, match=r"rollout_0 already exists.*share_data_dir"):
        publish_file(tmp_path / "rollout_0", lambda f: f.write(b"second"))
    assert (tmp_path / "rollout_0").read_bytes() == b"first"
    assert names(tmp_path) == ["rollout_0"]


def test_a_taken_name_is_refused_without_hard_links(tmp_path, monkeypatch):
    def no_link(source, target):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", no_link)
    publish_file(tmp_path / "rollout_0", lambda f: f.write(b"first"))
    with pytest.raises(PublishError, match="already exists"):
        publish_file(tmp_path / "rollout_0", lambda f: f.write(b"second"))
    assert (tmp_path / "rollout_0").read_bytes() == b"first"


def test_a_link_that_nfs_sent_twice_is_a_success(tmp_path, monkeypatch):
    link = os.link

    def sent_twice(source, target):
        link(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", sent_twice)
    publish_file(tmp_path / "rollout_0", lambda f: f.write(b"mine"))
    assert names(tmp_path) == ["rollout_0"]
    assert (tmp_path / "rollout_0").read_bytes() == b"mine"


def test_a_foreign_file_is_no_success_however_many_links_there_are(tmp_path):
    (tmp_path / "rollout_0").write_bytes(b"foreign")

    def write(file):
        stage = next(path for path in tmp_path.iterdir() if path.name.startswith(layout.STAGING_PREFIX))
        os.link(stage, tmp_path / "copy")  # as a backup tool makes

    with pytest.raises(PublishError, match="already exists"):
        publish_file(tmp_path / "rollout_0", write)
    assert (tmp_path / "rollout_0").read_bytes() == b"foreign"


def test_replace_replaces(tmp_path):
    publish_file(tmp_path / "x", lambda f: f.write(b"first"))
    publish_file(tmp_path / "x", lambda f: f.write(b"second"), replace=True)
    assert (tmp_path / "x").read_bytes() == b"second"
    assert names(tmp_path) == ["x"]


def fill(stage: Path) -> None:
    (stage / "model.pt").write_bytes(b"12345")
    (stage / "huggingface").mkdir()
    (stage / "huggingface" / "config.json").write_bytes(b"{}")


def test_a_folder_appears_with_a_manifest_of_all_files(tmp_path):
    size_bytes = publish_folder(tmp_path / "ckpt_0", fill, {"index": 0})
    assert size_bytes == 7
    assert names(tmp_path) == ["ckpt_0"]
    manifest = read_checked(tmp_path / "ckpt_0")
    assert manifest.files == {"model.pt": 5, "huggingface/config.json": 2}
    assert manifest.about == {"index": 0}


def test_a_generous_umask_makes_no_checkpoint_that_readers_refuse(tmp_path):
    before = os.umask(0)
    try:
        publish_folder(tmp_path / "ckpt_0", fill, {})
    finally:
        os.umask(before)
    assert read_checked(tmp_path / "ckpt_0").files == {"model.pt": 5, "huggingface/config.json": 2}
    assert (tmp_path / "ckpt_0" / "huggingface").stat().st_mode & 0o022 == 0


def test_the_manifest_is_the_last_file_written(tmp_path):
    def fill_and_look(stage):
        fill(stage)
        assert layout.MANIFEST not in names(stage)

    publish_folder(tmp_path / "ckpt_0", fill_and_look, {})


def test_a_failed_save_leaves_nothing(tmp_path):
    def fail(stage):
        fill(stage)
        raise RuntimeError("a worker died")

    with pytest.raises(RuntimeError, match="a worker died"):
        publish_folder(tmp_path / "ckpt_0", fail, {})
    assert names(tmp_path) == []


def test_a_save_that_wrote_nothing_is_an_error(tmp_path):
    with pytest.raises(PublishError, match="wrote no file"):
        publish_folder(tmp_path / "ckpt_0", lambda stage: None, {})
    assert names(tmp_path) == []


def test_a_save_with_a_manifest_of_its_own_is_an_error(tmp_path):
    with pytest.raises(PublishError, match="a manifest.json of its own"):
        publish_folder(tmp_path / "ckpt_0", lambda stage: (stage / layout.MANIFEST).touch(), {})
    assert names(tmp_path) == []


def test_a_taken_folder_is_refused_before_anything_is_saved(tmp_path):
    publish_folder(tmp_path / "ckpt_0", fill, {})
    calls = []
    with pytest.raises(PublishError, match="already exists"):
        publish_folder(tmp_path / "ckpt_0", calls.append, {})
    assert calls == []


def test_a_folder_taken_meanwhile_is_refused_and_kept(tmp_path):
    def fill_late(stage):
        fill(stage)
        publish_folder(tmp_path / "ckpt_0", lambda s: (s / "other").write_bytes(b"o"), {"by": "other"})

    with pytest.raises(PublishError, match="already exists"):
        publish_folder(tmp_path / "ckpt_0", fill_late, {})
    assert read_checked(tmp_path / "ckpt_0").about == {"by": "other"}
    assert names(tmp_path) == ["ckpt_0"]


def test_links_are_not_published(tmp_path):
    with pytest.raises(PublishError, match="neither a file nor a folder"):
        publish_folder(tmp_path / "ckpt_0", lambda stage: (stage / "x").symlink_to("/etc/passwd"), {})
    assert names(tmp_path) == []
