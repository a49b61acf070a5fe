# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/schema: the JSON Schema of each document type in the package. Run by scripts/schemas."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from verl.crosscheck.exchange.documents import NOT_FINITE, Document, Number

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "schema"


def schemas() -> dict[str, str]:
    """Return the content of every file of docs/schema, by file name."""
    for path in sorted((ROOT / "verl" / "crosscheck").rglob("*.py")):
        if "(Document, frozen=True" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    kinds = [kind for kind in Document.__subclasses__() if kind.__module__.startswith("verl.crosscheck.")]
    return {f"{kind.SCHEMA.rpartition('/')[2]}.json": _text(kind) for kind in kinds}


def json_schema(kind: type[Document]) -> dict[str, Any]:
    """Return the JSON Schema of a document type."""
    _, parts = msgspec.json.schema_components([kind], schema_hook=_number_schema, ref_template="#/$defs/{name}")
    for each in _structs(msgspec.inspect.type_info(kind)):
        if getattr(each, "COMPLETE", False):
            parts[each.__name__]["required"] = list(parts[each.__name__]["properties"])
    own = parts.pop(kind.__name__)
    own["properties"] = {
        "schema": {"const": kind.SCHEMA},
        "schema_version": {"const": kind.SCHEMA_VERSION},
        **own["properties"],
    }
    own["required"] = ["schema", "schema_version", *own["required"]]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": kind.SCHEMA}
    return {**head, **own, **({"$defs": parts} if parts else {})}


def _structs(info: Any) -> Iterator[type[msgspec.Struct]]:
    """All struct types in a type."""
    parts = [*getattr(info, "types", ()), *getattr(info, "item_types", ())]
    parts += [getattr(info, name) for name in ("item_type", "value_type") if hasattr(info, name)]
    if isinstance(info, msgspec.inspect.StructType):
        yield info.cls
        parts = [field.type for field in info.fields]
    for part in parts:
        yield from _structs(part)


def _number_schema(kind: type) -> dict[str, Any]:
    if kind is not Number:
        raise NotImplementedError(kind)
    return {"anyOf": [{"type": "number"}, {"enum": list(NOT_FINITE)}]}


def _text(kind: type[Document]) -> str:
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
