# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Kinds of device in files of torch.save, as runs on other hardware write them."""

import pickle
import zipfile

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights.portable import device_kinds as module
from verl.crosscheck.weights.portable.device_kinds import device_kinds, kinds_in_pickle


@pytest.fixture
def shard():
    """A part of a tensor, as FSDP2's checkpoints hold it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield distribute_tensor(torch.ones(4, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    dist.destroy_process_group()


def saved(path, content, monkeypatch=None, tag=None):
    """A file of torch.save; storages are said to lie on `tag`, which is how torch itself writes it."""
    if tag is not None:
        monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: tag)
    torch.save(content, path)
    return path


def test_storages(tmp_path, monkeypatch):
    content = {"a": torch.ones(2), "b": [torch.ones(3, dtype=torch.bfloat16)]}
    assert device_kinds(saved(tmp_path / "a.pt", content)) == {"cpu"}
    assert device_kinds(saved(tmp_path / "b.pt", content, monkeypatch, "npu:5")) == {"npu"}
    assert device_kinds(saved(tmp_path / "c.pt", content, monkeypatch, "cuda:0")) == {"cuda"}


def test_texts_that_only_look_like_devices_are_none(tmp_path):
    assert device_kinds(saved(tmp_path / "a.pt", {"storage": "npu:0", "x": ("storage", "npu:1"), "cuda": 3})) == set()


def test_a_device_itself(tmp_path):
    assert device_kinds(saved(tmp_path / "a.pt", {"where": torch.device("cuda", 1)})) == {"cuda"}


def test_a_sharded_tensor_of_an_ascend_run(tmp_path, shard, monkeypatch):
    """Its own storages lie on an NPU, and so does its mesh, whose table of ranks lies in main memory."""
    mesh = shard.device_mesh
    (key,) = [each for each in ("_device_type", "device_type") if each in vars(mesh)]
    real = torch.serialization.location_tag
    monkeypatch.setattr(
        torch.serialization, "location_tag", lambda storage: "npu:0" if storage.nbytes() == 32 else real(storage)
    )
    torch.save({"weight": shard}, tmp_path / "cpu-mesh.pt")
    assert device_kinds(tmp_path / "cpu-mesh.pt") == {"npu", "cpu"}
    monkeypatch.undo()
    monkeypatch.setitem(vars(mesh), key, "npu")
    torch.save({"weight": mesh}, tmp_path / "npu-mesh.pt")
    assert "npu" in device_kinds(tmp_path / "npu-mesh.pt")


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol(protocol):
    assert kinds_in_pickle(pickle.dumps({"device_type": "npu", "other": "cuda"}, protocol)) == {"npu"}


class Bomb:
    def __reduce__(self):
        return pytest.fail, ("this must not run",)


def test_nothing_is_run():
    assert kinds_in_pickle(pickle.dumps({"device_type": "npu", "bomb": Bomb()})) == {"npu"}


def test_names_that_are_no_devices_are_left_out():
    assert kinds_in_pickle(pickle.dumps([{"device_type": "\x1b[31m"}, {"device_type": "x" * 99}])) == set()


def test_files_that_are_none_of_it(tmp_path, monkeypatch):
    (tmp_path / "text.pt").write_text("no zip")
    with zipfile.ZipFile(tmp_path / "empty.pt", "w") as archive:
        archive.writestr("other", b"")
    with zipfile.ZipFile(tmp_path / "garbage.pt", "w") as archive:
        archive.writestr("x/data.pkl", b"\x80\x02u.")
    saved(tmp_path / "long.pt", list(range(100)))
    (tmp_path / "link.pt").symlink_to(tmp_path / "long.pt")
    monkeypatch.setattr(module, "MAX_PICKLE_BYTES", 50)
    for name in ("text", "empty", "garbage", "long", "link"):
        with pytest.raises(DamagedError, match=f"{name}.pt: not a checkpoint"):
            device_kinds(tmp_path / f"{name}.pt")
    with pytest.raises(FileNotFoundError):
        device_kinds(tmp_path / "none.pt")
