# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the user sets: the mode, and the checks of single values. Called by the typed configuration, before any worker.

Imports nothing of torch or ray.
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Any, TypeVar

from verl.crosscheck.errors import SettingsError

RUN_KEY = "share_data_run"
"""Entry that the main program adds to the `trainer` section: the run's folder. Nobody sets it by hand."""

DEVICE_KEY = "share_data_device"
"""Likewise: the device, where upstream has no word for it and calls it something else."""

HEARTBEAT_INTERVAL_S = 5.0
"""Between two signs of life of a run."""
SHORTEST_SILENCE_S = 3 * HEARTBEAT_INTERVAL_S
NEVER_DELETED = 2
"""Newest checkpoints that are kept in any case: one may be in use, and a resume begins at the one before."""


Word = TypeVar("Word", bound=Enum)


class ShareMode(str, Enum):
    """Which of a run's two phases is tried on the other run's output."""

    ROLLOUT = "rollout"
    """Takes the other run's rollouts in place of own ones, trains, and saves its actor for the other run."""
    CKPT = "ckpt"
    """Generates, saves its rollouts for the other run, and loads that run's actor after each own update."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, value: Any) -> ShareMode | None:
        """The mode of a configuration value; None is off.

        Raises:
            SettingsError: neither null nor one of the modes, letter for letter.
        """
        if value is None:
            return None
        for mode in cls:
            if value == mode.value and isinstance(value, str):
                return mode
        allowed = ", ".join(mode.value for mode in cls)
        raise SettingsError(
            f"trainer.share_data={value!r} is not a mode. Allowed: {allowed}, null (off). "
            "Type trainer.share_data=ckpt on the run that keeps its own rollout, "
            "trainer.share_data=rollout on the run that keeps its own training."
        )


class CkptFormat(str, Enum):
    """In which form the actor is exchanged: the values of `trainer.share_data_ckpt_format`."""

    NATIVE = "native"
    """Upstream's checkpoint: weights, optimizer, scheduler and random state, for the same layout of ranks only."""
    PORTABLE = "portable"
    """Weights alone, whole tensors under Hugging Face names, for any layout of ranks."""
    AUTO = "auto"
    """Native if both runs are laid out alike, else portable."""


class Detail(str, Enum):
    """How much of a step is recorded."""

    OFF = "off"
    """Nothing."""
    SUMMARY = "summary"
    """Numbers of each row and of the update."""
    TOKENS = "tokens"
    """Those, and the log-probs of each response token."""


class ChangeDetail(str, Enum):
    """The values of `trainer.share_data_weight_change`."""

    OFF = "off"
    """Nothing; no copy of the weights is kept."""
    NORM = "norm"
    """How far this run's update and the other run's moved each tensor. Each worker keeps one copy of its shard of the
    actor's trainable parameters in main memory, in their own dtype."""
    FULL = "full"
    """Those, and how far apart the two moved it. Each worker keeps a second such copy while a checkpoint is loaded."""


def checked_seconds(key: str, value: Any) -> float:
    """`value` as seconds.

    Raises:
        SettingsError: not a finite number above 0.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise SettingsError(f"{key}={value!r} is not a time. Expected seconds, a number above 0, such as {key}=7200.")
    return float(value)


def checked_silence_s(value: Any) -> float:
    """`trainer.share_data_silence_s` as seconds.

    Raises:
        SettingsError: not a time, or shorter than a few heartbeats.
    """
    silence_s = checked_seconds("trainer.share_data_silence_s", value)
    if silence_s < SHORTEST_SILENCE_S:
        raise SettingsError(
            f"trainer.share_data_silence_s={value!r} is too short: a healthy run shows a sign of life every "
            f"{HEARTBEAT_INTERVAL_S:.0f} s, and file systems delay it. Expected at least {SHORTEST_SILENCE_S:.0f}; "
            "network file systems hide changes for up to a minute, so the default is 180."
        )
    return silence_s


def checked_keep_ckpts(value: Any) -> int | None:
    """`trainer.share_data_keep_ckpts`; None keeps all.

    Raises:
        SettingsError: not a whole number of at least `NEVER_DELETED`, nor null.
    """
    if value is not None and (type(value) is not int or value < NEVER_DELETED):
        raise SettingsError(
            f"trainer.share_data_keep_ckpts={value!r} is not allowed. Expected a whole number of at least "
            f"{NEVER_DELETED}, or null to keep all: the newest may be in use, and a resume begins at the one before."
        )
    return value


def checked_switch(key: str, value: Any) -> bool:
    """`value`, if it is true or false.

    Raises:
        SettingsError: it is neither.
    """
    if not isinstance(value, bool):
        raise SettingsError(f"{key}={value!r} is neither True nor False.")
    return value


def checked_evidence(value: Any) -> Detail:
    """`trainer.share_data_evidence` as how much is recorded.

    Raises:
        SettingsError: not one of the words, letter for letter.
    """
    return _checked_word("trainer.share_data_evidence", value, Detail, "tokens")


def checked_evidence_tokens(value: Any) -> int | None:
    """`trainer.share_data_evidence_tokens`; None keeps all.

    Raises:
        SettingsError: not a whole number above 0, nor null.
    """
    if value is not None and (type(value) is not int or value < 1):
        raise SettingsError(
            f"trainer.share_data_evidence_tokens={value!r} is not allowed. Expected the most response tokens to record "
            "of a step, a whole number of at least 1, or null to record all; a token takes 6 to 8 bytes."
        )
    return value


def checked_weight_change(value: Any) -> ChangeDetail:
    """`trainer.share_data_weight_change` as how closely it is measured.

    Raises:
        SettingsError: not one of the words, letter for letter.
    """
    return _checked_word("trainer.share_data_weight_change", value, ChangeDetail, "full")


def checked_ckpt_format(value: Any) -> CkptFormat:
    """`trainer.share_data_ckpt_format` as what is asked for.

    Raises:
        SettingsError: not one of the words, letter for letter.
    """
    return _checked_word("trainer.share_data_ckpt_format", value, CkptFormat, "auto")


def _checked_word(key: str, value: Any, words: type[Word], usual: str) -> Word:
    for word in words:
        # In a YAML file a bare `off` is false.
        if (isinstance(value, str) and value == word.value) or (value is False and word.value == "off"):
            return word
    allowed = ", ".join(word.value for word in words)
    raise SettingsError(f"{key}={value!r} is not allowed. Expected one of: {allowed}; {usual} is the default.")


def checked_share_dir(value: Any) -> str:
    """`value` as a path.

    Raises:
        SettingsError: empty, not text, a URL, or with a NUL in it.
    """
    if not isinstance(value, str) or not value.strip() or "\0" in value or "://" in value:
        raise SettingsError(
            f"trainer.share_data_dir={value!r} is not a path. Name a directory of a mounted file system that both runs "
            "can reach, such as trainer.share_data_dir=/mnt/shared/crosscheck."
        )
    return value


def refuse_replay_without_mode(mode: ShareMode | None, replay: bool) -> None:
    """Which half is replayed is for the mode to say.

    Raises:
        SettingsError: replay is on and no mode is set.
    """
    if replay and mode is None:
        raise SettingsError(
            "trainer.share_data_replay=True says nothing without a mode. Type trainer.share_data=rollout to train on "
            "the recorded rollouts, or trainer.share_data=ckpt to generate under the recorded checkpoints."
        )


def refuse_skip_with_share(mode: ShareMode | None, skip_rollout: bool) -> None:
    """Rollout skip replays this run's old rollouts, the cross-check exchanges fresh ones: one would hide the other.

    Raises:
        SettingsError: both are on.
    """
    if mode is not None and skip_rollout:
        raise SettingsError(
            f"actor_rollout_ref.rollout.skip_rollout=True and trainer.share_data={mode.value} exclude each other: "
            "a replayed rollout would hide what the cross-check looks for. "
            "Type actor_rollout_ref.rollout.skip_rollout=False, or trainer.share_data=null."
        )
