# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/schema: the JSON Schema of each document type in the package. Run by scripts/schemas."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

from verl.crosscheck.exchange.documents import Document, json_schema

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "schema"


def schemas() -> dict[str, str]:
    """Return the content of every file of docs/schema, by file name."""
    for path in sorted((ROOT / "verl" / "crosscheck").rglob("*.py")):
        if "(Document, frozen=True" in path.read_text(encoding="utf-8"):
            importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    kinds = [kind for kind in Document.__subclasses__() if kind.__module__.startswith("verl.crosscheck.")]
    return {f"{kind.SCHEMA.rpartition('/')[2]}.json": _text(kind) for kind in kinds}


def _text(kind: type[Document]) -> str:
    return json.dumps(json_schema(kind), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.json"):
        old.unlink()
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
