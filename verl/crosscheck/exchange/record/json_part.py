# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON text of a record as a part of the file, made piece by piece."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from verl.crosscheck.exchange.record.safetensors_file import FilePart

_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=False)
_SPLIT_LEVELS = 5  # document, group, column, its description, its cells
_CELLS_PER_PIECE = 256


def json_part(name: str, document: dict[str, Any]) -> FilePart:
    """The document as UTF-8 bytes; the text is made twice, for its size and to be written, and never stands whole."""
    size = sum(len(piece) for piece in _pieces(document, _SPLIT_LEVELS))
    chunks = (np.frombuffer(piece, np.uint8) for piece in _pieces(document, _SPLIT_LEVELS))
    return FilePart(name, "U8", (size,), lambda: chunks)


def _pieces(tree: Any, levels: int) -> Iterator[bytes]:
    """The text of a tree; objects and lists are taken apart down to `levels`, the last ones in runs of cells."""
    if not tree or not levels or not isinstance(tree, dict | list):
        yield _JSON.encode(tree).encode()
    elif isinstance(tree, dict):
        for number, (key, value) in enumerate(tree.items()):
            yield (b"," if number else b"{") + _JSON.encode(key).encode() + b":"
            yield from _pieces(value, levels - 1)
        yield b"}"
    elif levels > 1:
        for number, value in enumerate(tree):
            yield b"," if number else b"["
            yield from _pieces(value, levels - 1)
        yield b"]"
    else:
        for start in range(0, len(tree), _CELLS_PER_PIECE):
            text = _JSON.encode(tree[start : start + _CELLS_PER_PIECE])
            yield (b"," if start else b"[") + text[1:-1].encode()
        yield b"]"
