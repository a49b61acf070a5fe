# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far an update moved each of the actor's tensors: what the trainer calls. Never stops a run.

watch = WeightWatch(actor_rollout_wg, ChangeDetail.FULL)
watch.begin()                            # once the trainer has resumed, or not
# mode ckpt, after each actor update:
watch.before_load()
...                                      # the other run's checkpoint is loaded
changes, missing = watch.after_load()
# mode rollout, after each actor update:
changes, missing = watch.own_only()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from verl.crosscheck.evidence.step import TensorChange
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.settings import ChangeDetail
from verl.crosscheck.weights.calls import run_on_all, told
from verl.crosscheck.weights.change import on_worker
from verl.crosscheck.weights.change.memory import RememberedPart

Changes = tuple[dict[str, TensorChange], dict[str, Reason]]
"""Changes by tensor, and what is missing of them and why, as `StepEvidence.changes` and `missing` want it."""


class WeightWatch:
    """Asks the training workers for the changes of the actor's weights, shard by shard.

    Each worker works on what it holds and sends a few numbers per tensor; nothing is gathered or communicated. What
    memory that takes is told at `ChangeDetail`. With FSDP and FSDP2 a tensor's norms are those of the whole tensor,
    also where ranks hold replicas of it. With Megatron each replica counts, so with r of them a tensor's norms are too
    large by the square root of r, all three alike.

    Measuring ends with the first error of a worker, whose reason is then told in each step.

    Args:
        worker_group: upstream's worker group that holds the actor.
        detail: what to measure.
    """

    def __init__(self, worker_group: Any, detail: ChangeDetail) -> None:
        self._group = worker_group
        self._full = detail is ChangeDetail.FULL
        self._reason = because(ReasonCode.CHANGE_OFF) if detail is ChangeDetail.OFF else None

    def begin(self) -> None:
        """From now on changes count from the present weights. To be called again whenever others were loaded in ways
        that this object does not know of."""
        self._ask(on_worker.remember)

    def before_load(self) -> None:
        """An update has been done, and the other run's weights are about to be loaded over its result."""
        self._ask(on_worker.before_load, self._full)

    def after_load(self) -> Changes:
        """They have been loaded, and from now on changes count from them."""
        changes = self._changes(on_worker.after_load)
        if self._reason is None and not self._full:
            changes[1]["changes/apart"] = because(ReasonCode.CHANGE_NORM)
        return changes

    def own_only(self) -> Changes:
        """An update has been done, and from now on changes count from its result."""
        return self._changes(on_worker.own_change)

    def _changes(self, function: Callable[..., Any]) -> Changes:
        parts = self._ask(function)
        if parts is None:
            return {}, {} if self._reason is None else {"changes": self._reason}
        return combine(parts), {}

    def _ask(self, function: Callable[..., Any], *args: Any) -> list[Any] | None:
        """All workers' answers; None if there is a reason for not having any."""
        if self._reason is not None:
            return None
        try:
            return run_on_all(self._group, function, *args)
        except Exception as e:  # a run is not to end because it cannot be watched
            error = told(e)
            self._reason = because(ReasonCode.CHANGE_ERROR, error=error)
        try:
            run_on_all(self._group, on_worker.forget)
        except Exception as e:
            self._reason = because(ReasonCode.CHANGE_ERROR_AND_MEMORY, error=error, memory_error=told(e))
        return None


def combine(ranks: Sequence[Mapping[str, RememberedPart]]) -> dict[str, TensorChange]:
    """Norms by tensor from the parts of all ranks."""
    names = dict.fromkeys(name for rank in ranks for name in rank)
    return {name: _norms([rank[name] for rank in ranks if name in rank]) for name in names}


def _norms(parts: Sequence[RememberedPart]) -> TensorChange:
    copies = _copies(parts)
    own = _norm((part.own for part in parts), copies)
    assert own is not None
    other, apart = (_norm((getattr(part, name) for part in parts), copies) for name in ("other", "apart"))
    return TensorChange(own=own, other=other, apart=apart)


def _norm(squares: Iterable[float | None], copies: int) -> float | None:
    total = 0.0
    for each in squares:
        if each is None:
            return None
        total += each
    return math.sqrt(total / copies)


def _copies(parts: Sequence[RememberedPart]) -> int:
    """How many replicas of a tensor the ranks hold together; 1 where that is not known. FSDP pads its shards."""
    whole = parts[0].whole
    return max(1, round(sum(part.elements for part in parts) / whole)) if whole else 1
