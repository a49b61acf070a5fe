# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`portable.json`: what a folder of portable weights says of itself. Written last, by the trainer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from verl.crosscheck.exchange.record.container import open_file
from verl.crosscheck.exchange.record.limits import MalformedError, checked_shape
from verl.crosscheck.weights.portable.checksum import MASK
from verl.crosscheck.weights.portable.naming import Kind

NAME = "portable.json"
SCHEMA = "verl-crosscheck.portable/1"
INDEX = "model.safetensors.index.json"
MAX_BYTES = 64 << 20
FILE = re.compile(r"model-[0-9]{5,8}-of-[0-9]{5,8}\.safetensors")

STORAGE = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
"""Types that can be exchanged: torch's name and safetensors' name."""


@dataclass(frozen=True)
class Entry:
    """One tensor."""

    name: str
    kind: Kind
    dtype: str
    """A key of `STORAGE`."""
    shape: tuple[int, ...]
    checksum: int
    """Of `checksum.py`, over the whole tensor."""
    file: str = ""
    """Name of the file in the folder; empty if only the checksum is there."""

    @property
    def torch_dtype(self) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return self.elements * int(self.torch_dtype.itemsize)


@dataclass(frozen=True)
class PortableManifest:
    """Everything of a folder."""

    tensors: Mapping[str, Entry]
    left_out: Mapping[str, Entry] = field(default_factory=dict)
    """The frozen tensors under LoRA adapters: both sides must hold the same ones."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Other names of tensors, each with the name under which it is there."""

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.tensors.values())

    def write(self, folder: Path) -> None:
        """Into `portable.json`, with Hugging Face's index beside it."""
        index = {
            "metadata": {"total_size": self.size_bytes},
            "weight_map": {entry.name: entry.file for entry in self.tensors.values()},
        }
        (folder / INDEX).write_text(json.dumps(index, indent=1))
        content = {
            "schema": SCHEMA,
            "tensors": [_plain(entry) for entry in self.tensors.values()],
            "left_out": [_plain(entry) for entry in self.left_out.values()],
            "tied": dict(self.tied),
        }
        (folder / NAME).write_text(json.dumps(content, indent=1))


def read_manifest(folder: Path) -> PortableManifest:
    """The manifest of a folder, checked; the index beside it must say the same.

    Raises:
        MalformedError: something in it is not as it should be.
        FileNotFoundError: there is none.
    """
    content = _read_json(folder / NAME)
    if content.get("schema") != SCHEMA:
        raise MalformedError(f"{NAME}: schema {SCHEMA!r} expected, {str(content.get('schema'))[:80]!r} found")
    tensors, left_out = (_entries(content.get(key), key) for key in ("tensors", "left_out"))
    tied = content.get("tied")
    if not isinstance(tied, dict) or not all(isinstance(each, str) and each in tensors for each in tied.values()):
        raise MalformedError(f"{NAME}: 'tied' does not name tensors that are there")
    for entry in tensors.values():
        if not FILE.fullmatch(entry.file):
            raise MalformedError(f"{NAME}: tensor {entry.name!r} is said to lie in {entry.file[:80]!r}, no file name")
    index = _read_json(folder / INDEX).get("weight_map")
    if index != {entry.name: entry.file for entry in tensors.values()}:
        raise MalformedError(f"{INDEX} and {NAME} do not name the same tensors and files")
    return PortableManifest(tensors, left_out, tied)


def dtype_name(dtype: torch.dtype) -> str:
    """torch's own name of a type: `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _plain(entry: Entry) -> dict[str, Any]:
    return {**asdict(entry), "checksum": f"{entry.checksum:016x}"}


def _entries(found: Any, key: str) -> dict[str, Entry]:
    if not isinstance(found, list):
        raise MalformedError(f"{NAME}: a list expected at {key!r}")
    entries = {}
    for each in found:
        entry = _entry(each)
        if entry.name in entries:
            raise MalformedError(f"{NAME}: tensor {entry.name!r} stands twice")
        entries[entry.name] = entry
    return entries


def _entry(each: Any) -> Entry:
    try:
        checksum = int(each["checksum"], 16)
        entry = Entry(each["name"], each["kind"], each["dtype"], checked_shape(each["shape"]), checksum, each["file"])
        texts = (entry.name, entry.file)
        if not all(isinstance(text, str) for text in texts) or entry.kind not in get_args(Kind):
            raise ValueError
        if entry.dtype not in STORAGE or not 0 <= entry.checksum <= MASK:
            raise ValueError
    except (KeyError, TypeError, ValueError, MalformedError):
        raise MalformedError(f"{NAME}: {str(each)[:120]} does not describe a tensor") from None
    return entry


def _read_json(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        text = b""
        while part := file.read(MAX_BYTES + 1 - len(text)):
            text += part
    if len(text) > MAX_BYTES:
        raise MalformedError(f"{path.name}: at most {MAX_BYTES} bytes expected")
    try:
        content = json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        raise MalformedError(f"{path.name} is not JSON: {error}") from None
    if not isinstance(content, dict):
        raise MalformedError(f"{path.name}: a JSON object expected")
    return content


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `json.loads`: refuses a name that stands twice in an object."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name stands twice")
    return found
