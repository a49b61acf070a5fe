# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the user sets: the `share_data*` keys of the trainer section, converted and validated into `ShareSettings`.

Imports nothing of torch, ray or hydra.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from verl.crosscheck.errors import SettingsError

RUN_KEY = "share_data_run"
"""Entry that the main program adds to the `trainer` section: the run's folder. It is not for users to set."""

DEVICE_KEY = "share_data_device"
"""Likewise: the device, where upstream has no word for it and the section names another one."""

HEARTBEAT_INTERVAL_S = 5.0
"""Between two signs of life of a run."""
SHORTEST_SILENCE_S = 3 * HEARTBEAT_INTERVAL_S
NEVER_DELETED = 2
"""Newest checkpoints that are kept in any case: one may be in use, and a resume begins at the one before."""


Word = TypeVar("Word", bound=Enum)


class ShareMode(str, Enum):
    """What a run takes from the other run; the mode is named after it."""

    ROLLOUT = "rollout"
    """The run takes rollouts: it loads those of the other run, trains, and saves its actor for the other run."""
    CKPT = "ckpt"
    """The run takes checkpoints: it generates, saves its rollouts for the other run, and loads that run's actor after
    each update of its own."""

    def __str__(self) -> str:
        return self.value

    @classmethod
    def parse(cls, value: Any) -> ShareMode | None:
        """Return the mode of a configuration value; None is off.

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


MODES = (ShareMode.CKPT, ShareMode.ROLLOUT)
"""In the order in which people are shown the two runs of a pair."""


class CkptFormat(str, Enum):
    """Form in which the actor is exchanged: the values of `trainer.share_data_ckpt_format`."""

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


@dataclass(frozen=True)
class ShareSettings:
    """The settings of a cross-check. A process makes them once, from the trainer section of its configuration."""

    mode: ShareMode | None = None
    """`share_data`; None is off."""
    directory: Path = Path("/tmp/verl/share_data_dir")  # noqa: S108  the contract's default; owner-only, checked at start
    """`share_data_dir`: the directory that both runs reach; absolute once `startup.open_exchange` has opened it."""
    timeout_s: float = 7200.0
    """Longest wait without a sign of progress of the other run."""
    silence_s: float = 180.0
    """Time without any sign of life after which the other run counts as dead; at least `SHORTEST_SILENCE_S`."""
    ckpt_format: CkptFormat = CkptFormat.AUTO
    keep_ckpts: int | None = 2
    """Exchanged checkpoints to keep, at least `NEVER_DELETED`; None keeps all."""
    strict: bool = True
    """Whether the run stops if the two runs differ where they must agree; else it warns and goes on."""
    replay: bool = False
    """Whether the run takes what a finished session recorded, without another run; nothing is written there."""
    evidence: Detail = Detail.TOKENS
    evidence_tokens: int | None = 1_048_576
    """Most response tokens to record of a step; None records all."""
    weight_change: ChangeDetail = ChangeDetail.FULL
    noise_every: int = 20
    """`share_data_noise`: steps between two measurements of noise, the first being made in the first step; 0 makes
    none. One costs about half of the training part of a step, so every 20 steps are at most 2 % of a step."""
    test_freq: int = -1
    """Upstream's key of that name: steps between validations; -1 validates never."""

    @classmethod
    def from_section(cls, section: Mapping[str, Any]) -> ShareSettings:
        """Convert a resolved `trainer` section; a key that is not there has its default.

        Raises:
            SettingsError: a value is not allowed; names the key and lists what is.
        """
        return cls(
            **{field: parse(f"trainer.{key}", section[key]) for field, (key, parse) in _KEYS.items() if key in section}
        )


def _mode(key: str, value: Any) -> ShareMode | None:
    return ShareMode.parse(value)


def _directory(key: str, value: Any) -> Path:
    if not isinstance(value, str) or not value.strip() or "\0" in value or "://" in value:
        raise SettingsError(
            f"{key}={value!r} is not a path. Name a directory of a mounted file system that both runs "
            f"can reach, such as {key}=/mnt/shared/crosscheck."
        )
    return Path(value)


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value <= 0:
        raise SettingsError(f"{key}={value!r} is not a time. Expected seconds, a number above 0, such as {key}=7200.")
    return float(value)


def _silence_s(key: str, value: Any) -> float:
    silence_s = _seconds(key, value)
    if silence_s < SHORTEST_SILENCE_S:
        raise SettingsError(
            f"{key}={value!r} is too short: a healthy run shows a sign of life every "
            f"{HEARTBEAT_INTERVAL_S:.0f} s, and file systems delay it. Expected at least {SHORTEST_SILENCE_S:.0f}; "
            "network file systems hide changes for up to a minute, so the default is 180."
        )
    return silence_s


def _keep_ckpts(key: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < NEVER_DELETED):
        raise SettingsError(
            f"{key}={value!r} is not allowed. Expected a whole number of at least {NEVER_DELETED}, or null to keep "
            "all: the newest may be in use, and a resume begins at the one before."
        )
    return value


def _evidence_tokens(key: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or value < 1):
        raise SettingsError(
            f"{key}={value!r} is not allowed. Expected the most response tokens to record "
            "of a step, a whole number of at least 1, or null to record all; a token takes 6 to 8 bytes."
        )
    return value


def _noise_every(key: str, value: Any) -> int:
    if type(value) is not int or value < 0:
        raise SettingsError(
            f"{key}={value!r} is not allowed. Expected the number of steps between two measurements of noise, a whole "
            "number of at least 1, or 0 to measure none."
        )
    return value


def _switch(key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise SettingsError(f"{key}={value!r} is neither True nor False.")
    return value


def _word(words: type[Word], usual: Word) -> Callable[[str, Any], Word]:
    """Return the parser of a key whose values are `words`, letter for letter."""

    def parse(key: str, value: Any) -> Word:
        for word in words:
            # In a YAML file a bare `off` is false.
            if (isinstance(value, str) and value == word.value) or (value is False and word.value == "off"):
                return word
        allowed = ", ".join(word.value for word in words)
        raise SettingsError(
            f"{key}={value!r} is not allowed. Expected one of: {allowed}; {usual.value} is the default."
        )

    return parse


def _as_it_is(key: str, value: Any) -> Any:
    """Return a value of upstream's, which upstream validates."""
    return value


_KEYS: Mapping[str, tuple[str, Callable[[str, Any], Any]]] = {
    "mode": ("share_data", _mode),
    "directory": ("share_data_dir", _directory),
    "timeout_s": ("share_data_timeout_s", _seconds),
    "silence_s": ("share_data_silence_s", _silence_s),
    "ckpt_format": ("share_data_ckpt_format", _word(CkptFormat, ShareSettings.ckpt_format)),
    "keep_ckpts": ("share_data_keep_ckpts", _keep_ckpts),
    "strict": ("share_data_strict", _switch),
    "replay": ("share_data_replay", _switch),
    "evidence": ("share_data_evidence", _word(Detail, ShareSettings.evidence)),
    "evidence_tokens": ("share_data_evidence_tokens", _evidence_tokens),
    "weight_change": ("share_data_weight_change", _word(ChangeDetail, ShareSettings.weight_change)),
    "noise_every": ("share_data_noise", _noise_every),
    "test_freq": ("test_freq", _as_it_is),
}
"""By field of `ShareSettings`: the key of the trainer section, and what converts and validates its value."""
