# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A file that is not the record that was written is an error that says so: cut off, altered, foreign or hostile."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
import xxhash

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.record.container import DIGEST_AT, FIXED_BYTES, SIZE_AT, FilePart, read_about, write_parts
from verl.crosscheck.exchange.record.record import Record, read_record, write_record


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "record"


def content_of(record: Record) -> bytes:
    file = io.BytesIO()
    write_record(file, record)
    return file.getvalue()


def small() -> bytes:
    cells = np.empty(2, dtype=object)
    cells[:] = [{"a": torch.tensor([1.5])}, None]
    tensors = {"ids": torch.tensor([[1, 70_000]]), "flag": torch.tensor([True, False])}
    return content_of(Record(tensors, {"cells": cells, "x": np.array([0.5, 2.0])}, {"m": 1}, {"step": 7}))


def assert_damaged(path: Path, content: bytes, expected: str = "") -> None:
    path.write_bytes(content)
    with pytest.raises(DamagedError) as caught:
        read_record(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: not a usable record: ")
    assert re.search(expected, message), message
    assert "Nothing of it was used" in message
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__, "no parser's traceback may follow"


def seal(content: bytes) -> bytes:
    """Gives hostile content the size and digest that make it look intact."""
    data = bytearray(content)
    data[SIZE_AT : SIZE_AT + 16] = b"%016d" % len(data)
    data[DIGEST_AT:FIXED_BYTES] = b"0" * 32
    data[DIGEST_AT:FIXED_BYTES] = xxhash.xxh3_128_hexdigest(data).encode()
    return bytes(data)


def with_header(edit: Callable[[dict[str, Any]], None]) -> bytes:
    """A sealed file whose header was edited as an object."""
    content = small()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    edit(header)
    return with_header_text(json.dumps(header, separators=(",", ":")).encode())


def with_header_text(text: bytes) -> bytes:
    content = small()
    body = content[8 + int.from_bytes(content[:8], "little") :]
    return seal(len(text).to_bytes(8, "little") + text + body)


def forged(document: Any, **tensors: np.ndarray) -> bytes:
    """A sealed, well-formed container of any JSON and tensors (named by `__` for `/`)."""
    text = document if isinstance(document, bytes) else json.dumps(document).encode()
    parts = [FilePart("values.json", "U8", (len(text),), lambda: [np.frombuffer(text, np.uint8)])]
    storages = {"i8": "I64", "u1": "U8", "f4": "F32", "u4": "U32", "i4": "I32"}
    for name, array in tensors.items():
        parts.append(FilePart(name.replace("__", "/"), storages[array.dtype.str[1:]], array.shape, lambda a=array: [a]))
    file = io.BytesIO()
    write_parts(file, parts, "{}")
    return file.getvalue()


def column(**description: Any) -> dict[str, Any]:
    return {"meta": [], "arrays": [], "tensors": [["x", description]]}


def sparse(shape: list[int]) -> dict[str, Any]:
    return column(type="float32", shape=shape, positions="p", **{"in": "v"})


def array_column(description: dict[str, Any]) -> dict[str, Any]:
    return {"meta": [], "arrays": [["x", description]], "tensors": []}


def cell(kind: str, shape: list[int], pool: str, at: Any) -> dict[str, Any]:
    return value({"$": "array" if kind[0] in "<|" else "tensor", "type": kind, "shape": shape, "in": pool, "at": at})


def value(tree: Any) -> dict[str, Any]:
    return {"meta": [["x", tree]], "arrays": [], "tensors": []}


# ---------------------------------------------------------------- accidents


def test_any_flipped_bit_is_noticed(path: Path) -> None:
    content = small()
    chance = random.Random(5)
    for at in range(len(content)):
        altered = bytearray(content)
        altered[at] ^= 1 << chance.randrange(8)
        path.write_bytes(altered)
        with pytest.raises(DamagedError):
            read_record(path)


def test_any_truncation_is_noticed(path: Path) -> None:
    content = small()
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(DamagedError):
            read_record(path)
        with pytest.raises(DamagedError):
            read_about(path)


def test_truncation_and_excess_name_both_sizes(path: Path) -> None:
    content = small()
    assert_damaged(path, content[:-10], f"{len(content)} bytes expected, {len(content) - 10} found")
    assert_damaged(path, content + b"x", f"{len(content)} bytes expected, {len(content) + 1} found")
    assert_damaged(path, content + content, "bytes expected")


def test_swapped_bytes_of_a_large_file_are_noticed(path: Path) -> None:
    content = bytearray(content_of(Record({"x": torch.rand(1000, 100)})))
    content[-5000:-4000], content[-9000:-8000] = content[-9000:-8000], content[-5000:-4000]
    assert_damaged(path, bytes(content), "altered: digest '[0-9a-f]{32}' expected, '[0-9a-f]{32}' found")


# ---------------------------------------------------------------- foreign files


def torch_file() -> bytes:
    file = io.BytesIO()
    torch.save({"x": torch.ones(2)}, file)
    return file.getvalue()


@pytest.mark.parametrize(("content", "expected"), [
    (b"", "bytes expected, 0 found"),
    (b"{}", "bytes expected, 2 found"),
    (pickle.dumps({"x": list(range(100))}), "pickle"),
    (torch_file(), "pickle or torch.save"),
    (b"PAR1" + bytes(200), "a safetensors file expected"),
    (b"\xff" * 300, "a safetensors file expected"),
    (safetensors.torch.save({"x": torch.ones(100)}), "without it found"),
    (safetensors.torch.save({"x": torch.ones(100)}, {"format": "pt"}), "without it found"),
    (small().replace(b"record/1", b"record/2"), "version 1 expected, '2' found"),
    (small().replace(b"record/1", b"record/10"), "version 1 expected, '10' found"),
], ids=[
    "empty", "short", "pickle", "torch.save", "parquet", "noise", "safetensors", "metadata", "newer", "much newer",
])  # fmt: skip
def test_foreign_file(path: Path, content: bytes, expected: str) -> None:
    assert_damaged(path, content, expected)
    with pytest.raises(DamagedError, match=expected):
        read_about(path)


def test_pickle_is_not_executed(path: Path, tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "executed",)

    assert_damaged(path, pickle.dumps([Evil()] * 50))
    assert not (tmp_path / "executed").exists()


def test_only_a_regular_file_is_opened(path: Path, tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(small())
    for make, what in [
        (lambda: path.symlink_to(tmp_path / "real"), "symbolic link"),
        (lambda: os.mkfifo(path), "something else"),  # must not block
        (path.mkdir, "something else"),
    ]:
        make()
        for read in (read_record, read_about):
            with pytest.raises(DamagedError, match=f"a regular file expected, .*{what}"):
                read(path)
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(FileNotFoundError):
        read_record(path)


# ---------------------------------------------------------------- hostile headers


def entry(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda header: header["tensors/ids"].update(changes)


@pytest.mark.parametrize(("content", "expected"), [
    (with_header(entry(dtype="F4")), "unknown dtype 'F4'"),
    (with_header(entry(dtype=["U8"])), "unknown dtype"),
    (with_header(entry(shape=[1 << 60, 1 << 60])), "bytes 16 to"),
    (with_header(entry(shape=[1 << 62])), "not a shape"),
    (with_header(entry(shape=[-1, -2])), "not a shape"),
    (with_header(entry(shape=[True, 2])), "not a shape"),
    (with_header(entry(shape=[1.0, 2])), "not a shape"),
    (with_header(entry(shape=[1] * 33)), "not a shape"),
    (with_header(entry(shape=None)), "not a shape"),
    (with_header(entry(data_offsets=[0, 8])), "bytes 16 to 24 of"),
    (with_header(entry(data_offsets=[24, 16])), "bytes 16 to 24 of"),
    (with_header(entry(data_offsets=None)), "bytes 16 to 24 of"),
    (with_header(entry(extra=1)), "dtype, shape and data_offsets expected"),
    (with_header(lambda header: header.update({"tensors/ids": 5})), "dtype, shape and data_offsets expected"),
    (with_header(lambda header: header.popitem()), "a body of"),
    (with_header(lambda header: header["__metadata__"].update(about="{")), "description is not JSON"),
    (with_header(lambda header: header["__metadata__"].update(about="[]")), "not a JSON object"),
    (with_header(lambda header: header["__metadata__"].update(about="[" * 100_000)), "description is not JSON"),
    (with_header(lambda header: header["__metadata__"].update(about=5)), "no description"),
    (seal((1 << 62).to_bytes(8, "little") + small()[8:]), "header of at most"),
    (seal((17 << 20).to_bytes(8, "little") + small()[8:] + bytes(18 << 20)), "header of at most"),
    (seal((150).to_bytes(8, "little") + small()[8:]), "header is not JSON"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_hostile_header(path: Path, content: bytes, expected: str) -> None:
    assert_damaged(path, content, expected)


def test_header_of_deep_nesting_or_a_name_twice(path: Path) -> None:
    start = small()[8:FIXED_BYTES]
    assert_damaged(path, with_header_text(start + b'","about":"{}"},"x":' + b"[" * 200_000), "header is not JSON")
    twice = b'","about":"{}"},"x":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}'
    assert_damaged(path, with_header_text(start + twice + twice[15:] + b"}"), "a name stands twice")


# ---------------------------------------------------------------- hostile content

FLAT = np.arange(6, dtype=np.uint8)
IDS = FLAT.reshape(2, 3)
ONE = np.ones(1, dtype="<f4")
HUGE = [1 << 20, 1 << 20]


@pytest.mark.parametrize(("content", "expected"), [
    (forged(b"\xff\xfe"), "no meaning"),
    (forged(b"{"), "no meaning"),
    (forged(b"[" * 200_000), "no meaning"),
    (forged(b'{"meta":[["x",' + b"9" * 10_000 + b"]]}"), "no meaning"),
    (forged(b'{"meta":[["x",NaN]],"arrays":[],"tensors":[]}'), "NaN is not JSON"),
    (forged(b"[]"), "no meaning"),
    (forged({}), "no meaning"),
    (forged({"meta": 5, "arrays": [], "tensors": []}), "no meaning"),
    (forged({"meta": [["a", 1], ["a", 2]], "arrays": [], "tensors": []}), "names that are str and differ"),
    (forged({"meta": [[1, 1]], "arrays": [], "tensors": []}), "names that are str and differ"),
    (forged(column()), "no meaning"),
    (forged(column(type="int64", shape=[2, 3], **{"in": "tensors/y"})), "no meaning .*tensors/y"),
    (forged(column(type="int64", shape=[2, 3])), "no meaning"),
    (forged(column(type="int128", shape=[1], fill=0)), "unknown type 'int128'"),
    (forged(column(type=["int64"], shape=[1], fill=0)), "no meaning"),
    (forged(column(type="device", shape=[1], fill=0)), "unknown type 'device'"),
    (forged(column(type="int64", shape=HUGE, fill=0)), "more memory"),
    (forged(column(type="int64", shape=[1 << 61, 1 << 61], fill=0)), "more memory"),
    (forged(column(type="int8", shape=[1], fill=300)), "not a value of its type"),
    (forged(column(type="bool", shape=[1], fill=2)), "not a value of its type"),
    (forged(column(type="int8", shape=[1], fill=[1])), "not a value of its type"),
    (forged(column(type="int64", shape=[3, 2], **{"in": "a"}), a=IDS), "shape .3, 2. expected"),
    (forged(column(type="int64", shape=[6], **{"in": "a"}), a=IDS), "shape"),
    (forged(column(type="float32", shape=[2, 3], **{"in": "a"}), a=IDS), "dtype F32 expected, U8 found"),
    (forged(column(type="bool", shape=[2, 3], **{"in": "a"}), a=IDS), "dtype BOOL expected, U8 found"),
    (forged(column(type="int64", shape=[2, 3], slice=["y", 0]), a=IDS), "no meaning"),
    (forged(column(type="int64", shape=[2, 3], slice=["x", 0]), a=IDS), "no meaning"),
    (forged(column(type="int64", shape=[2, 3], slice="ab"), a=IDS), "no meaning"),
    (forged(sparse(HUGE), v=ONE, p=IDS[0, :1]), "more memory"),
    (forged(sparse([2]), v=ONE, p=IDS[1, :1]), "outside"),
    (forged(sparse([2]), v=ONE, p=-np.ones(1, "<i8")), "outside"),
    (forged(sparse([9]), v=ONE, p=IDS[0]), "one position per value"),
    (forged(array_column({"type": "<M8[s]", "shape": [1], "fill": 0})), "no meaning"),
    (forged(array_column({"type": "<U999999999", "shape": [9], "in": "a"}), a=IDS), "not a numpy type"),
    (forged(array_column({"type": "<U99999999", "shape": [9], "in": "a"}), a=IDS), "more memory"),
    (forged(array_column({"type": "object", "shape": [2], "of": [1]})), "has 1 cells"),
    (forged(array_column({"type": "object", "shape": [2], "of": [1], "rows": [0, 5]})), "no meaning"),
    (forged(array_column({"type": "object", "shape": [1], "of": [1], "rows": [-1]})), "not numbers"),
    (forged(value({"$": "pickle", "of": "gASV"})), "unknown kind of value 'pickle'"),
    (forged(value({"$": ["tuple"]})), "no meaning"),
    (forged(value({"$": "tuple"})), "no meaning"),
    (forged(value({"$": "dict", "of": [[[], 1]]})), "no meaning"),
    (forged(value({"$": "dict", "of": [[1, 1], [1, 2]]})), "a key twice"),
    (forged(value({"$": "dict", "of": 7})), "no meaning"),
    (forged(value({"$": "int", "hex": "zz"})), "no meaning"),
    (forged(value({"$": "float", "hex": "00"})), "a float of 1 bytes"),
    (forged(value({"$": "scalar", "type": "|O8", "hex": "00" * 8})), "not a numpy type of a record"),
    (forged(value({"$": "scalar", "type": "<f4", "hex": ""})), "no meaning"),
    (forged(cell("int64", [7], "a", 0), a=FLAT), "lie outside pool"),
    (forged(cell("int64", [1], "a", -1), a=FLAT), "lie outside pool"),
    (forged(cell("int64", [1], "a", True), a=FLAT), "lie outside pool"),
    (forged(cell("int64", [1], "a", 0), a=IDS), "lie outside pool"),
    (forged(cell("int64", [1], "b", 0), a=IDS), "no meaning"),
    (forged(cell("<f8", [1], "a", 0), a=FLAT), "dtype F64 expected"),
    (forged(value({"$": "bytes", "shape": HUGE, "in": "a", "at": 0}), a=FLAT), "lie outside pool"),
    (forged(value({"$": "objects", "shape": HUGE, "of": []})), "has 0 cells"),
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_hostile_content(path: Path, content: bytes, expected: str) -> None:
    assert_damaged(path, content, expected)


def test_one_range_read_many_times_does_not_exhaust_memory(path: Path) -> None:
    pool = np.zeros(1 << 20, dtype=np.uint8)
    shapes = [[n, (1 << 20) // n] for n in (1 << k for k in range(21))]
    trees = [
        {"$": "tensor", "type": kind, "shape": shape, "in": "a", "at": 0}
        for kind in ("int64", "uint64") for shape in shapes
    ]  # fmt: skip
    wide = [["b", {"type": "int64", "shape": [1 << 20], "in": "a"}]]
    wide += [[str(n), {"type": "int64", "shape": [1 << 20], "slice": ["b", 0]}] for n in range(40)]
    for document in (value(trees), {"meta": [], "arrays": [], "tensors": wide}):
        content = forged(document, a=pool)
        tracemalloc.start()
        try:
            assert_damaged(path, content, "more memory")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < (64 << 20) + 70 * len(content)


def test_a_forged_file_with_nothing_wrong_is_read(path: Path) -> None:
    """The forging itself is sound: what the hostile cases raise comes from what they forge."""
    path.write_bytes(forged(column(type="int64", shape=[2, 3], **{"in": "a"}), a=IDS))
    assert read_record(path).tensors["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    path.write_bytes(with_header(lambda header: None))
    assert read_record(path).meta == {"m": 1}
    path.write_bytes(forged(cell("int64", [2], "a", 4), a=FLAT))
    assert read_record(path).meta["x"].tolist() == [4, 5]
