# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How a trainer's actor gets into a folder and out of it, in each form that checkpoints have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.run.acceptance import format_of, require_same_update
from verl.crosscheck.run.checkpoints import require_device
from verl.crosscheck.settings import CkptFormat

Load = Callable[[str], object]
"""Loads the actor from the folder it is given, on all workers, and returns when done."""
Save = Callable[[str], object]
"""Saves it into the folder it is given, likewise."""


@dataclass(frozen=True)
class ActorFiles:
    """What a trainer can do with its actor.

    Args:
        load, save: upstream's own checkpoint.
        load_portable, save_portable: weights for any layout of ranks; None if the trainer has no such thing.
    """

    load: Load
    save: Save
    load_portable: Load | None = None
    save_portable: Save | None = None

    def load_as(self, form: CkptFormat) -> Load:
        """Raises SettingsError if the trainer cannot."""
        return self.load if form is CkptFormat.NATIVE else _required(self.load_portable)

    def save_as(self, form: CkptFormat) -> Save:
        """Raises SettingsError if the trainer cannot."""
        return self.save if form is CkptFormat.NATIVE else _required(self.save_portable)


def load_checked(path: Path, actor: ActorFiles, about: dict[str, Any], *, strict: bool) -> None:
    """Load the checkpoint in `path`, if it is of the update that `about` says.

    Raises:
        DamagedError, MismatchError: see `manifest.read_checked`, `answers.require_same_update` and
            `checkpoints.require_device`; nothing was loaded.
        SettingsError: it is portable, and the trainer cannot load such a one.
    """
    found = read_checked(path).about
    require_same_update(path, about, found, strict=strict)
    form = format_of(found)
    if form is CkptFormat.NATIVE and "device" in about:
        require_device(path, about["device"])
    actor.load_as(form)(str(path))


def _required(function: Load | None) -> Load:
    if function is None:
        raise SettingsError(
            "this pair exchanges portable checkpoints, and the caller of after_update_policy gave no functions for "
            "them. Give it load_portable and save_portable, or both runs the same layout and "
            "trainer.share_data_ckpt_format=native"
        )
    return function
