# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What an exchange with a live run and one with a recorded run have in common: which call and which update it is, how a
recorded rollout is loaded, and what the trainer's own checkpoints and metrics get."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl.crosscheck.console import MARK, failure_told, say
from verl.crosscheck.exchange.layout import ArtefactKind, Layout
from verl.crosscheck.exchange.session.run_files import Start
from verl.crosscheck.identity import Call
from verl.crosscheck.run import resuming
from verl.crosscheck.run.acceptance import load_answer
from verl.crosscheck.run.checkpoints import actor_about
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate, NoHooks
from verl.crosscheck.run.indexing import CallIndex, CallKey, index_of_call
from verl.crosscheck.run.interception import RolloutSource, intercept
from verl.crosscheck.run.rollouts import identify_call
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import ShareMode, ShareSettings
from verl.protocol import DataProto

if TYPE_CHECKING:
    import torch


class Exchange(NoHooks, ABC):
    """One run's part in a cross-check. The trainer calls the places of `NoHooks`; `ShareDataTest` calls the rest.

    Args:
        config: the run's whole configuration.
        settings: made of it, the directory being open.
        layout: of the exchange directory.
        session_id: of the session that the run takes part in.
        start: where in the session the run begins.
    """

    def __init__(
        self, config: Any, settings: ShareSettings, mode: ShareMode, layout: Layout, session_id: str, start: Start
    ) -> None:
        self.config, self.settings, self.mode = config, settings, mode
        self.layout, self.session_id, self.start = layout, session_id, start
        self.updates = start.updates
        """Index of the next checkpoint."""
        self.times = StepTimes()
        self._entropies_BT: torch.Tensor | None = None
        self._recomputed = not OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode")

    @cached_property
    def index(self) -> CallIndex:
        """Index of the next rollout. Made at first use: the trainer knows its last step only once it has its data."""
        return CallIndex(self.start, self.settings.test_freq, resuming.last_step(self.config))

    # ---------------------------------------------------------------- places of the trainer

    def before_rollout(self, manager: Any) -> None:
        source = self.rollouts()
        if source is not None:
            intercept(manager, source)

    def after_log_probs(self, computed: Any) -> None:
        with suppress(AttributeError, KeyError, TypeError, IndexError):  # a trainer of a recipe's may return others
            self._entropies_BT = computed[0].batch["entropys"]

    def after_update(self, actor: ActorFiles, update: ActorUpdate) -> dict[str, float]:
        update = replace(update, entropies_BT=self._entropies_BT, recomputed=self._recomputed)
        self._entropies_BT = None
        about = actor_about(self.config, update.batch, update.global_step)
        timing_s = self.exchange_actor(actor, about, lambda: update)
        return {**{f"timing_s/{name}": seconds for name, seconds in timing_s.items()}, **self.metrics()}

    def before_own_checkpoint(self, folder: Path) -> None:
        """Note in `folder` where in the exchange the checkpoint is saved. Raises PublishError if that fails."""
        resuming.mark_checkpoint(folder, self.session_id, self.index.next, self.updates)

    # ---------------------------------------------------------------- their steps, which `ShareDataTest` has too

    def begin_at(self, global_step: int) -> None:
        """Return if the trainer begins after the step that was announced. Raises ResumeError if it does not."""
        resuming.require_start(self.start, global_step)

    def begin_training(self, workers: Any) -> None:
        """Begin training with the weights that `workers`, the actor's worker group, hold."""

    def report_facts(self, facts: dict[str, Any]) -> None:
        """Report what the other run compares besides the configuration."""

    def note_sampling(self, tokenizer: Any) -> None:
        """Note how this run samples and trains, for its evidence."""

    def exchange_actor(
        self, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], ActorUpdate] | None
    ) -> dict[str, float]:
        """Exchange the actor after an update of it. Return where the time went, in seconds by name.

        Args:
            about: plain JSON that says what was trained on, and by what; both runs must say the same.
            observed: gives the update; without it nothing is recorded for the verdict.
        """
        index, self.updates = self.updates, self.updates + 1
        self._exchange_ckpt(index, actor, {"kind": ArtefactKind.CKPT.value, "index": index, **about}, observed)
        return self.times.collect()

    def metrics(self) -> dict[str, float]:
        """Return what the latest step's comparison with the other run gave, by the names that a tracker shows."""
        return {}

    # ---------------------------------------------------------------- what a kind of exchange says itself

    @abstractmethod
    def rollouts(self) -> RolloutSource | None:
        """Return what stands in front of the rollout manager; None leaves the manager alone."""

    @abstractmethod
    def recorded(self, index: int) -> CallKey | None:
        """Return what the session's rollout of an index answers; None if there is none yet."""

    @abstractmethod
    def _exchange_ckpt(
        self, index: int, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], ActorUpdate] | None
    ) -> None:
        """Publish the checkpoint of update `index`, or load it. Arguments as of `exchange_actor`."""

    # ---------------------------------------------------------------- rollouts

    def identify(self, prompts: DataProto) -> Call | None:
        """Return the session's call that `prompts` make; None if the session has no such call."""
        with self.times.spent("identify"):
            call = identify_call(self.index.next, prompts)
            at = index_of_call(self.index, CallKey(call.kind, call.global_step), self.recorded)
            return None if at is None else replace(call, index=at)

    def load_rollout(self, call: Call, prompts: DataProto, check: Callable[[], object] = lambda: None) -> DataProto:
        """Return the recorded answer to `call`.

        Args:
            check: raises if it must not be loaded; its errors are in the log as a failed load.
        """
        path = self.layout.rollout(call.index)
        failed = failure_told(MARK, f"Failed to load pre-generated data from {path} Error: ")
        with failed, self.times.spent("load_rollout"):
            check()
            output = load_answer(path, call, prompts, strict=self.settings.strict)
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        return output
