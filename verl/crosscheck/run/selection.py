# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the hooks that a run's configuration asks for. Imports what an exchange needs only if there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.console import MARK, say
from verl.crosscheck.run.hooks import NoHooks
from verl.crosscheck.run.startup import open_exchange, validate
from verl.crosscheck.settings import Detail, ShareMode, ShareSettings

if TYPE_CHECKING:
    from verl.crosscheck.run.exchanging import Exchange

RAY_SESSIONS = "/tmp/ray/session"  # noqa: S108  compared with, never written to


class SkipHooks(NoHooks):
    """Rollout skip with one file a call: it counts from the very first call, which validation may make."""

    def __init__(self, config: Any) -> None:
        self._config = config

    def before_rollout(self, manager: Any) -> None:
        from verl.crosscheck.run.rollout_skip import RolloutSkip

        RolloutSkip(self._config, manager).wrap_generate_sequences()


def hooks_for(config: Any) -> NoHooks:
    """Return the hooks that a run's whole configuration asks for. An exchange has taken its place in the directory.

    Raises:
        SettingsError: see `startup.validate`.
        DirectoryError: see `startup.open_exchange`.
        SessionError, AgreementError, DamagedError: see `live.LiveExchange` and `replay.ReplayExchange`.
    """
    settings = validate(config)
    if settings.mode is not None:
        return exchange_for(config, open_announced(config, settings), settings.mode, SystemClock())
    rollout = OmegaConf.select(config, "actor_rollout_ref.rollout") or {}
    # With one file for all calls, upstream's own place (after the first validation) is the right one: that validation's
    # rollouts must not be taken for training's.
    if rollout.get("skip_rollout", False) and rollout.get("skip_index", True):
        return SkipHooks(config)
    return NoHooks()


def exchange_for(config: Any, settings: ShareSettings, mode: ShareMode, clock: Clock) -> Exchange:
    """Return this run's part in the exchange: with a live run, or with a recorded one. Raises as `hooks_for` does.

    Args:
        settings: made of `config`, the directory being open.
        clock: the time that waits go by.
    """
    if settings.replay:
        from verl.crosscheck.run.replay import ReplayExchange

        return ReplayExchange(config, settings, mode)
    from verl.crosscheck.run.live import LiveExchange

    return LiveExchange(config, settings, mode, clock)


def open_announced(config: Any, settings: ShareSettings) -> ShareSettings:
    """Open the exchange directory, and say where it is and what the verdict will lack.

    Raises:
        DirectoryError: the directory cannot be used.
    """
    settings = open_exchange(config, settings)
    root = str(settings.directory)
    say(MARK, f"dump path set to: {root}")
    if root.startswith(RAY_SESSIONS):
        say(MARK, f"Warning: Using dump path '{root}' is not recommended as it's located in {RAY_SESSIONS}*", "yellow")
    if settings.mode is not None and not settings.replay and settings.evidence is not Detail.OFF:
        _warn_of_missing_log_probs(config)
    return settings


def _warn_of_missing_log_probs(config: Any) -> None:
    if not OmegaConf.select(config, "actor_rollout_ref.rollout.calculate_log_probs"):
        say(
            MARK,
            "Warning: the rollout engine computes no log-probs, so the verdict cannot compare rollout with training, "
            "nor test the sampling: set actor_rollout_ref.rollout.calculate_log_probs=True on both sides",
            "yellow",
        )
    if OmegaConf.select(config, "algorithm.rollout_correction.bypass_mode"):
        say(
            MARK,
            "Warning: algorithm.rollout_correction.bypass_mode=True takes the rollout's log-probs for training's, so "
            "the verdict cannot compare the forward passes of training: set it to False on both sides",
            "yellow",
        )
