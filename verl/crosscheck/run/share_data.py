# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Cross-check of two runs: exchange of rollouts and actor checkpoints through a shared directory.

`ShareDataTest` is one run's side of the exchange. The trainer of this fork calls it; it can be called by hand as well:

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
from verl.crosscheck.console import MARK, say
from verl.crosscheck.errors import SettingsError
from verl.crosscheck.run.actor_files import ActorFiles
from verl.crosscheck.run.interception import intercept
from verl.crosscheck.run.live import LiveExchange
from verl.crosscheck.run.observe.gather import Observed
from verl.crosscheck.run.observe.step_observer import tell_what_is_lacking
from verl.crosscheck.run.replay import ReplayExchange
from verl.crosscheck.run.startup import open_exchange, validate
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import Detail, ShareMode

__all__ = ["ShareDataTest"]

RAY_SESSIONS = "/tmp/ray/session"  # noqa: S108  compared with, never written to


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
        self._trainer = open_exchange(config, validate(config))
        self._clock = clock or SystemClock()
        self._times = StepTimes()
        self._opened: LiveExchange | ReplayExchange | None = None
        root = self._trainer.share_data_dir
        say(MARK, f"dump path set to: {root}")
        if root.startswith(RAY_SESSIONS):
            say(
                MARK,
                f"Warning: Using dump path '{root}' is not recommended as it's located in {RAY_SESSIONS}*",
                "yellow",
            )
        records = self._trainer.share_mode is not None and not self._trainer.share_data_replay
        if records and self._trainer.evidence_detail is not Detail.OFF:
            tell_what_is_lacking(config)

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
        mode = ShareMode.parse(share_data)
        if mode is None:
            return
        source = self._side(mode).rollouts()
        if source is not None:
            intercept(worker, source)

    def after_update_policy(
        self,
        share_data: str,
        load_func: Callable[[str], object],
        dump_func: Callable[[str], object],
        about: dict[str, Any] | None = None,
        observed: Callable[[], Observed] | None = None,
        load_portable: Callable[[str], object] | None = None,
        save_portable: Callable[[str], object] | None = None,
    ) -> dict[str, float]:
        """Exchange the actor after an update of it; returns where the time went, in seconds by name.

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
        self._side(mode).exchange_actor(actor, about or {}, observed)
        return self._times.collect()

    def metrics(self) -> dict[str, float]:
        """What the latest step's comparison with the other run gave, by the names that a tracker shows; mode `ckpt`."""
        return self._opened.witness.metrics() if isinstance(self._opened, LiveExchange) else {}

    def tell_sampling(self, tokenizer: Any) -> None:
        """The trainer has its tokenizer, by which a response that was cut short can be told."""
        if isinstance(side := self._configured(), LiveExchange):
            side.witness.tell_sampling(self._config, tokenizer)

    def begin_training(self, actor: Any) -> None:
        """Training is about to begin with the weights that the workers hold, none having been sent to the engine.

        Args:
            actor: upstream's worker group that holds the actor, asked how far each update moved its weights.

        Raises:
            SettingsError: the other run needs portable checkpoints, and these workers have none.
            AgreementError, MismatchError: the other run is there already, and is set up otherwise.
        """
        if isinstance(side := self._configured(), LiveExchange):
            side.begin_training(actor)

    def tell_facts(self, facts: Mapping[str, Any]) -> None:
        """Tell the other run what it compares besides the configuration; see `verl.crosscheck.agreement.facts`."""
        if isinstance(side := self._configured(), LiveExchange):
            side.run.tell_facts(facts)

    def begin_at(self, global_step: int) -> None:
        """The trainer has resumed, or not, and begins after this step.

        Raises:
            ResumeError: which is not what was announced to the other run.
        """
        if (side := self._configured()) is not None:
            side.begin_at(global_step)

    def mark_checkpoint(self, folder: Path) -> None:
        """The trainer is about to save an own checkpoint in `folder`: note there where in the exchange that is."""
        if (side := self._configured()) is not None:
            side.mark_checkpoint(folder)

    def end(self, error: BaseException | None = None) -> None:
        """Tell the other run that this one has ended, with an error or without. The first word counts."""
        if isinstance(self._opened, LiveExchange):
            self._opened.run.end(error)

    def _configured(self) -> LiveExchange | ReplayExchange | None:
        mode = self._trainer.share_mode
        return None if mode is None else self._side(mode)

    def _side(self, mode: ShareMode) -> LiveExchange | ReplayExchange:
        if self._opened is None:
            if self._trainer.share_data_replay:
                self._opened = ReplayExchange(self._config, self._trainer, mode, self._times)
            else:
                self._opened = LiveExchange(self._config, self._trainer, mode, self._clock, self._times)
        if self._opened.mode is not mode:
            raise SettingsError(
                f"this run takes part in mode {self._opened.mode.value}, and mode {mode.value} was asked for. Use one "
                "mode in a run"
            )
        return self._opened
