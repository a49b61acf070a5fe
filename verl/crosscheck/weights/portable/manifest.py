# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`portable.json`: what a folder of portable weights says of itself. Written last, by the trainer."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
import torch

from verl.crosscheck.exchange.documents import NotADocumentError, struct_of
from verl.crosscheck.exchange.record.container import MAX_DIMENSIONS, MalformedError, json_object, open_file
from verl.crosscheck.weights.naming import TensorKind
from verl.crosscheck.weights.portable.files import STORAGE

NAME = "portable.json"
SCHEMA = "verl-crosscheck.portable/1"
INDEX = "model.safetensors.index.json"
MAX_BYTES = 64 << 20
"""Largest manifest; a tensor takes about 250 bytes. Other documents of an exchange are smaller."""
FILE = re.compile(r"model-[0-9]{5,8}-of-[0-9]{5,8}\.safetensors")

Extent = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]


class TensorEntry(msgspec.Struct, frozen=True):
    """One tensor, as the manifest describes it."""

    COMPLETE: ClassVar[bool] = True

    name: str
    kind: TensorKind
    dtype: str
    """A key of `STORAGE`."""
    shape: Annotated[tuple[Extent, ...], msgspec.Meta(max_length=MAX_DIMENSIONS)]
    checksum: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{16}$")] = "0" * 16
    """Sum over the whole tensor (`checksum.py`) in hexadecimal digits; 0 until all ranks have answered."""
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


class _Content(msgspec.Struct, frozen=True):
    """The file, except for `schema`; its tensors are read one by one, so that an error shows which one is wrong."""

    tensors: list[Any]
    left_out: list[Any]
    tied: dict[str, str]


@dataclass(frozen=True)
class PortableManifest:
    """The tensors of a folder, by name."""

    tensors: Mapping[str, TensorEntry]
    left_out: Mapping[str, TensorEntry] = field(default_factory=dict)
    """The frozen tensors under LoRA adapters: both sides must hold the same ones."""
    tied: Mapping[str, str] = field(default_factory=dict)
    """Other names of tensors, each with the name under which it is there."""

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.tensors.values())

    def write(self, folder: Path) -> None:
        """Write `portable.json`, with Hugging Face's index beside it."""
        index = {
            "metadata": {"total_size": self.size_bytes},
            "weight_map": {entry.name: entry.file for entry in self.tensors.values()},
        }
        (folder / INDEX).write_text(json.dumps(index, indent=1))
        content = _Content(list(self.tensors.values()), list(self.left_out.values()), dict(self.tied))
        (folder / NAME).write_text(json.dumps({"schema": SCHEMA, **msgspec.to_builtins(content)}, indent=1))


def read_manifest(folder: Path) -> PortableManifest:
    """Return the manifest of a folder, checked; the index beside it must say the same.

    Raises:
        MalformedError: something in it is not as it should be.
        FileNotFoundError: there is none.
    """
    data = _read_json(folder / NAME)
    if data.get("schema") != SCHEMA:
        raise MalformedError(f"{NAME}: schema {SCHEMA!r} expected, {str(data.get('schema'))[:80]!r} found")
    try:
        content = struct_of(data, _Content)
    except NotADocumentError as error:
        raise MalformedError(f"{NAME} {error}") from None
    tensors, left_out = _entries(content.tensors), _entries(content.left_out)
    if not all(name in tensors for name in content.tied.values()):
        raise MalformedError(f"{NAME}: 'tied' does not name tensors that are there")
    for entry in tensors.values():
        if not FILE.fullmatch(entry.file):
            raise MalformedError(f"{NAME}: tensor {entry.name!r} should lie in {entry.file[:80]!r}, no file name")
    index = _read_json(folder / INDEX).get("weight_map")
    if index != {entry.name: entry.file for entry in tensors.values()}:
        raise MalformedError(f"{INDEX} and {NAME} do not name the same tensors and files")
    return PortableManifest(tensors, left_out, content.tied)


def _entries(found: list[Any]) -> dict[str, TensorEntry]:
    entries: dict[str, TensorEntry] = {}
    for each in found:
        try:
            entry = struct_of(each, TensorEntry)
        except NotADocumentError as error:
            raise MalformedError(f"{NAME}: {each!s:.120} does not describe a tensor: it {error}") from None
        if entry.dtype not in STORAGE:
            raise MalformedError(f"{NAME}: {each!s:.120} does not describe a tensor: no type {entry.dtype:.80}")
        if entry.name in entries:
            raise MalformedError(f"{NAME}: tensor {entry.name!r} stands twice")
        entries[entry.name] = entry
    return entries


def _read_json(path: Path) -> dict[str, Any]:
    with open_file(path) as file:
        text = b""
        while part := file.read(MAX_BYTES + 1 - len(text)):
            text += part
    if len(text) > MAX_BYTES:
        raise MalformedError(f"{path.name}: at most {MAX_BYTES} bytes expected")
    return json_object(text, path.name)
