# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the trainer calls: one object, with a method for each place of a run where the fork may act.

`NoHooks`, which does nothing, is off and the base of the others: `selection.SkipHooks`, `live.LiveExchange` and
`replay.ReplayExchange`. `selection.hooks_for` makes the one that a configuration asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.run.rewards import Rescore
from verl.crosscheck.settings import CkptFormat

if TYPE_CHECKING:
    import torch

    from verl.protocol import DataProto

Load = Callable[[str], object]
"""Loads the actor from the folder it is given, on all workers, and returns when done."""
Save = Callable[[str], object]
"""Saves the actor into the folder it is given, on all workers, and returns when done."""


@dataclass(frozen=True)
class ActorFiles:
    """How a trainer's actor gets into a folder and out of it, in each form that checkpoints have.

    Args:
        load, save: upstream's own checkpoint.
        load_portable, save_portable: weights for any layout of ranks; None if the trainer has no such functions.
    """

    load: Load
    save: Save
    load_portable: Load | None = None
    save_portable: Save | None = None

    def load_as(self, form: CkptFormat) -> Load:
        """Return the function that loads `form`. Raises SettingsError if the trainer has none."""
        return self.load if form is CkptFormat.NATIVE else _required(self.load_portable)

    def save_as(self, form: CkptFormat) -> Save:
        """Return the function that saves `form`. Raises SettingsError if the trainer has none."""
        return self.save if form is CkptFormat.NATIVE else _required(self.save_portable)


@dataclass(frozen=True)
class ActorUpdate:
    """An update of the actor that a trainer has just made."""

    batch: DataProto
    """What the actor was updated on, B rows."""
    metrics: Mapping[str, Any]
    """The update's own, under upstream's names; a list of mini-batches' values counts as its mean."""
    global_step: int
    entropies_BT: torch.Tensor | None = None
    """Of the training engine's distributions, in the order of the batch."""
    rescore: Rescore | None = None
    """Scores rows of the batch with the run's own reward function; None if that is not known or no local function."""
    recomputed: bool = True
    """Whether `old_log_probs` are the training engine's; False if they are the rollout's under another name."""


class NoHooks:
    """Neither cross-check nor rollout skip: each place of a run, and nothing done there."""

    def constructed(self, trainer: Any) -> None:
        """The trainer has its data, and has computed nothing yet."""

    def before_rollout(self, manager: Any) -> None:
        """The trainer has its rollout manager, and has not used it yet."""

    def resumed(self, global_step: int, trainer: Any) -> None:
        """The trainer has resumed, or not, and begins after `global_step`; the engine has no weights yet."""

    def after_log_probs(self, computed: Any) -> None:
        """Upstream's `_compute_old_log_prob` has returned `computed`, whose entropies upstream drops afterwards."""

    def before_update(self, batch: DataProto, global_step: int) -> None:
        """The actor is about to be updated on `batch`, B rows, and its workers are idle."""

    def after_update(self, actor: ActorFiles, update: ActorUpdate) -> dict[str, float]:
        """The actor was updated, and its weights are not pushed to the engine yet. Returns metrics."""
        return {}

    def before_own_checkpoint(self, folder: Path) -> None:
        """The trainer is about to save a checkpoint of its own into `folder`."""

    def ended(self, error: BaseException | None) -> None:
        """Training has ended, with an error or without."""


def _required(function: Load | None) -> Load:
    if function is None:
        raise SettingsError(
            "this pair exchanges portable checkpoints, and the caller of after_update_policy gave no functions for "
            "them. Give it load_portable and save_portable, or both runs the same layout and "
            "trainer.share_data_ckpt_format=native"
        )
    return function
