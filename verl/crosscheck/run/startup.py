# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What happens to a run's configuration before anything is started. Called by the entry point and by the trainer."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

from omegaconf import OmegaConf, open_dict, read_write

from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.console import COLOUR_VARIABLE
from verl.crosscheck.errors import SettingsError
from verl.crosscheck.exchange.directory import open_directory
from verl.crosscheck.run.ckpt_format import KEY, why_not_portable
from verl.crosscheck.settings import CkptFormat, ShareMode, refuse_replay_without_mode, refuse_skip_with_share
from verl.trainer.config.config import TrainerConfig


def validate(config: Any) -> TrainerConfig:
    """The trainer section of a composed configuration, typed; with its relations to other sections checked.

    Looks at `config` alone: nothing is created and nothing is changed.

    Raises:
        SettingsError: a value is not allowed, or does not go with another one.
    """
    trainer = TrainerConfig.from_section(OmegaConf.to_container(config.trainer, resolve=True))
    mode = trainer.share_mode
    refuse_replay_without_mode(mode, trainer.share_data_replay)
    refuse_skip_with_share(mode, bool(OmegaConf.select(config, "actor_rollout_ref.rollout.skip_rollout")))
    if mode is not None:
        _require_model_in_checkpoints(config, mode)
        _refuse_what_cannot_be_exchanged(config, mode)
        _require_portable_if_asked_for(config, trainer)
    return trainer


def prepare(config: Any) -> TrainerConfig:
    """`validate`, and open the exchange directory, if a mode is set. Doing it again is harmless.

    With `share_data` off nothing is created and nothing is changed.

    Raises:
        SettingsError: see `validate`.
        DirectoryError: the directory cannot be used.
    """
    trainer = validate(config)
    return trainer if trainer.share_mode is None else open_exchange(config, trainer)


def open_exchange(config: Any, trainer: TrainerConfig) -> TrainerConfig:
    """Open the exchange directory, whatever the mode; its absolute path is in what is returned.

    The path is written back to `config`, so that every process of the run uses the same one.

    Raises:
        DirectoryError: the directory cannot be used.
    """
    opened = open_directory(trainer.share_data_dir, key="trainer.share_data_dir", write=not trainer.share_data_replay)
    directory = str(opened)
    with read_write(config.trainer), open_dict(config.trainer):
        config.trainer.share_data_dir = directory
    return replace(trainer, share_data_dir=directory)


def tell_workers_of_the_terminal() -> None:
    """Workers of Ray have no terminal: the main program says, before it starts them, whether its output goes to one."""
    os.environ[COLOUR_VARIABLE] = str(int(sys.stdout.isatty()))


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


def _require_portable_if_asked_for(config: Any, trainer: TrainerConfig) -> None:
    if trainer.ckpt_format is not CkptFormat.PORTABLE:
        return
    if why := why_not_portable(flatten(OmegaConf.to_container(config, resolve=True))):
        raise SettingsError(f"{KEY}=portable: this run has no portable checkpoints: {why}")


def _refuse_what_cannot_be_exchanged(config: Any, mode: ShareMode) -> None:
    if OmegaConf.select(config, "async_training") is not None:
        raise SettingsError(
            f"trainer.share_data={mode.value} does not work with fully asynchronous training: rollouts are streamed "
            "one by one and belong to no step that two runs could share. Reproduce the fault with verl.trainer.main_ppo"
        )
    actor = OmegaConf.select(config, "actor_rollout_ref.actor")
    asynchronous = bool(OmegaConf.select(config, "actor_rollout_ref.actor.checkpoint.async_save"))
    new_workers = OmegaConf.select(config, "trainer.use_legacy_worker_impl") == "disable"
    if mode is ShareMode.ROLLOUT and asynchronous and new_workers and actor.get("strategy") == "megatron":
        raise SettingsError(
            "actor_rollout_ref.actor.checkpoint.async_save=True cannot be finished by 0.7.1's new workers, so no "
            "complete checkpoint could be handed over. Type actor_rollout_ref.actor.checkpoint.async_save=False"
        )
