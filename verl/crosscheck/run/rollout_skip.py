# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rollout skip: generate once, save, and load instead of generating in later runs. Takes upstream's module's place."""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from omegaconf import OmegaConf

from verl.crosscheck.console import failure_told, say
from verl.crosscheck.errors import PublishError, SettingsError
from verl.crosscheck.exchange.directory import open_directory
from verl.crosscheck.identity import Call, require_same_call
from verl.crosscheck.run.interception import intercept
from verl.crosscheck.run.rollouts import identify_call, load_rollout, save_rollout
from verl.protocol import DataProto

__all__ = ["RolloutSkip"]

DIRECTORY_KEY = "actor_rollout_ref.rollout.skip_dump_dir"


class RolloutSkip:
    """Answers calls of `generate_sequences` from files of an earlier run, and saves what is not there yet.

    With `rollout.skip_index` (the default) call *i*, counted from 0 and whatever it is for, has a file of its own,
    `{experiment_name}_{project_name}_GBS{gbs}_N{n}_{i}`, and must ask what the saved call asked. Without it, all calls
    share `{experiment_name}_{project_name}_GBS{gbs}__N{n}`, whatever they ask.

    Args:
        config: the run's whole configuration.
        rollout_wg: anything with `generate_sequences(DataProto) -> DataProto`.

    Raises:
        DirectoryError: `skip_dump_dir` cannot be used.
    """

    print_mark = "[RolloutSkip()]"

    def __init__(self, config: Any, rollout_wg: Any) -> None:
        rollout = config.actor_rollout_ref.rollout
        self._rollout_wg = rollout_wg
        self._indexed = bool(rollout.get("skip_index", True))
        self._calls = itertools.count()
        names = f"{_run_name(config, 'experiment_name')}_{_run_name(config, 'project_name')}"
        self._stem = f"{names}_GBS{_batch_size(config)}"
        self._n = int(rollout.n)
        self.dumped_dir = open_directory(rollout.skip_dump_dir, key=DIRECTORY_KEY)
        say(self.print_mark, f"Rollout skip dump path set to: {self.dumped_dir}")

    def path_of(self, index: int) -> Path:
        """Return the file of the `index`-th call."""
        return self.dumped_dir / f"{self._stem}_{f'N{self._n}_{index}' if self._indexed else f'_N{self._n}'}"

    def wrap_generate_sequences(self) -> None:
        """Route every later call of the rollout manager through the files. Doing it twice counts no call twice.

        Raises:
            SettingsError: `rollout_wg` has no `generate_sequences`, and the trainer wraps none.
        """
        if hasattr(self._rollout_wg, "generate_sequences"):
            intercept(self._rollout_wg, self)
            return
        # SeparateRayPPOTrainer hands over its workers, which have no such method.
        name = type(self._rollout_wg).__name__
        if not self._indexed:
            raise SettingsError(
                f"{name} has no generate_sequences that rollout skip could answer for. With this trainer only one file "
                "a call works: type actor_rollout_ref.rollout.skip_index=True, or skip_rollout=False."
            )
        say(self.print_mark, f"{name} has no generate_sequences; the trainer wraps its rollout manager instead")

    def begin(self, prompts: DataProto) -> Call:
        return identify_call(next(self._calls), prompts)

    def load(self, call: Call, prompts: DataProto) -> DataProto | None:
        """Return the saved answer, or None if there is none yet.

        Raises:
            DamagedError, MismatchError: it is damaged, another user's, or answers another call.
        """
        path = self.path_of(call.index)
        if not path.exists():
            say(self.print_mark, f"No data dump found at {path}. It is generated and saved now.")
            return None
        advice = (
            f"Start with the data and settings it was saved with, or remove it to generate anew: rm {quote(str(path))}."
        )
        with failure_told(self.print_mark, f"Failed to load pre-generated data from {path} Error: "):
            output = load_rollout(path, prompts, advice, partial(self._require_same, call, path, advice))
        say(self.print_mark, f"Successfully load pre-generated data from {path}", "green")
        return output

    def _require_same(self, call: Call, path: Path, advice: str, recorded: Call) -> None:
        if self._indexed:
            require_same_call(call, recorded, str(path), advice)

    def save(self, call: Call, prompts: DataProto, output: DataProto) -> None:
        """Save an answer of the engine.

        Raises:
            CrossCheckError: it was not saved; the message names the file.
        """
        path = self.path_of(call.index)
        with failure_told(self.print_mark, f"Failed to dump data in {path}: "):
            try:
                save_rollout(path, call, prompts, output, replace=True)
            except OSError as e:
                raise PublishError(f"{path} was not saved ({e}). Check space and permissions there") from e
        say(self.print_mark, f"Successfully dump data in {path}", "green")


def _run_name(config: Any, key: str) -> str:
    """Return `experiment_name` or `project_name`; a value under `data` wins, as upstream reads it there."""
    value = OmegaConf.select(config, f"data.{key}")
    if value is None:
        value = OmegaConf.select(config, f"trainer.{key}")
    # A slash in the name of a file would lead into a folder, maybe outside of this one.
    return str(value if value is not None else "").replace("/", "-")


def _batch_size(config: Any) -> int:
    gen_batch_size = OmegaConf.select(config, "data.gen_batch_size")
    return int(gen_batch_size if gen_batch_size is not None else config.data.train_batch_size)
