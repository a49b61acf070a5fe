# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Portable weights of a worker group's actor: what the trainer calls.

reason = support(actor_rollout_wg)       # at start; empty if it can
saved = save(actor_rollout_wg, folder)   # an existing, empty folder that all nodes share
loaded = load(actor_rollout_wg, folder)  # raises unless every rank holds what was written
LoadNotices(print_line).show(loaded)     # what a person should know of it, once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from verl.crosscheck.errors import DamagedError, MismatchError, PublishError
from verl.crosscheck.weights.calls import ask_all
from verl.crosscheck.weights.portable import on_worker
from verl.crosscheck.weights.portable.checksum import TensorSum, first_difference, totals
from verl.crosscheck.weights.portable.loading import LoadedRank
from verl.crosscheck.weights.portable.manifest import PortableManifest, TensorEntry
from verl.crosscheck.weights.portable.saving import SavedRank
from verl.crosscheck.weights.portable.writing import name_files


@dataclass(frozen=True)
class SavedWeights:
    """What was written."""

    tensors: int
    files: int
    size_bytes: int
    """Size of the tensors."""
    left_out: int
    """Frozen tensors under LoRA adapters, of which only a checksum was written."""
    tied: dict[str, str]


@dataclass(frozen=True)
class LoadedWeights:
    """What was loaded. Tensors by their names in the reader's model."""

    tensors: int
    size_bytes: int
    """Size of the tensors in the folder."""
    converted: tuple[str, ...]
    """Tensors of another type here than there."""
    rounded: tuple[str, ...]
    """Those of them whose type here cannot hold every value."""
    not_compared: tuple[str, ...]
    """Frozen tensors under adapters that could not be compared, for their type here is the narrower one."""


def support(worker_group: Any) -> str:
    """Return why the actor cannot be exchanged this way, as what follows "not possible with"; empty if it can."""
    return next(filter(None, ask_all(worker_group, on_worker.unsupported)), "")


def save(worker_group: Any, folder: Path) -> SavedWeights:
    """Write the actor's weights into an existing folder.

    Raises:
        CrossCheckError: a worker could not; says which rank, and why.
    """
    return finish(folder, ask_all(worker_group, on_worker.save_portable, str(folder)))


def load(worker_group: Any, folder: Path) -> LoadedWeights:
    """Load a folder over the actor's weights, and compare every rank's checksums with the folder's.

    Raises:
        MismatchError: another model, or another base under the adapters; nothing was loaded.
        DamagedError: a file or what a rank holds is not what was written; names the first tensor.
        CrossCheckError: a worker could not; says which rank, and why.
    """
    prepared = ask_all(worker_group, on_worker.prepare_portable, str(folder))
    require_same_bases(folder, prepared)
    return summary(folder, prepared, ask_all(worker_group, on_worker.load_portable, str(folder)))


def finish(folder: Path, ranks: list[SavedRank]) -> SavedWeights:
    """Write what a folder says of itself, from what all ranks did.

    Raises:
        PublishError: what a rank wrote is not seen from here, or the ranks do not hold a tensor together.
    """
    written = [entry for rank in ranks for entry in rank.entries]
    for entry in written:
        if not (folder / entry.file).is_file():
            raise PublishError(
                f"{entry.file} was written into {folder}, and is not seen from here. Is trainer.share_data_dir on a "
                "file system that all nodes share? Name one that is: trainer.share_data_dir=/mnt/shared/..."
            )
    sums = totals(rank.parts for rank in ranks)
    entries, left_out = (
        {entry.name: _with_checksum(entry, sums.get(entry.name, {})) for entry in each}
        for each in (name_files(folder, written), ranks[0].left_out)
    )
    manifest = PortableManifest(entries, left_out, ranks[0].tied)
    manifest.write(folder)
    return SavedWeights(
        len(entries), len({entry.file for entry in written}), manifest.size_bytes, len(left_out), dict(manifest.tied)
    )


def _with_checksum(entry: TensorEntry, replicas: dict[int, TensorSum]) -> TensorEntry:
    found = list(replicas.values())
    if len(found) != 1 or found[0].elements != entry.elements:
        raise PublishError(f"{entry.name} has {entry.elements} elements, and the ranks that were asked hold {found}")
    return msgspec.structs.replace(entry, checksum=found[0].hex)


def require_same_bases(folder: Path, ranks: list[LoadedRank]) -> None:
    """Raise MismatchError unless the frozen tensors under the adapters are the other run's."""
    problem = first_difference((rank.parts for rank in ranks), ranks[0].expected)
    if problem:
        raise MismatchError(
            f"the adapters in {folder} belong on another base than this run's, and nothing of them was loaded: "
            f"{problem}. Start both runs from the same model"
        )


def summary(folder: Path, prepared: list[LoadedRank], ranks: list[LoadedRank]) -> LoadedWeights:
    """Return what was loaded. Raise DamagedError unless every replica holds what was written."""
    expected = ranks[0].expected
    problem = first_difference((rank.parts for rank in ranks), expected)
    if problem:
        raise DamagedError(f"{folder}: what was loaded is not what was written: {problem}. This run cannot go on")
    return LoadedWeights(
        len(expected),
        sum(entry.size_bytes for entry in {entry.name: entry for entry in expected.values()}.values()),
        tuple(ranks[0].converted),
        tuple(ranks[0].rounded),
        tuple(prepared[0].not_compared),
    )


class LoadNotices:
    """Says once in a run what a person should know of weights that were loaded.

    Args:
        say: prints a line.
    """

    def __init__(self, say: Callable[[str], object]) -> None:
        self._say = say
        self._said: set[str] = set()

    def show(self, loaded: LoadedWeights) -> None:
        """Print the lines that were not printed before."""
        for line in _lines(loaded):
            if line not in self._said:
                self._said.add(line)
                self._say(line)


def _lines(loaded: LoadedWeights) -> Iterator[str]:
    if loaded.rounded:
        yield (
            f"{len(loaded.rounded)} of {loaded.tensors} tensors are rounded when they are loaded, since this run holds "
            f"them in a narrower number format than the other run; the first is {loaded.rounded[0]}"
        )
    if loaded.not_compared:
        yield (
            f"Warning: {len(loaded.not_compared)} frozen tensors under the adapters could not be compared, since this "
            f"run holds them in a narrower number format; the first is {loaded.not_compared[0]}"
        )
