# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Safetensors files of a portable checkpoint: types, headers, and how many of them are open at once."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, BinaryIO

import torch

from verl.crosscheck.weights.naming import UnsupportedError

MAX_OPEN = 64
"""Files of a folder that are open at once; a process may have 1,024, and has others too."""

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


def dtype_name(dtype: torch.dtype) -> str:
    """Return torch's own name of a type: `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def require_storable(name: str, dtype: torch.dtype) -> None:
    """Raise UnsupportedError unless a tensor of this type can be exchanged."""
    if dtype_name(dtype) not in STORAGE:
        raise UnsupportedError(f"{name} is of type {dtype}, which portable weights cannot hold")


def file_name(number: int, files: int) -> str:
    """Return the name of one of a folder's files, counted from 1, as Hugging Face names them."""
    return f"model-{number:05}-of-{files:05}.safetensors"


def header_line(dtype: torch.dtype, shape: Sequence[int], start: int, size: int) -> dict[str, Any]:
    """Return what a header says of a tensor of `size` bytes that starts at byte `start` after the header."""
    return {"dtype": STORAGE[dtype_name(dtype)], "shape": list(shape), "data_offsets": [start, start + size]}


def header_text(lines: Mapping[str, Any]) -> bytes:
    """Return a header, a multiple of 8 bytes long."""
    text = json.dumps({"__metadata__": {"format": "pt"}, **lines}, separators=(",", ":")).encode("ascii")
    return text + b" " * (-len(text) % 8)


class OpenFiles:
    """Opens each file when it is asked for. Closes the one that was not asked for longest, and at the end all.

    Args:
        open_one: opens the file of a name.
        most: how many are open at once.
    """

    def __init__(self, open_one: Callable[[str], BinaryIO], most: int = MAX_OPEN) -> None:
        self._open_one, self._most = open_one, most
        self._files: OrderedDict[str, BinaryIO] = OrderedDict()

    def __getitem__(self, name: str) -> BinaryIO:
        if name in self._files:
            self._files.move_to_end(name)
            return self._files[name]
        while len(self._files) >= self._most:
            self._files.popitem(last=False)[1].close()
        self._files[name] = file = self._open_one(name)
        return file

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close all of them; if that fails for some, raise the first error after all were tried."""
        with ExitStack() as stack:
            while self._files:
                stack.callback(self._files.popitem()[1].close)
