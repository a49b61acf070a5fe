# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every name on disk, and nothing else. Nobody builds or takes apart a name of the exchange anywhere else."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

MANIFEST = "manifest.json"
"""Last file written into a checkpoint; lists the others."""

STAGING_PREFIX = ".staging-"
"""What is being written. A reader never looks inside, and a crash leaves nothing else behind."""

_ARTEFACT = re.compile(r"(rollout|ckpt)_(0|[1-9][0-9]*)")


@dataclass(frozen=True)
class Layout:
    """Names below one exchange directory."""

    root: Path

    def rollout(self, index: int) -> Path:
        """File of the `index`-th call of `generate_sequences`, counted from 0."""
        return self.root / f"rollout_{index}"

    def ckpt(self, index: int) -> Path:
        """Folder of the actor after its `index`-th update, counted from 0."""
        return self.root / f"ckpt_{index}"


def staging(final: Path, writer: str) -> Path:
    """Where `writer` (a name unique to the process) prepares `final`: beside it, so that a rename is atomic."""
    return final.with_name(f"{STAGING_PREFIX}{final.name}-{writer}")


def is_staged(path: Path) -> bool:
    """Whether `path` is, or lies in, something that is being prepared for the other run."""
    return any(part.startswith(STAGING_PREFIX) for part in path.parts)


def is_of_kind(name: str, kind: str) -> bool:
    """Whether a file name is that of an artefact of `kind` ("rollout" or "ckpt"), complete or staged."""
    match = _ARTEFACT.match(name.removeprefix(STAGING_PREFIX))
    return match is not None and match.group(1) == kind


def artefacts(names: list[str], kind: str) -> list[int]:
    """Indexes of the artefacts of `kind` ("rollout" or "ckpt") among file `names`, ascending."""
    matches = (_ARTEFACT.fullmatch(name) for name in names)
    return sorted(int(m.group(2)) for m in matches if m and m.group(1) == kind)
