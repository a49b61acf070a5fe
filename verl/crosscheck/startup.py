# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What happens to a run's configuration before anything is started. Called by the entry point and by the trainer."""

from __future__ import annotations

import os
import sys
from typing import Any

from omegaconf import OmegaConf, open_dict

from verl.crosscheck.console import COLOUR_VARIABLE
from verl.crosscheck.errors import DirectoryError, SettingsError
from verl.crosscheck.exchange.directory import open_directory
from verl.crosscheck.exchange.layout import artefacts
from verl.crosscheck.settings import ShareMode, refuse_skip_with_share
from verl.trainer.config.config import TrainerConfig


def prepare(config: Any) -> TrainerConfig:
    """Validate the trainer section of a composed configuration and open the exchange directory, if one is used.

    The directory's absolute path is written back to `config`, so that every process of the run uses the same one.
    Doing it again is harmless. With `share_data` off nothing is created and nothing is changed.

    Raises:
        SettingsError: a value is not allowed.
        DirectoryError: the directory cannot be used.
    """
    section = OmegaConf.to_container(config.trainer, resolve=True)
    trainer = TrainerConfig.from_section(section)
    mode = trainer.share_mode
    refuse_skip_with_share(mode, bool(OmegaConf.select(config, "actor_rollout_ref.rollout.skip_rollout")))
    if mode is None:
        return trainer
    _require_model_in_checkpoints(config, mode)
    # Workers of Ray have no terminal: this process says once whether there is one.
    os.environ.setdefault(COLOUR_VARIABLE, str(int(sys.stdout.isatty())))
    directory = open_directory(trainer.share_data_dir, key="trainer.share_data_dir")
    with open_dict(config):
        config.trainer.share_data_dir = str(directory)
    return TrainerConfig.from_section({**section, "share_data_dir": str(directory)})


def refuse_leftovers(trainer: TrainerConfig) -> None:
    """Stop a run that is about to start in a directory where a run of its mode has been: its peer would take old files.

    Raises:
        DirectoryError: the directory holds artefacts of the kind that this run writes.
    """
    mode = trainer.share_mode
    if mode is None:
        return
    kind = "rollout" if mode is ShareMode.CKPT else "ckpt"
    found = artefacts(os.listdir(trainer.share_data_dir), kind)  # noqa: PTH208
    if found:
        raise DirectoryError(
            f"trainer.share_data_dir={trainer.share_data_dir!r} already holds {len(found)} {kind}_* of an earlier run "
            f"or of another run in mode {mode.value}, and this run starts with {kind}_0. Name an empty directory on "
            f"both sides, or, if nothing there is needed any more, type rm -r '{trainer.share_data_dir}'."
        )


def _require_model_in_checkpoints(config: Any, mode: ShareMode) -> None:
    """The exchanged checkpoint is upstream's own, so it must hold the weights."""
    key = "load_contents" if mode is ShareMode.CKPT else "save_contents"
    full_key = f"actor_rollout_ref.actor.checkpoint.{key}"
    contents = OmegaConf.select(config, full_key)
    if contents is not None and "model" not in contents:
        raise SettingsError(
            f"{full_key}={list(contents)} leaves out 'model', and with trainer.share_data={mode.value} the weights are "
            f"what is exchanged. Add it: {full_key}={['model', *contents]}"
        )
