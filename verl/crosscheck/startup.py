# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What happens to a run's configuration before anything is started. Called by the entry point and by the trainer."""

from __future__ import annotations

import os
import sys
from typing import Any

from omegaconf import OmegaConf, open_dict

from verl.crosscheck.console import COLOUR_VARIABLE
from verl.crosscheck.exchange.directory import open_directory
from verl.crosscheck.settings import refuse_skip_with_share
from verl.trainer.config import TrainerConfig


def prepare(config: Any) -> TrainerConfig:
    """Validate the trainer section of a composed configuration and open the exchange directory, if one is used.

    The directory's absolute path is written back to `config`, so that every process of the run uses the same one.
    Doing it again is harmless. With `share_data` off nothing is created and nothing is changed.

    Raises:
        SettingsError: a value is not allowed.
        DirectoryError: the directory cannot be used.
    """
    section = OmegaConf.to_container(config.trainer, resolve=True)
    trainer = TrainerConfig.from_section(section)  # type: ignore[arg-type]
    mode = trainer.share_mode
    refuse_skip_with_share(mode, bool(OmegaConf.select(config, "actor_rollout_ref.rollout.skip_rollout")))
    if mode is None:
        return trainer
    # Workers of Ray have no terminal: this process says once whether there is one.
    os.environ.setdefault(COLOUR_VARIABLE, str(int(sys.stdout.isatty())))
    directory = open_directory(trainer.share_data_dir, key="trainer.share_data_dir")
    with open_dict(config):
        config.trainer.share_data_dir = str(directory)
    return TrainerConfig.from_section({**section, "share_data_dir": str(directory)})  # type: ignore[dict-item]
