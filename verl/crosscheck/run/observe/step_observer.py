# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a live run does about each of its steps besides the exchange: record it and, in mode `ckpt`, compare it.

What cannot be recorded is marked missing, with the reason; it never stops the run.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from verl.crosscheck.console import MARK, say
from verl.crosscheck.diagnosis.assess import reassess
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.findings import State, StepComparison
from verl.crosscheck.diagnosis.findings_json import to_json
from verl.crosscheck.diagnosis.predictions import carried_on
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.publish import publish_json
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.redaction import text_without_secrets
from verl.crosscheck.report.live_line import live_line
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate, Load
from verl.crosscheck.run.observe.gather import blank_evidence, evidence_of_batch
from verl.crosscheck.run.observe.noise import NOT_ASKED, NoiseProbe
from verl.crosscheck.run.observe.sampling import sampling_of
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import CkptFormat, Detail, ShareMode, ShareSettings
from verl.crosscheck.weights.change.watch import WeightWatch
from verl.crosscheck.weights.sync import EngineDigests, EngineWeights
from verl.protocol import DataProto

PREFIX = "crosscheck/"
"""Prefix of the metrics of a comparison."""

_GENERATES_NOTHING = because(ReasonCode.GENERATES_NOTHING)
_NOT_ASKED = because(ReasonCode.WORKERS_NOT_NAMED)

T = TypeVar("T")


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
        self._noise: NoiseProbe | None = None
        self._samples = slot.mode is ShareMode.CKPT
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
        self._noise = NoiseProbe(workers, self._settings.noise_every, self._sampling)
        with self._times.spent("evidence"):
            self._watch.begin()
            if self._samples:
                self._engine = EngineWeights(workers)
                self._engine.begin()

    def before_update(self, batch: DataProto, global_step: int) -> None:
        """Predict how far rounding can move this step's numbers."""
        if self._noise is not None:
            with self._times.spent("noise"):
                self._noise.measure(batch, global_step)

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
        """Measure the own update in mode `ckpt`, before the other run's weights are loaded over its result."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._watch.before_load()

    def after_load(self) -> None:
        """Measure the other run's update in mode `ckpt`, after its weights have been loaded."""
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
        """Record the step in mode `rollout`, before the other run can see the checkpoint."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._changes = self._watch.own_only()
        self._save(evidence)

    def compare(self, evidence: StepEvidence | None) -> None:
        """Record the step in mode `ckpt`, and compare it with what the other run has recorded."""
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
            why = _NOT_ASKED if self._samples else _GENERATES_NOTHING
            pending = self._pending_digests
            weights, no_weights = pending.result() if pending else ({}, {"weights": why})
            changes, no_changes = self._changes
            noise, no_noise = ({}, {"noise": NOT_ASKED}) if self._noise is None else self._noise.take()
            missing = {**evidence.missing, **no_changes, **no_weights, **no_noise}
            complete = replace(evidence, changes=changes, weights=weights, noise=noise, missing=missing)
            self._attempts.keep(
                self._slot.names.evidence(complete.global_step), lambda path: files.save(path, complete)
            )
        return complete


class LiveComparison:
    """Compares the evidence of a run in mode `ckpt` with the other run's, as soon as there are both: metrics for the
    tracker, one line in the log, and a file for the report.

    Args:
        slot: the run's place in its session.
        attempts: of the run.
    """

    def __init__(self, slot: RunSlot, attempts: Attempts) -> None:
        self._slot, self._attempts = slot, attempts
        self.metrics: dict[str, float] = {}
        """Of the latest step, by the names that a tracker shows."""
        self._before: StepComparison | None = None

    def compare(self, own: StepEvidence) -> None:
        """Compare the step that `own` is of; the other run has recorded it before it published its checkpoint."""
        self.metrics = {}
        other = self._other(own.global_step)
        if other is None:
            return
        comparison = self._attempts.result("the comparison", lambda: self._compared(own, other))
        if comparison is None:
            return
        self.metrics = metrics_of(comparison)
        differs = any(each.state is State.DIFFER for each in comparison.findings)
        say(MARK, live_line(comparison), "red" if differs else "green")
        self._attempts.keep(
            self._slot.names.comparison(own.global_step),
            lambda path: publish_json(path, to_json(comparison), replace=True, durable=False),
        )

    def _compared(self, own: StepEvidence, other: StepEvidence) -> StepComparison:
        """Return the comparison; without predictions of its own it has those of the step before."""
        limits = limits_for(own.sampling, other.sampling)
        comparison = compare_step(own, other, limits)
        if self._before is not None:
            comparison = reassess(carried_on([self._before, comparison])[1], limits)
        self._before = comparison
        return comparison

    def _other(self, global_step: int) -> StepEvidence | None:
        try:
            return files.load_of_step(self._slot.session.folder, ShareMode.ROLLOUT, global_step)
        except Exception as e:  # whatever the other run has left there
            say(MARK, f"Warning: step {global_step} cannot be compared: {e}. The run goes on", "yellow")
            return None


def metrics_of(comparison: StepComparison) -> dict[str, float]:
    """Return each quantity that was compared, how many exceed their threshold, and how many were not compared."""
    values = {
        f"{PREFIX}{each.aspect.value}/{each.quantity}": each.value
        for each in comparison.findings
        if each.value is not None
    }
    count = {state: sum(each.state is state for each in comparison.findings) for state in State}
    return {
        **values,
        f"{PREFIX}beyond_limit": float(count[State.DIFFER]),
        f"{PREFIX}not_compared": float(count[State.MISSING]),
    }


class Attempts:
    """Attempts of one run that must not stop it: what fails is reported in the log, once for each reason, and is not
    recorded."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def result(self, what: str, make: Callable[[], T]) -> T | None:
        """Return what `make` returns; None, with a warning that `what` is not recorded, if it fails."""
        return self.result_or_reason(what, make)[0]

    def result_or_reason(self, what: str, make: Callable[[], T]) -> tuple[T | None, str]:
        """Return as `result` does, and why there is nothing; an empty reason if there is something."""
        try:
            return make(), ""
        except Exception as e:
            reason = text_without_secrets(f"{type(e).__name__}: {e}", os.environ)
        if reason not in self._warned:
            self._warned.add(reason)
            say(MARK, f"Warning: {what} is not recorded ({reason}). The run goes on; the verdict lacks it", "yellow")
        return None, reason

    def keep(self, path: Path, write: Callable[[Path], object]) -> None:
        """Call `write` with a path in the run's folder; its folder is made, for its owner alone, if it is missing."""

        def make_folder_and_write() -> None:
            with suppress(FileExistsError):
                filesystem.active().mkdir(path.parent)
            write(path)

        self.result(str(path), make_folder_and_write)
