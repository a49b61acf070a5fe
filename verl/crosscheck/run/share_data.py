# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`ShareDataTest`: one run's part in a cross-check, for trainers that call it by hand.

The trainer of this fork calls the same objects through `verl.crosscheck.run.hooks`.

    share = ShareDataTest(config)
    share.wrap_generate_sequences("ckpt", rollout_manager)           # once, before the first rollout
    # after each actor update, before the weights are pushed to the rollout engine:
    share.after_update_policy("ckpt", load_func=load, dump_func=save)
    share.end()                                                      # or share.end(error)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.console import MARK
from verl.crosscheck.errors import SettingsError
from verl.crosscheck.run.exchanging import Exchange
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate
from verl.crosscheck.run.selection import exchange_for, open_announced
from verl.crosscheck.run.startup import validate
from verl.crosscheck.settings import ShareMode
from verl.protocol import DataProto

__all__ = ["ShareDataTest"]


class ShareDataTest:
    """One run's side of a cross-check: what it saves for the other run, and what it takes from it.

    Indexes count from 0: rollouts by calls of `generate_sequences` of any kind, checkpoints by actor updates. The run
    takes its place in the directory at the first use of a mode, unless the main program has done so before.

    Args:
        config: the run's whole configuration. `trainer.share_data_dir` is opened here.
        clock: the time that waits go by.

    Raises:
        SettingsError, DirectoryError: the configuration cannot be used; see `verl.crosscheck.run.startup`.
    """

    print_mark = MARK

    def __init__(self, config: Any, clock: Clock | None = None) -> None:
        self._config = config
        self._settings = open_announced(config, validate(config))
        self._clock = clock or SystemClock()
        self._exchange: Exchange | None = None

    def wrap_generate_sequences(self, share_data: str, worker: Any) -> None:
        """Route every call of `worker.generate_sequences` through the exchange.

        In mode `ckpt` the worker answers and the answer is saved for the other run; in mode `rollout` the other run's
        answer is waited for and the worker is never asked, except for a validation that only a resumed run makes.

        Args:
            share_data: "ckpt" or "rollout".
            worker: anything with `generate_sequences(DataProto) -> DataProto`, plain or awaitable.

        Raises:
            SessionError: another run in this mode lives in the directory.
        """
        if (mode := ShareMode.parse(share_data)) is not None:
            self._in_mode(mode).before_rollout(worker)

    def before_update_policy(self, share_data: str, batch: DataProto, global_step: int) -> None:
        """Predict how far rounding can move the update that is about to be made, if it is the step's turn.

        Args:
            share_data: "ckpt" or "rollout".
            batch: what the actor will be updated on.
        """
        if (mode := ShareMode.parse(share_data)) is not None:
            self._in_mode(mode).before_update(batch, global_step)

    def after_update_policy(
        self,
        share_data: str,
        load_func: Callable[[str], object],
        dump_func: Callable[[str], object],
        about: dict[str, Any] | None = None,
        observed: Callable[[], ActorUpdate] | None = None,
        load_portable: Callable[[str], object] | None = None,
        save_portable: Callable[[str], object] | None = None,
    ) -> dict[str, float]:
        """Exchange the actor after an update of it. Return where the time went, in seconds by name.

        In mode `ckpt` the other run's checkpoint is waited for and loaded over the own weights; in mode `rollout` the
        own one is saved for it, or, if this update was saved before the run was resumed, loaded. The times of rollouts
        that were not for training, which have no step's metrics of their own, are returned along with it.

        Args:
            share_data: "ckpt" or "rollout".
            load_func: loads the checkpoint in the folder it is given, on all workers, and returns when done.
            dump_func: saves one into the folder it is given, likewise.
            about: plain JSON that says what was trained on, and by what; both runs must say the same.
            observed: gives the batch and the update's metrics; without it nothing is recorded for the verdict.
            load_portable, save_portable: as `load_func` and `dump_func`, for weights that any layout of ranks can read;
                needed where the two runs are not laid out alike.

        Raises:
            PeerFailedError, PeerSilentError, WaitTimeoutError: no checkpoint will come, or did in time.
            DamagedError, MismatchError, AgreementError: nothing was loaded.
            PublishError, SpaceError: the save failed; the other run sees nothing of it.
            SessionError: another run has taken this one's place.
        """
        mode = ShareMode.parse(share_data)
        if mode is None:
            return {}
        actor = ActorFiles(load_func, dump_func, load_portable, save_portable)
        return self._in_mode(mode).exchange_actor(actor, about or {}, observed)

    def metrics(self) -> dict[str, float]:
        """Return what the latest step's comparison with the other run gave, by the names that a tracker shows. Only
        mode `ckpt` compares."""
        return {} if self._exchange is None else self._exchange.metrics()

    def tell_sampling(self, tokenizer: Any) -> None:
        """Give the trainer's tokenizer, which says where a response was cut short."""
        if (exchange := self._configured()) is not None:
            exchange.note_sampling(tokenizer)

    def tell_facts(self, facts: Mapping[str, Any]) -> None:
        """Report what the other run compares besides the configuration; see `verl.crosscheck.agreement.facts`."""
        if (exchange := self._configured()) is not None:
            exchange.report_facts(dict(facts))

    def begin_training(self, actor: Any) -> None:
        """Begin training with the weights that the workers hold; the engine has been sent none yet.

        Args:
            actor: upstream's worker group that holds the actor, asked how far each update moved its weights.

        Raises:
            SettingsError: the other run needs portable checkpoints, and these workers have none.
            AgreementError, MismatchError: the other run is there already, and is set up otherwise.
        """
        if (exchange := self._configured()) is not None:
            exchange.begin_training(actor)

    def begin_at(self, global_step: int) -> None:
        """Begin after this step: the trainer has resumed, or not.

        Raises:
            ResumeError: another step was announced to the other run.
        """
        if (exchange := self._configured()) is not None:
            exchange.begin_at(global_step)

    def mark_checkpoint(self, folder: Path) -> None:
        """Note where in the exchange an own checkpoint is saved; call it before the checkpoint is saved in `folder`."""
        if (exchange := self._configured()) is not None:
            exchange.before_own_checkpoint(folder)

    def end(self, error: BaseException | None = None) -> None:
        """Report to the other run that this one has ended, with an error or without. The first report counts."""
        if self._exchange is not None:
            self._exchange.ended(error)

    def _configured(self) -> Exchange | None:
        """Return the exchange in the mode of the configuration; None if it has none."""
        return None if self._settings.mode is None else self._in_mode(self._settings.mode)

    def _in_mode(self, mode: ShareMode) -> Exchange:
        if self._exchange is None:
            self._exchange = exchange_for(self._config, self._settings, mode, self._clock)
        if self._exchange.mode is not mode:
            raise SettingsError(
                f"this run takes part in mode {self._exchange.mode.value}, and mode {mode.value} was asked for. Use "
                "one mode in a run"
            )
        return self._exchange
