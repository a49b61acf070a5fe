# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Folders of weights: files that the stock library reads, and nothing that a hostile one can make a reader do."""

import json
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.weights.naming import UnsupportedError
from verl.crosscheck.weights.portable import writing
from verl.crosscheck.weights.portable.files import STORAGE
from verl.crosscheck.weights.portable.folder import PortableFolder
from verl.crosscheck.weights.portable.manifest import PortableManifest
from verl.crosscheck.weights.portable.writing import FolderWriter, name_files

FILE = "model-00001-of-00001.safetensors"


def write(folder, tensors, file_bytes=writing.FILE_BYTES):
    writer = FolderWriter(folder, file_bytes=file_bytes)
    for name, tensor in tensors.items():
        writer.add(name, "parameter", tensor)
    manifest = PortableManifest({entry.name: entry for entry in name_files(folder, writer.close())})
    manifest.write(folder)
    return manifest


def read_by_stock(folder):
    """As everybody reads such a folder: through its index."""
    found = {}
    for name, file in json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"].items():
        with safe_open(folder / file, "pt") as opened:
            found[name] = opened.get_tensor(name)
    return found


def read(folder, name):
    with PortableFolder(folder) as opened:
        entry = opened.manifest.tensors[name]
        data = np.empty(entry.size_bytes, np.uint8)
        opened.read(entry, [(0, entry.elements)], data)
    return (
        torch.frombuffer(data, dtype=entry.torch_dtype).reshape(entry.shape) if data.size else torch.empty(entry.shape)
    )


@pytest.mark.parametrize("dtype", STORAGE)
def test_every_type(tmp_path, dtype):
    bits = torch.randint(0, 2 if dtype == "bool" else 256, (7 * 8,), dtype=torch.uint8)
    tensor = bits.view(getattr(torch, dtype)).reshape(7, -1)
    write(tmp_path, {"w": tensor})
    for found in (read(tmp_path, "w"), read_by_stock(tmp_path)["w"]):
        assert torch.equal(found.view(torch.uint8), tensor.view(torch.uint8)) and found.dtype == tensor.dtype


def test_odd_shapes_and_types_side_by_side(tmp_path):
    tensors = {
        "half": torch.randn(3).to(torch.bfloat16),
        "full": torch.randn(2, 0, 3),
        "scalar": torch.tensor(3.5, dtype=torch.float64),
        "byte": torch.ones(1, dtype=torch.uint8),
        "turned": torch.randn(3, 4).t(),
    }
    write(tmp_path, tensors)
    stock = read_by_stock(tmp_path)
    for name, tensor in tensors.items():
        assert torch.equal(read(tmp_path, name), tensor) and torch.equal(stock[name], tensor)


def test_files_end_when_they_are_large_enough(tmp_path):
    tensors = {f"w{i}": torch.full((100,), float(i)) for i in range(7)} | {"large": torch.ones(1000)}
    manifest = write(tmp_path, tensors, file_bytes=1200)
    files = [entry.file for entry in manifest.tensors.values()]
    assert files == [f"model-0000{i}-of-00004.safetensors" for i in (1, 1, 1, 2, 2, 2, 3, 4)]
    assert {path.name for path in tmp_path.iterdir()} == {*files, "portable.json", "model.safetensors.index.json"}
    stock = read_by_stock(tmp_path)
    assert all(torch.equal(stock[name], tensor) for name, tensor in tensors.items())


def test_files_end_when_their_header_is_full(tmp_path):
    tensors = {f"layers.{i}.{'long' * 40}": torch.tensor([float(i)]) for i in range(300)}
    assert len({entry.file for entry in write(tmp_path, tensors).tensors.values()}) > 1
    stock = read_by_stock(tmp_path)
    assert all(torch.equal(stock[name], read(tmp_path, name)) for name in tensors)
    assert [float(stock[name]) for name in tensors] == list(range(300))


def test_types_that_it_cannot_hold_are_refused_by_name(tmp_path):
    with pytest.raises(UnsupportedError, match="w is of type torch.complex64"):
        FolderWriter(tmp_path).add("w", "parameter", torch.zeros(2, dtype=torch.complex64))


@pytest.fixture
def folder(tmp_path):
    write(tmp_path, {"a.weight": torch.randn(3, 5), "b.weight": torch.randn(4)})
    return tmp_path


def change(path, edit):
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def move_to(file):
    """Both lists say that the first tensor lies in `file`."""

    def edit(folder):
        change(folder / "portable.json", lambda content: content["tensors"][0].update(file=file))
        change(
            folder / "model.safetensors.index.json", lambda content: content["weight_map"].update({"a.weight": file})
        )

    return edit


def entry_of(**values):
    return lambda folder: change(folder / "portable.json", lambda content: content["tensors"][0].update(values))


def bytes_of(edit):
    def change_bytes(folder):
        data = bytearray((folder / FILE).read_bytes())
        (folder / FILE).write_bytes(edit(data))

    return change_bytes


def replaced(one, other):
    """Inside the header, which has room."""
    return bytes_of(lambda data: data.replace(one, other, 1))


def linked(folder):
    (folder / FILE).rename(folder / "elsewhere")
    (folder / FILE).symlink_to("elsewhere")


def piped(folder):
    (folder / "portable.json").unlink()
    os.mkfifo(folder / "portable.json")


HOSTILE = {
    "a path upwards": (move_to("../../etc/model-00001-of-00001.safetensors"), "no file name"),
    "an absolute path": (move_to("/etc/passwd"), "no file name"),
    "a path with an end of line": (move_to(FILE + "\n"), "no file name"),
    "an index of other files": (
        lambda folder: change(
            folder / "model.safetensors.index.json", lambda c: c["weight_map"].update({"a.weight": "x"})
        ),
        "do not name the same",
    ),
    "a link": (linked, "symbolic link"),
    "a pipe": (piped, "regular file expected"),
    "a huge header": (bytes_of(lambda data: (1 << 60).to_bytes(8, "little") + data[8:]), "header inside its"),
    "a header longer than the file": (
        bytes_of(lambda data: len(data).to_bytes(8, "little") + data[8:]),
        "header inside",
    ),
    "a file cut short": (bytes_of(lambda data: data[:-1]), "bytes expected"),
    "a file with more in it": (bytes_of(lambda data: data + b"x"), "bytes expected"),
    "an empty file": (bytes_of(lambda data: b""), "header inside its"),
    "a header that is no JSON": (replaced(b'{"', b'["'), "not JSON"),
    "a tensor twice in a header": (replaced(b'"b.weight"', b'"a.weight"'), "stands twice"),
    "a tensor at another place": (replaced(b"[0,60]", b"[4,64]"), "a.weight"),
    "a tensor of another type": (replaced(b'"F32"', b'"I32"'), "a.weight"),
    "a tensor of another name": (replaced(b'"b.weight"', b'"c.weight"'), "c.weight"),
    "a huge shape": (entry_of(shape=[1 << 61, 1 << 61]), "a.weight"),
    "a negative shape": (entry_of(shape=[-3, -5]), "does not describe a tensor"),
    "no such type": (entry_of(dtype="__class__"), "does not describe a tensor"),
    "no such kind": (entry_of(kind="x"), "does not describe a tensor"),
    "a checksum that is no number": (entry_of(checksum="x"), "does not describe a tensor"),
    "a name that is no text": (entry_of(name=["a"]), "does not describe a tensor"),
    "another schema": (lambda folder: change(folder / "portable.json", lambda c: c.update(schema="x/2")), "schema"),
    "a name tied to nothing": (
        lambda folder: change(folder / "portable.json", lambda c: c.update(tied={"a": "x"})),
        "tied",
    ),
    "a name tied to no text": (
        lambda folder: change(folder / "portable.json", lambda c: c.update(tied={"a": []})),
        "tied",
    ),
    "a list": (lambda folder: (folder / "portable.json").write_text("[]"), "JSON object"),
    "nested without end": (lambda folder: (folder / "portable.json").write_text("[" * 100_000), "JSON"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_folder_is_refused_with_the_reason(folder, case):
    edit, reason = HOSTILE[case]
    edit(folder)
    with pytest.raises(DamagedError, match=reason) as raised:
        PortableFolder(folder)
    assert str(raised.value).startswith(f"{folder}: not usable as portable weights: ")
    assert len(str(raised.value)) < 1500


def test_a_long_list_is_not_read(folder, monkeypatch):
    monkeypatch.setattr("verl.crosscheck.weights.portable.manifest.MAX_BYTES", 100)
    with pytest.raises(DamagedError, match="at most 100 bytes"):
        PortableFolder(folder)


def test_a_file_that_is_shortened_while_it_is_read(folder):
    with PortableFolder(folder) as opened:
        os.truncate(folder / FILE, (folder / FILE).stat().st_size - 20)
        entry = opened.manifest.tensors["b.weight"]
        with pytest.raises(DamagedError, match="shortened while tensor 'b.weight'"):
            opened.read(entry, [(0, 4)], np.empty(16, np.uint8))


def test_parts_are_read_one_after_the_other(folder):
    with PortableFolder(folder) as opened:
        data = np.empty(5 * 4, np.uint8)
        opened.read(opened.manifest.tensors["a.weight"], [(2, 2), (11, 3)], data)
    assert torch.equal(
        torch.from_numpy(data).view(torch.float32), read(folder, "a.weight").flatten()[[2, 3, 11, 12, 13]]
    )


def test_a_missing_file_is_just_that(folder):
    (folder / FILE).unlink()
    with pytest.raises(FileNotFoundError):
        PortableFolder(folder)
