# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Registers a run in the exchange directory: its card, its heartbeat, and the report of how it ended.

The main program does so, since it also learns of the death of a worker or of the trainer. The trainer, in another
process, gets the run's folder from the configuration and reports its progress there. A trainer that was started without
this fork's entry point registers the run itself.
"""

from __future__ import annotations

import atexit
import os
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf, open_dict, read_write

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.console import MARK, say
from verl.crosscheck.errors import SettingsError
from verl.crosscheck.exchange.session.liveness import Heartbeat, this_process
from verl.crosscheck.exchange.session.own_run import OwnRun, attach, open_run
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.installation import installed_versions, read_installation
from verl.crosscheck.redaction import text_without_secrets, without_secrets
from verl.crosscheck.run.checkpoints import device_of, world_size_of
from verl.crosscheck.run.partner_checks import PartnerChecks
from verl.crosscheck.run.resuming import start_of
from verl.crosscheck.settings import RUN_KEY, ShareMode, ShareSettings


def card_of(config: Any, mode: ShareMode) -> Card:
    """Return the card of a run of a whole configuration; its session is not known yet.

    Raises:
        DamagedError: the mark in the checkpoint it resumes from is not what it should be.
    """
    resolved = OmegaConf.to_container(config, resolve=True)
    assert isinstance(resolved, dict)
    return Card(
        run_id=secrets.token_hex(8),
        session_id="",
        mode=mode,
        host=socket.gethostname(),
        process=this_process(),
        started=time.strftime("%Y-%m-%d %H:%M:%S %z"),
        versions=installed_versions(),
        device=device_of(config),
        world_size=world_size_of(config),
        strategy=str(OmegaConf.select(config, "actor_rollout_ref.actor.strategy")),
        start=start_of(config),
        others_before=0,
        config=without_secrets(resolved, os.environ),
    )


@contextmanager
def registered_run(config: Any, settings: ShareSettings) -> Iterator[None]:
    """Take the run's place in the exchange directory, beat while the block runs, and report how it ended.

    With `share_data` off, and in a replay, which no other run waits for, nothing happens.

    Args:
        config: gets an entry with the run's folder, for the trainer.
        settings: made of it, the directory being open.

    Raises:
        SessionError: another run of the same mode lives, or the session begins elsewhere.
        AgreementError: the other run is there already, and is configured differently.
        DamagedError, DirectoryError: what lies in the directory cannot be used.
    """
    mode = settings.mode
    if mode is None or settings.replay:
        yield
        return
    say(MARK, read_installation().summary())
    with _opened(config, settings, mode, SystemClock()) as run, _end_reported(run):
        say(MARK, f"taking part as {run.card.identity} in {run.slot.session.folder}")
        PartnerChecks(run, settings, SystemClock()).look_around()
        with read_write(config.trainer), open_dict(config.trainer):
            config.trainer[RUN_KEY] = str(run.slot.names.folder)
        yield


def own_run(config: Any, settings: ShareSettings, mode: ShareMode, clock: Clock) -> OwnRun:
    """Return the run that the main program registered, or else a new one, with a heartbeat of its own that lasts as
    long as the process.

    Raises:
        SettingsError: the main program opened it for another mode.
        SessionError, DamagedError, DirectoryError: see `registered_run`.
    """
    folder = OmegaConf.select(config, f"trainer.{RUN_KEY}")
    if folder is not None:
        run = attach(Path(folder), _redact)
        if run.slot.mode != mode.value:
            raise SettingsError(
                f"this run takes part in mode {run.slot.mode} (trainer.share_data), and mode {mode.value} was asked "
                "for. Use one mode in a run"
            )
        return run
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_opened(config, settings, mode, clock))


@contextmanager
def _opened(config: Any, settings: ShareSettings, mode: ShareMode, clock: Clock) -> Iterator[OwnRun]:
    """Take a place and beat from then on, while the block runs."""
    with ExitStack() as beating:
        yield open_run(
            settings.directory,
            card_of(config, mode),
            silence_s=settings.silence_s,
            clock=clock,
            announce=lambda line: say(MARK, line),
            claimed=lambda slot: beating.enter_context(Heartbeat(slot.names.heartbeat)),
            redact=_redact,
        )


def _redact(text: str) -> str:
    return text_without_secrets(text, os.environ)


@contextmanager
def _end_reported(run: OwnRun) -> Iterator[None]:
    try:
        yield
    except BaseException as e:
        run.end(e)
        raise
    run.end(None)
