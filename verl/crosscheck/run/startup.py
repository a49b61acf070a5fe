# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Validates a run's configuration and opens the exchange directory, before anything is started. Called by the entry
point and by the trainer."""

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
from verl.crosscheck.settings import CkptFormat, ShareMode, ShareSettings


def validate(config: Any) -> ShareSettings:
    """Convert the trainer section of a composed configuration, and check how it goes with the other sections.

    Looks at `config` alone: creates nothing, changes nothing. Each process of a run calls it once.

    Raises:
        SettingsError: a value is not allowed, or does not go with another one.
    """
    section = OmegaConf.to_container(config.trainer, resolve=True)
    settings = ShareSettings.from_section(section)
    mode = settings.mode
    if mode is None:
        _require_no_replay(settings)
        return settings
    _refuse_skip(config, mode)
    _require_model_in_checkpoints(config, mode)
    _refuse_what_cannot_be_exchanged(config, mode)
    _require_portable_if_asked_for(config, settings)
    return settings


def prepare(config: Any, settings: ShareSettings | None = None) -> ShareSettings:
    """Validate `config`, and open the exchange directory if a mode is set. Doing it again is harmless.

    With `share_data` off nothing is created and nothing is changed.

    Args:
        settings: what `validate` returned for `config`, if this process has called it.

    Raises:
        SettingsError: see `validate`.
        DirectoryError: the directory cannot be used.
    """
    settings = settings or validate(config)
    return settings if settings.mode is None else open_exchange(config, settings)


def open_exchange(config: Any, settings: ShareSettings) -> ShareSettings:
    """Open the exchange directory, whatever the mode. Return the settings with its absolute path.

    The path is written back to `config`, so that every process of the run uses the same one.

    Raises:
        DirectoryError: the directory cannot be used.
    """
    directory = open_directory(settings.directory, key="trainer.share_data_dir", write=not settings.replay)
    with read_write(config.trainer), open_dict(config.trainer):
        config.trainer.share_data_dir = str(directory)
    return replace(settings, directory=directory)


def pass_terminal_to_workers() -> None:
    """Note in the environment whether this process writes to a terminal. Ray's workers inherit it and have no terminal
    of their own to ask; call it before they start."""
    os.environ[COLOUR_VARIABLE] = str(int(sys.stdout.isatty()))


def _require_no_replay(settings: ShareSettings) -> None:
    """Raise if a replay is asked for and no mode says which phase to replay."""
    if settings.replay:
        raise SettingsError(
            "trainer.share_data_replay=True says nothing without a mode. Type trainer.share_data=rollout to train on "
            "the recorded rollouts, or trainer.share_data=ckpt to generate under the recorded checkpoints."
        )


def _refuse_skip(config: Any, mode: ShareMode) -> None:
    """Raise if rollout skip is on: it loads old rollouts of this run, and the cross-check exchanges new ones."""
    if OmegaConf.select(config, "actor_rollout_ref.rollout.skip_rollout"):
        raise SettingsError(
            f"actor_rollout_ref.rollout.skip_rollout=True and trainer.share_data={mode.value} exclude each other: "
            "a replayed rollout would hide what the cross-check looks for. "
            "Type actor_rollout_ref.rollout.skip_rollout=False, or trainer.share_data=null."
        )


def _require_model_in_checkpoints(config: Any, mode: ShareMode) -> None:
    """Raise unless upstream's checkpoints hold the weights: those are what is exchanged."""
    key = "load_contents" if mode is ShareMode.CKPT else "save_contents"
    full_key = f"actor_rollout_ref.actor.checkpoint.{key}"
    contents = OmegaConf.select(config, full_key)
    if contents is not None and "model" not in contents:
        raise SettingsError(
            f"{full_key}={list(contents)} leaves out 'model', and with trainer.share_data={mode.value} the weights are "
            f"what is exchanged. Add it: {full_key}={['model', *contents]}"
        )


def _require_portable_if_asked_for(config: Any, settings: ShareSettings) -> None:
    if settings.ckpt_format is not CkptFormat.PORTABLE:
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
