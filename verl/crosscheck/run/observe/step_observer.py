# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a live run does about each of its steps besides the exchange: record it and, in mode `ckpt`, compare it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf

from verl.crosscheck.console import MARK, say
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.run.actor_files import ActorFiles, Load
from verl.crosscheck.run.observe.gather import Observed
from verl.crosscheck.run.observe.live_comparison import LiveComparison
from verl.crosscheck.run.observe.recorder import Recorder
from verl.crosscheck.run.observe.sampling import sampling_of
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import ChangeDetail, CkptFormat, ShareMode
from verl.crosscheck.weights.change.watch import WeightWatch
from verl.crosscheck.weights.sync import EngineDigests, EngineWeights
from verl.trainer.config.config import TrainerConfig


class StepObserver:
    """Of one run.

    Args:
        place: its place in the session.
        trainer: its trainer section.
    """

    def __init__(self, place: RunSlot, trainer: TrainerConfig, times: StepTimes) -> None:
        self._times = times
        self._recorder = Recorder(place, trainer.evidence_detail, trainer.share_data_evidence_tokens, times)
        self._comparison = LiveComparison(place, self._recorder)
        self._change_detail = trainer.weight_change if self._recorder.on else ChangeDetail.OFF
        self._watch: WeightWatch | None = None
        self._engine: EngineWeights | None = None
        self._samples = place.mode == ShareMode.CKPT.value
        self._thread = ThreadPoolExecutor(1, "crosscheck-witness")
        self._held: Future[EngineDigests] | None = None
        self._changes: tuple[Mapping[str, Any], Mapping[str, Reason]] = ({}, {})

    def tell_sampling(self, config: Any, tokenizer: Any) -> None:
        """How the run samples and trains."""
        if self._recorder.on:
            self._recorder.tell_sampling(*sampling_of(config, tokenizer))

    def begin(self, actor: Any) -> None:
        """Training is about to begin with the weights that the workers hold, none having been sent to the engine.

        Args:
            actor: upstream's worker group that holds the actor.
        """
        if self._recorder.on:
            self._watch = WeightWatch(actor, self._change_detail)
            with self._times.spent("evidence"):
                self._watch.begin()
                if self._samples:  # the other mode's engine generates nothing
                    self._engine = EngineWeights(actor)
                    self._engine.begin()

    def observe(
        self, observed: Callable[[], Observed] | None, update_index: int, form: CkptFormat | None = None
    ) -> StepEvidence | None:
        """The actor has been updated. The evidence of it, still to be completed; None if none is recorded."""
        if observed is None:
            return None
        evidence = self._recorder.observe(observed, update_index, form)
        self._changes = ({}, {"changes": _NOT_ASKED})
        self._held = None
        if evidence is not None and self._engine is not None:  # answered while this run waits for the other one
            self._held = self._thread.submit(self._engine.read)
        return evidence

    def before_load(self) -> None:
        """Mode `ckpt`: the other run's weights are about to be loaded over the own ones."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._watch.before_load()

    def after_load(self) -> None:
        """They have been loaded."""
        if self._watch is not None:
            with self._times.spent("evidence"):
                self._changes = self._watch.after_load()

    def reloaded(self, actor: ActorFiles) -> ActorFiles:
        """`actor` where what it loads are this run's own weights, of before it was resumed: changes count from them."""
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
        """Of the latest comparison."""
        return self._comparison.metrics

    def _save(self, evidence: StepEvidence | None) -> StepEvidence | None:
        if evidence is None:
            return None
        with self._times.spent("evidence"):
            weights, no_weights = self._held.result() if self._held else ({}, {"weights": self._why_no_digests})
        changes, no_changes = self._changes
        return self._recorder.save(evidence, changes, weights, {**no_changes, **no_weights})

    @property
    def _why_no_digests(self) -> Reason:
        return _NOT_ASKED if self._samples else _GENERATES_NOTHING


def tell_what_is_lacking(config: Any) -> None:
    """Say at start what the verdict will not be able to compare, and which flag changes that."""
    if not OmegaConf.select(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        say(
            MARK,
            "Warning: the rollout engine computes no log-probs, so the verdict cannot compare rollout with training, "
            "nor test the sampling: set actor_rollout_ref.rollout.calculate_log_probs=True on both sides",
            "yellow",
        )
    if OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"):
        say(
            MARK,
            "Warning: algorithm.rollout_correction.bypass_mode=True takes the rollout's log-probs for training's, so "
            "the verdict cannot compare the forward passes of training: set it to False on both sides",
            "yellow",
        )


_GENERATES_NOTHING = because(ReasonCode.GENERATES_NOTHING)
_NOT_ASKED = because(ReasonCode.WORKERS_NOT_NAMED)
