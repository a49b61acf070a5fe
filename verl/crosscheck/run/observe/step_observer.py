# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a live run does about each of its steps besides the exchange: record it and, in mode `ckpt`, compare it.

What cannot be recorded is marked missing, with the reason; it never stops the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate, Load
from verl.crosscheck.run.observe.attempts import Attempts
from verl.crosscheck.run.observe.gather import blank_evidence, evidence_of_batch
from verl.crosscheck.run.observe.live_comparison import LiveComparison
from verl.crosscheck.run.observe.sampling import sampling_of
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import CkptFormat, Detail, ShareMode, ShareSettings
from verl.crosscheck.weights.change.watch import WeightWatch
from verl.crosscheck.weights.sync import EngineDigests, EngineWeights


class StepObserver:
    """Records the steps of one run, and compares them with the other run's.

    Args:
        slot: the run's place in its session, whose folder the files go to.
        settings: of the run; `evidence` off records nothing.
    """

    def __init__(self, slot: RunSlot, settings: ShareSettings, times: StepTimes) -> None:
        self._slot, self._settings, self._times = slot, settings, times
        self._on = settings.evidence is not Detail.OFF
        self._attempts = Attempts()
        self._comparison = LiveComparison(slot, self._attempts)
        self._sampling: Mapping[str, Any] = {}
        self._missing: Mapping[str, Reason] = {}
        self._watch: WeightWatch | None = None
        self._engine: EngineWeights | None = None
        self._samples = slot.mode == ShareMode.CKPT.value
        """Whether the run's own engine generates."""
        self._thread = ThreadPoolExecutor(1, "crosscheck-observer")
        self._pending_digests: Future[EngineDigests] | None = None
        self._changes: tuple[Mapping[str, Any], Mapping[str, Reason]] = ({}, {})

    def note_sampling(self, config: Any, tokenizer: Any) -> None:
        """Note how the run samples and trains; it goes into the evidence of each step."""
        if self._on:
            self._sampling, self._missing = sampling_of(config, tokenizer)

    def begin(self, workers: Any) -> None:
        """Begin before the first step, with the weights that `workers`, the actor's worker group, hold. The engine has
        been sent none yet."""
        if not self._on:
            return
        self._watch = WeightWatch(workers, self._settings.weight_change)
        with self._times.spent("evidence"):
            self._watch.begin()
            if self._samples:
                self._engine = EngineWeights(workers)
                self._engine.begin()

    def observe(
        self, observed: Callable[[], ActorUpdate] | None, update_index: int, form: CkptFormat | None
    ) -> StepEvidence | None:
        """Return the evidence of an update, still to be completed; None if none is recorded.

        Args:
            observed: gives the update; None if the caller has none to give.
            form: of the pair's checkpoints, if that is known.
        """
        self._changes = ({}, {"changes": _NOT_ASKED})
        self._pending_digests = None
        if observed is None or not self._on:
            return None
        with self._times.spent("evidence"):
            update = self._attempts.result("the evidence of this step", observed)
            evidence = None if update is None else self._evidence(update, update_index, form)
        if evidence is not None and self._engine is not None:  # answered while this run waits for the other one
            self._pending_digests = self._thread.submit(self._engine.read)
        return evidence

    def _evidence(self, update: ActorUpdate, update_index: int, form: CkptFormat | None) -> StepEvidence:
        sampling = {**self._sampling, **({"ckpt_format": form.value} if form is not None else {})}
        slot, detail = self._slot, self._settings.evidence
        blank = blank_evidence(update, slot.mode, slot.run_id, update_index, detail, sampling)
        evidence, reason = self._attempts.result_or_reason(
            "the rows of this step", lambda: evidence_of_batch(update, blank, self._settings.evidence_tokens)
        )
        if evidence is None:
            evidence = replace(blank, missing={"rows": because(ReasonCode.NOT_RECORDED_ERROR, error=reason)})
        return replace(evidence, missing={**evidence.missing, **self._missing})

    def before_load(self) -> None:
        """Mode `ckpt`: the other run's weights are about to be loaded over the own ones."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._watch.before_load()

    def after_load(self) -> None:
        """Mode `ckpt`: the other run's weights have been loaded."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._changes = self._watch.after_load()

    def reloaded(self, actor: ActorFiles) -> ActorFiles:
        """Return `actor` for a load of this run's own weights, saved before it was resumed: changes count from them."""
        watch = self._watch
        if watch is None:
            return actor

        def around(load: Load) -> Load:
            def load_and_begin(path: str) -> None:
                load(path)
                watch.begin()

            return load_and_begin

        portable = actor.load_portable
        return replace(actor, load=around(actor.load), load_portable=None if portable is None else around(portable))

    def keep_own(self, evidence: StepEvidence | None) -> None:
        """Mode `rollout`: record, before the other run can see the checkpoint."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._changes = self._watch.own_only()
        self._save(evidence)

    def compare(self, evidence: StepEvidence | None) -> None:
        """Mode `ckpt`: record, and compare with what the other run has recorded."""
        evidence = self._save(evidence)
        if evidence is not None:
            with self._times.spent("evidence"):
                self._comparison.compare(evidence)

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the latest comparison."""
        return self._comparison.metrics

    def _save(self, evidence: StepEvidence | None) -> StepEvidence | None:
        if evidence is None:
            return None
        with self._times.spent("evidence"):
            weights, no_weights = (
                self._pending_digests.result() if self._pending_digests else ({}, {"weights": self._why_no_digests})
            )
            changes, no_changes = self._changes
            missing = {**evidence.missing, **no_changes, **no_weights}
            complete = replace(evidence, changes=changes, weights=weights, missing=missing)
            self._attempts.keep(
                self._slot.names.evidence(complete.global_step), lambda path: files.save(path, complete)
            )
        return complete

    @property
    def _why_no_digests(self) -> Reason:
        return _NOT_ASKED if self._samples else _GENERATES_NOTHING


_GENERATES_NOTHING = because(ReasonCode.GENERATES_NOTHING)
_NOT_ASKED = because(ReasonCode.WORKERS_NOT_NAMED)
