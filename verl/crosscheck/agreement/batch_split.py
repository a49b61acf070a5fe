# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How a run splits the rows of an update over ranks and mini-batches, and whether two runs then do the same update.

Data-parallel ranks take equal parts of the batch, and each rank cuts its own part into mini-batches. With several
mini-batches a step, the rows of one therefore depend on the number of ranks. A single one holds all rows in every
layout. Called by the agreement check on configurations and by the comparison on evidence; pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from verl.crosscheck.agreement.table import has_critic, new_workers, splits_evenly
from verl.crosscheck.reasons import Reason, ReasonCode, because

ACTOR = "actor_rollout_ref.actor"


@dataclass(frozen=True)
class BatchSplit:
    """How a run splits the rows of an update. None means not known."""

    ranks: int | None
    """Data-parallel ranks of the actor."""
    mini_batches: int | None
    """Mini-batches in a step, each of them one step of the optimizer."""
    mean_by_rank: bool
    """Whether each rank takes the mean over its own tokens, so that a token of a short part weighs more."""
    critic_mini_batches: int | None = None
    """The same of the critic; None also without a critic."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Any) -> BatchSplit | None:
        """Return what of `to_json` can be read; None if nothing can."""
        if not isinstance(value, Mapping):
            return None
        names = ("ranks", "mini_batches", "critic_mini_batches")
        ranks, mini_batches, of_critic = (_count(value.get(name)) for name in names)
        return cls(ranks, mini_batches, value.get("mean_by_rank") is True, of_critic)


def batch_split_of(flat: Mapping[str, Any]) -> BatchSplit:
    """Return the batch split of a flat configuration."""
    return BatchSplit(
        ranks=_ranks(flat),
        mini_batches=_mini_batches(flat, ACTOR),
        mean_by_rank=not splits_evenly(flat),
        critic_mini_batches=_mini_batches(flat, "critic") if has_critic(flat) else None,
    )


def _mini_batches(flat: Mapping[str, Any], section: str) -> int | None:
    batch, mini_batch = (_count(flat.get(key)) for key in ("data.train_batch_size", f"{section}.ppo_mini_batch_size"))
    return ceil(batch / mini_batch) if batch and mini_batch else None


def why_other_advantages(own: BatchSplit, other: BatchSplit) -> Reason | None:
    """Return why the critics of two healthy runs drift apart, and with them the advantages; None if they do not, as far
    as is known."""
    if own.ranks is None or other.ranks is None or own.ranks == other.ranks:
        return None
    several = [each.critic_mini_batches for each in (own, other) if each.critic_mini_batches not in (None, 1)]
    if not several:
        return None
    return because(
        ReasonCode.CRITICS_SPLIT_OTHERWISE,
        own_ranks=own.ranks,
        other_ranks=other.ranks,
        mini_batches=several[0] or 0,
    )


def why_other_updates(own: BatchSplit, other: BatchSplit) -> Reason | None:
    """Return why two healthy runs do not do the same update on the same rows; None if they do, as far as is known."""
    if own.ranks is None or other.ranks is None or own.ranks == other.ranks:
        return None
    ranks = {"own_ranks": own.ranks, "other_ranks": other.ranks}
    several = [each.mini_batches for each in (own, other) if each.mini_batches not in (None, 1)]
    if several:
        return because(ReasonCode.UPDATES_SPLIT_OTHERWISE, **ranks, mini_batches=several[0] or 0)
    if own.mean_by_rank or other.mean_by_rank:
        return because(ReasonCode.LOSSES_WEIGHED_OTHERWISE, **ranks)
    return why_other_advantages(own, other)


def _ranks(flat: Mapping[str, Any]) -> int | None:
    """Return the data-parallel ranks of the actor."""
    if flat.get(f"{ACTOR}.strategy") == "megatron":
        names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
        sharing = [flat.get(f"{ACTOR}.megatron.{name}", 1) for name in names]
    else:
        sharing = [_sequence_parallel(flat)]
    world = _product(flat.get(f"trainer.{name}") for name in ("nnodes", "n_gpus_per_node"))
    each = _product(sharing)
    return max(1, world // each) if world and each else None


def _sequence_parallel(flat: Mapping[str, Any]) -> Any:
    """Return its size. Legacy workers read the actor's key; new ones their engine's, to which upstream copies it."""
    sizes = [flat.get(f"{ACTOR}.ulysses_sequence_parallel_size", 1)]
    if new_workers(flat):
        sizes.append(flat.get(f"{ACTOR}.fsdp_config.ulysses_sequence_parallel_size", 1))
    counts = [_count(each) for each in sizes]
    return max((each for each in counts if each is not None), default=None)


def _product(values: Iterable[Any]) -> int | None:
    total = 1
    for value in values:
        count = _count(value)
        if count is None:
            return None
        total *= count
    return total


def _count(value: Any) -> int | None:
    return value if type(value) is int and value > 0 else None
