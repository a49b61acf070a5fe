# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Actor checkpoints as upstream's workers write them, and what a checkpoint says of the update before it."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import MismatchError, PublishError
from verl.crosscheck.identity import digest
from verl.crosscheck.settings import DEVICE_KEY
from verl.crosscheck.weights.portable.device_kinds import device_kinds
from verl.protocol import DataProto

LAYOUT = ("device", "world_size", "strategy")
"""Entries of `actor_about` in which two runs must be equal to load each other's native checkpoints."""

_SHARD = re.compile(r"(?P<kind>.+)_world_size_(?P<world_size>[0-9]+)_rank_(?P<rank>[0-9]+)\.pt")


def actor_about(config: Any, batch: DataProto, global_step: int) -> dict[str, Any]:
    """Return what an actor update was made from, and by what kind of run, as plain JSON. Both runs must say the same.

    Upstream's checkpoints load only on the same kind of device, with the same number of ranks and kind of sharding
    (`LAYOUT`). The digest of the B rows does not depend on their order, which balancing the ranks changes.
    """
    tokens_BT = [batch.batch[key].cpu() for key in ("prompts", "responses") if key in batch.batch]
    rows = sorted(digest(list(row)) for row in zip(*tokens_BT, strict=True))
    return {
        "global_step": global_step,
        "batch_digest": digest(rows),
        "device": device_of(config),
        "world_size": world_size_of(config),
        "strategy": str(config.actor_rollout_ref.actor.strategy),
    }


def device_of(config: Any) -> str:
    """Return the kind of device that a run trains on: `cuda`, `npu` or `cpu`. Taken from the configuration, since Ray
    hides accelerators from the main program and from the trainer."""
    return str(config.trainer.get(DEVICE_KEY) or config.trainer.device)


def world_size_of(config: Any) -> int:
    """Return the number of ranks of the actor."""
    return int(config.trainer.nnodes) * int(config.trainer.n_gpus_per_node)


def require_device(folder: Path, device: str) -> None:
    """Raise if a native checkpoint holds tensors of a kind of device that this run does not have. Nothing is unpickled;
    the weights of rank 0 stand for all ranks.

    Raises:
        MismatchError: it holds such tensors; names the device.
        DamagedError: the file is not a pickle.
    """
    for file in sorted(folder.glob("model_world_size_*_rank_0.pt")):
        foreign = device_kinds(file) - {"cpu", "meta", device} if zipfile.is_zipfile(file) else set()
        if foreign:
            raise MismatchError(
                f"{file} was saved on {', '.join(sorted(foreign))}, and this run trains on {device}: upstream's own "
                "checkpoints do not cross that line. Nothing was loaded. Exchange portable ones, with "
                "trainer.share_data_ckpt_format=auto on both runs"
            )


def require_all_ranks(folder: Path) -> None:
    """Return if every rank's part of each kind of shard is in `folder`.

    If the nodes do not share the directory, each node saves its own part on its own disk, without an error.

    Raises:
        PublishError: parts are missing; says which.
    """
    ranks: dict[tuple[str, int], set[int]] = {}
    for match in filter(None, (_SHARD.fullmatch(path.name) for path in folder.iterdir())):
        ranks.setdefault((match["kind"], int(match["world_size"])), set()).add(int(match["rank"]))
    for (kind, world_size), found in sorted(ranks.items()):
        missing = sorted(set(range(world_size)) - found)
        if missing:
            raise PublishError(
                f"only {len(found)} of {world_size} ranks saved their part of {kind!r} into {folder}; the first "
                f"missing one is rank {missing[0]}. Is trainer.share_data_dir on a file system that all nodes share? "
                "Name one that is: trainer.share_data_dir=/mnt/shared/..."
            )


@contextmanager
def flatten_async_save(folder: Path, global_step: int) -> Iterator[Path]:
    """Yield a folder to save into asynchronously. At the end its content is moved directly into `folder`.

    When such a save is final, upstream writes a tracker of the latest step two folders up, which must not be the
    exchange directory's parent: that may be the folder of the run's own checkpoints.
    """
    step = folder / f"global_step_{global_step}"
    target = step / "actor"
    yield target
    for path in sorted(target.iterdir()):
        path.rename(folder / path.name)
    target.rmdir()
    step.rmdir()
    (folder / "latest_checkpointed_iteration.txt").unlink(missing_ok=True)
