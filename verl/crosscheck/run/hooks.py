# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the trainer calls: one object, whatever is switched on. Off is an object that does nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from omegaconf import OmegaConf

from verl.crosscheck.run.actor_files import ActorFiles
from verl.crosscheck.run.startup import prepare

if TYPE_CHECKING:
    import torch

    from verl.protocol import DataProto


@dataclass(frozen=True)
class Updated:
    """What a trainer holds after an update of the actor."""

    actor: ActorFiles
    """Gets the actor into a folder and out of it."""
    about: Callable[[], dict[str, Any]]
    """Says what was trained on, and by what, as plain JSON."""
    batch: DataProto
    metrics: Mapping[str, Any]
    """The update's own, under upstream's names."""
    global_step: int


class Hooks(Protocol):
    """The places of a run where something may happen."""

    def wrap_rollout(self, manager: Any) -> None:
        """Called once with the rollout manager, before its first use."""

    def note_log_probs(self, computed: Any) -> None:
        """Called with what upstream's `_compute_old_log_prob` returned, which drops the entropies afterwards."""

    def exchange_actor(self, updated: Updated) -> dict[str, float]:
        """Called after each actor update, before the weights are pushed. Returns metrics."""

    def constructed(self, trainer: Any) -> None:
        """Called once the trainer has its data, before anything is computed."""

    def begin_at(self, global_step: int, trainer: Any) -> None:
        """Called once the trainer has resumed, or not, with the steps that were done before."""

    def mark_checkpoint(self, folder: Path) -> None:
        """Called before the trainer saves a checkpoint of its own into `folder`."""

    def end(self, error: BaseException | None) -> None:
        """Called at the end of training, with the error that ended it."""


class NoHooks:
    """Neither cross-check nor rollout skip."""

    def wrap_rollout(self, manager: Any) -> None:
        pass

    def note_log_probs(self, computed: Any) -> None:
        pass

    def exchange_actor(self, updated: Updated) -> dict[str, float]:
        return {}

    def constructed(self, trainer: Any) -> None:
        pass

    def begin_at(self, global_step: int, trainer: Any) -> None:
        pass

    def mark_checkpoint(self, folder: Path) -> None:
        pass

    def end(self, error: BaseException | None) -> None:
        pass


class SkipHooks(NoHooks):
    """Rollout skip with one file a call: in front of the very first call, which validation may make."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def wrap_rollout(self, manager: Any) -> None:
        from verl.crosscheck.run.rollout_skip import RolloutSkip

        RolloutSkip(self._config, manager).wrap_generate_sequences()


class ShareHooks:
    """The cross-check of two runs."""

    def __init__(self, config: Any, mode: str) -> None:
        from verl.crosscheck.agreement.facts_adapters import trains_adapters
        from verl.crosscheck.run.share_data import ShareDataTest

        self._mode, self._config = mode, config
        self._share = ShareDataTest(config)
        self._bypasses = bool(OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"))
        self._entropies_BT: torch.Tensor | None = None
        self._facts: dict[str, Any] = {}
        self._trains_adapters = trains_adapters(config)

    def wrap_rollout(self, manager: Any) -> None:
        self._share.wrap_generate_sequences(self._mode, manager)

    def note_log_probs(self, computed: Any) -> None:
        with suppress(AttributeError, KeyError, TypeError, IndexError):  # a trainer of a recipe's may return others
            self._entropies_BT = computed[0].batch["entropys"]

    def exchange_actor(self, updated: Updated) -> dict[str, float]:
        from verl.crosscheck.run.observe.gather import Observed

        entropies_BT, self._entropies_BT = self._entropies_BT, None
        observed = Observed(
            updated.batch, updated.metrics, updated.global_step, entropies_BT, recomputed=not self._bypasses
        )
        timing_s = self._share.after_update_policy(
            self._mode,
            updated.actor.load,
            updated.actor.save,
            updated.about(),
            lambda: observed,
            updated.actor.load_portable,
            updated.actor.save_portable,
        )
        return {**{f"timing_s/{name}": seconds for name, seconds in timing_s.items()}, **self._share.metrics()}

    def constructed(self, trainer: Any) -> None:
        from verl.crosscheck.agreement.facts import collect_facts
        from verl.crosscheck.agreement.facts_adapters import critic_adapter_facts

        self._facts = {**collect_facts(trainer), **critic_adapter_facts(self._config)}
        if not self._trains_adapters:
            self._tell_facts()
        self._share.tell_sampling(getattr(trainer, "tokenizer", None))

    def begin_at(self, global_step: int, trainer: Any) -> None:
        self._share.begin_at(global_step)
        if self._trains_adapters:  # which no worker had before
            from verl.crosscheck.agreement.facts_adapters import adapter_facts

            self._facts["adapters"] = adapter_facts(trainer.actor_rollout_wg, global_step)
            self._tell_facts()
        self._share.begin_training(trainer.actor_rollout_wg)

    def _tell_facts(self) -> None:
        from verl.crosscheck.redaction import without_secrets

        self._share.tell_facts(without_secrets(self._facts, os.environ))

    def mark_checkpoint(self, folder: Path) -> None:
        self._share.mark_checkpoint(folder)

    def end(self, error: BaseException | None) -> None:
        self._share.end(error)


def hooks_for(config: Any) -> Hooks:
    """The hooks that a run's whole configuration asks for.

    Raises:
        SettingsError, DirectoryError: see `verl.crosscheck.run.startup.prepare`.
    """
    trainer = prepare(config)
    mode = trainer.share_mode
    if mode is not None:
        return ShareHooks(config, mode.value)
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    # With one file for all calls, upstream's own place (after the first validation) is the right one: that validation's
    # rollouts must not be taken for training's.
    if rollout.get("skip_rollout", False) and rollout.get("skip_index", True):
        return SkipHooks(config)
    return NoHooks()
