# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the rollout engine holds the weights that it was sent: what the trainer calls. Never stops a run.

    sync = EngineWeights(actor_rollout_wg)
    sync.begin()                             # before the first weights are sent
    weights, missing = sync.read()           # in each step, between sampling and the next update of the weights

The training workers digest each tensor as they send it. The servers digest, when asked, the tensors of the model that
they serve. Both take the values in the dtype in which the server holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ray

from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.weights.calls import actor_worker, one_line, run_on_all

EngineDigests = tuple[dict[str, str], dict[str, Reason]]
"""Digests by `sent/{tensor}` and `held/{tensor}`, and what is missing and why: `StepEvidence.weights` and `missing`."""

Digests = Mapping[str, str]


class EngineWeights:
    """Asks training workers and rollout servers for digests of the rollout engine's weights.

    The first error ends the reading; each later step has the same reason.

    Args:
        worker_group: upstream's worker group that holds actor and rollout.
    """

    def __init__(self, worker_group: Any) -> None:
        self._group = worker_group
        self._reason: Reason | None = None

    def begin(self) -> None:
        """Have digests noted as weights are sent, from the next update of the engine's weights on."""
        for reason in self._ask(lambda: run_on_all(self._group, note_sent)) or []:
            self._reason = self._reason or reason

    def read(self) -> EngineDigests:
        """Return digests of the last update's tensors, as sent and as held now."""
        pairs = self._ask(self._pairs)
        if self._reason is None and not any(sent for sent, _ in pairs or []):
            return {}, {"weights": because(ReasonCode.NOTHING_SENT)}
        if pairs is None:
            return {}, {} if self._reason is None else {"weights": self._reason}
        return combine_replicas(pairs), {}

    def _pairs(self) -> list[tuple[Digests, Digests]]:
        """Return digests that each rank sent, and digests of what its server holds."""
        answers: list[tuple[str, dict[str, str]]] = run_on_all(self._group, read_sent)
        calls = [ray.get_actor(name).weight_digests.remote(list(sent)) for name, sent in answers]
        return [(sent, served) for (_, sent), served in zip(answers, ray.get(calls), strict=True)]

    def _ask(self, question: Callable[[], list[Any]]) -> list[Any] | None:
        if self._reason is not None:
            return None
        try:
            return question()
        except Exception as e:  # a failed measurement must not end a run
            self._reason = because(ReasonCode.DIGESTS_ERROR, error=one_line(e))
        return None


def combine_replicas(pairs: Sequence[tuple[Digests, Digests]]) -> dict[str, str]:
    """Return one digest of each tensor as sent and one as held, from those of all replicas.

    A tensor's two are equal if and only if each replica holds what it was sent. Where replicas differ from each other,
    their digests are joined in their order. A tensor that a replica lacks counts as one of another value.
    """
    combined = {}
    for name in dict.fromkeys(name for sent, _ in pairs for name in sent):
        for kind, side in (("sent", 0), ("held", 1)):
            digests = [pair[side].get(name, "absent") for pair in pairs]
            combined[f"{kind}/{name}"] = digests[0] if len(set(digests)) == 1 else "|".join(digests)
    return combined


def note_sent(worker: Any) -> Reason | None:
    """Let the worker's rollout note digests; return the reason if it cannot. Runs inside a worker."""
    rollout: Any = getattr(actor_worker(worker), "rollout", None)
    if hasattr(rollout, "note_digests"):
        rollout.note_digests()
        return None
    return because(ReasonCode.ENGINE_WITHOUT_DIGESTS, engine=type(rollout).__name__)


def read_sent(worker: Any) -> tuple[str, dict[str, str]]:
    """Return the name of the server of the worker's rollout, and the noted digests. Runs inside a worker."""
    rollout = actor_worker(worker).rollout
    return rollout.server_name, rollout.sent_digests()
