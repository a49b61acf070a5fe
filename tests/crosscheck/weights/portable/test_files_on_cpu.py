# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of more files than a process may have open."""

import resource
from pathlib import Path

import pytest
import torch
from torch import nn

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights.portable import loading, saving, transfer
from verl.crosscheck.weights.portable.files import MAX_OPEN, OpenFiles
from verl.crosscheck.weights.portable.folder import PortableFolder
from verl.crosscheck.weights.portable.writing import OffsetWriter, plan
from verl.crosscheck.weights.tensors import local_tensors

LAYERS = 3 * MAX_OPEN


class Noted:
    def __init__(self, name, log):
        self.name, self.log = name, log
        log.append(f"open {name}")

    def close(self):
        self.log.append(f"close {self.name}")


def test_what_was_not_asked_for_longest_is_closed():
    log = []
    with OpenFiles(lambda name: Noted(name, log), most=2) as files:
        for name in "abaca":
            assert files[name].name == name
        assert log == ["open a", "open b", "close b", "open c"]
        files["b"]
        assert log[4:] == ["close c", "open b"]
    assert sorted(log[6:]) == ["close a", "close b"]


def test_all_are_closed_also_if_that_fails_for_one():
    log = []
    with pytest.raises(OSError, match="no space for b"), OpenFiles(lambda name: Full(name, log)) as files:
        for name in "abc":
            files[name]
    assert sorted(log[3:]) == ["close a", "close b", "close c"]


class Full(Noted):
    def close(self):
        super().close()
        if self.name == "b":
            raise OSError("no space for b")


def layers():
    return nn.ModuleList(nn.Linear(3, 2, bias=False) for _ in range(LAYERS))


@pytest.fixture
def written(tmp_path):
    torch.manual_seed(0)
    model = layers()
    transfer.finish(tmp_path, [saving.save_module(model, tmp_path, file_bytes=1)])
    assert len(list(tmp_path.glob("*.safetensors"))) == LAYERS
    return tmp_path, model


@pytest.fixture
def few_files():
    """As `ulimit -n` says; a few more than may be open of one folder."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    largest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (largest + MAX_OPEN + 32, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_written_and_loaded(few_files, written):
    folder, model = written
    other = layers()
    transfer.summary(folder, [loading.prepare_module(other, folder)], [loading.load_module(other, folder)])
    for one, two in zip(model, other, strict=True):
        assert torch.equal(one.weight, two.weight)


@pytest.mark.parametrize("by", ["another file", "a link"])
def test_a_file_that_is_replaced_meanwhile(written, by):
    folder, _ = written
    with PortableFolder(folder) as opened:
        entry = next(iter(opened.manifest.tensors.values()))
        file, new = folder / entry.file, folder / "new"
        new.write_bytes(file.read_bytes())
        if by == "a link":
            file.unlink()
            file.symlink_to(new)
        else:
            new.rename(file)
        into = torch.empty(entry.size_bytes, dtype=torch.uint8).numpy()
        with pytest.raises(DamagedError, match=f"{folder}: not usable .*{entry.file}"):
            opened.read(entry, [(0, entry.elements)], into)


def test_a_file_that_is_removed_while_it_is_written_does_not_come_back(tmp_path):
    held = local_tensors(layers())
    planned = plan(held, file_bytes=1)
    with pytest.raises(FileNotFoundError), OffsetWriter(tmp_path, planned) as writer:
        writer.write_heads()  # the first files are closed again
        (tmp_path / planned.entries[0].file).unlink()
        writer.write(0, held[0])
