# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the rollout engine holds the weights that it was sent: what the trainer calls. Never stops a run.

    sync = EngineWeights(actor_rollout_wg)
    sync.begin()                             # before the first weights are sent
    weights, missing = sync.read()           # in each step, between sampling and the next update of the weights

Sent tensors are digested by the training workers as they are sent, held ones by the servers when asked, from the model
that they serve. Both take the values in the dtype in which the server holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.weights.calls import run_on_all, told
from verl.crosscheck.weights.change.on_worker import actor_worker

EngineDigests = tuple[dict[str, str], dict[str, Reason]]
"""Digests by `sent/{tensor}` and `held/{tensor}`, and what is missing and why, as `StepEvidence.weights` and
`missing` want it."""

Digests = Mapping[str, str]


class EngineWeights:
    """Asks training workers and rollout servers for digests of the rollout engine's weights.

    Reading ends with the first error, whose reason is then told in each step.

    Args:
        worker_group: upstream's worker group that holds actor and rollout.
    """

    def __init__(self, worker_group: Any) -> None:
        self._group = worker_group
        self._reason: Reason | None = None

    def begin(self) -> None:
        """From the next update of the engine's weights on, digests are noted as they are sent."""
        for reason in self._ask(lambda: run_on_all(self._group, note_sent)) or []:
            self._reason = self._reason or reason

    def read(self) -> EngineDigests:
        """Digests of the last update's tensors, as sent and as held now."""
        pairs = self._ask(self._pairs)
        if self._reason is None and not any(sent for sent, _ in pairs or []):
            return {}, {"weights": because(ReasonCode.NOTHING_SENT)}
        if pairs is None:
            return {}, {} if self._reason is None else {"weights": self._reason}
        return combine_replicas(pairs), {}

    def _pairs(self) -> list[tuple[Digests, Digests]]:
        """Digests that each rank sent, and that its server holds."""
        answers: list[tuple[str, dict[str, str]]] = run_on_all(self._group, read_sent)
        held = [ray.get_actor(name).weight_digests.remote(list(sent)) for name, sent in answers]
        return [(sent, held) for (_, sent), held in zip(answers, ray.get(held), strict=True)]

    def _ask(self, question: Callable[[], list[Any]]) -> list[Any] | None:
        if self._reason is not None:
            return None
        try:
            return question()
        except Exception as e:  # a run is not to end because it cannot be watched
            self._reason = because(ReasonCode.DIGESTS_ERROR, error=told(e))
        return None


def combine_replicas(pairs: Sequence[tuple[Digests, Digests]]) -> dict[str, str]:
    """One digest of each tensor as sent and one as held, from those of all replicas.

    A tensor's two are equal if and only if each replica holds what it was sent. Where replicas differ among each other,
    their digests are joined, in their order. A tensor that a replica lacks counts as one of another value.
    """
    combined = {}
    for name in dict.fromkeys(name for sent, _ in pairs for name in sent):
        for kind, side in (("sent", 0), ("held", 1)):
            digests = [pair[side].get(name, "absent") for pair in pairs]
            combined[f"{kind}/{name}"] = digests[0] if len(set(digests)) == 1 else "|".join(digests)
    return combined


def note_sent(held: Any) -> Reason | None:
    """Runs in a worker's actor: let its rollout note digests. Returns the reason if it cannot."""
    rollout: Any = getattr(actor_worker(held), "rollout", None)
    if hasattr(rollout, "note_digests"):
        rollout.note_digests()
        return None
    return because(ReasonCode.ENGINE_WITHOUT_DIGESTS, engine=type(rollout).__name__)


def read_sent(held: Any) -> tuple[str, dict[str, str]]:
    """Runs in a worker's actor: the name of its rollout's server, and the digests that its rollout noted."""
    rollout = actor_worker(held).rollout
    return rollout.server_name, rollout.sent_digests()
