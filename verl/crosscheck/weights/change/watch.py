# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How far an update moved each of the actor's tensors: what the trainer calls. Never stops a run.

watch = WeightWatch(actor_rollout_wg, ChangeDetail.FULL)
watch.begin()                            # before the first step, after a resume
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
from verl.crosscheck.weights.calls import one_line, run_on_all
from verl.crosscheck.weights.change import on_worker
from verl.crosscheck.weights.change.on_worker import ChangePart

Changes = tuple[dict[str, TensorChange], dict[str, Reason]]
"""Changes by tensor, and what is missing of them and why: `StepEvidence.changes` and `missing`."""


class WeightWatch:
    """Asks the training workers for the changes of the actor's weights.

    Each worker measures what it holds and sends a few numbers per tensor; nothing is gathered or communicated.
    `ChangeDetail` says what memory that takes. With FSDP and FSDP2 a tensor's norms are those of the whole tensor, also
    where ranks hold replicas of it. With Megatron each replica counts: with r of them all three norms of a tensor are
    too large by the square root of r.

    The first error of a worker ends the measuring; each later step has the same reason.

    Args:
        worker_group: upstream's worker group that holds the actor.
        detail: what to measure.
    """

    def __init__(self, worker_group: Any, detail: ChangeDetail) -> None:
        self._group = worker_group
        self._full = detail is ChangeDetail.FULL
        self._reason = because(ReasonCode.CHANGE_OFF) if detail is ChangeDetail.OFF else None

    def begin(self) -> None:
        """Count changes from the present weights. Call it again whenever others were loaded without `before_load`."""
        self._ask(on_worker.remember)

    def before_load(self) -> None:
        """Measure an update, before the other run's weights are loaded over its result."""
        self._ask(on_worker.before_load, self._full)

    def after_load(self) -> Changes:
        """Return the changes of both runs, and count changes from the loaded weights."""
        changes = self._changes(on_worker.after_load)
        if self._reason is None and not self._full:
            changes[1]["changes/apart"] = because(ReasonCode.CHANGE_NORM)
        return changes

    def own_only(self) -> Changes:
        """Return the changes of this run's update, and count changes from its result."""
        return self._changes(on_worker.own_change)

    def _changes(self, function: Callable[..., Any]) -> Changes:
        parts = self._ask(function)
        if parts is None:
            return {}, {} if self._reason is None else {"changes": self._reason}
        return combine(parts), {}

    def _ask(self, function: Callable[..., Any], *args: Any) -> list[Any] | None:
        """Return all workers' answers; None if there is a reason for not having any."""
        if self._reason is not None:
            return None
        try:
            return run_on_all(self._group, function, *args)
        except Exception as e:  # a failed measurement must not end a run
            error = one_line(e)
            self._reason = because(ReasonCode.CHANGE_ERROR, error=error)
        try:
            run_on_all(self._group, on_worker.forget)
        except Exception as e:
            self._reason = because(ReasonCode.CHANGE_ERROR_AND_MEMORY, error=error, memory_error=one_line(e))
        return None


def combine(ranks: Sequence[Mapping[str, ChangePart]]) -> dict[str, TensorChange]:
    """Return norms by tensor from the parts of all ranks."""
    names = dict.fromkeys(name for rank in ranks for name in rank)
    return {name: _norms([rank[name] for rank in ranks if name in rank]) for name in names}


def _norms(parts: Sequence[ChangePart]) -> TensorChange:
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


def _copies(parts: Sequence[ChangePart]) -> int:
    """Return how many replicas of a tensor the ranks hold together, 1 if not known. Rounded: FSDP pads its shards."""
    whole = parts[0].whole
    return max(1, round(sum(part.elements for part in parts) / whole)) if whole else 1
