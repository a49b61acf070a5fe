# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One run alone, on what a finished session recorded. Nothing is waited for, and nothing is written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import compare, require_agreement, without_length
from verl.crosscheck.console import MARK, failure_told, say
from verl.crosscheck.errors import DamagedError, DirectoryError
from verl.crosscheck.exchange import artefacts
from verl.crosscheck.exchange.session import cards
from verl.crosscheck.exchange.session.claim import OTHER, locate
from verl.crosscheck.identity import Call
from verl.crosscheck.run import resuming
from verl.crosscheck.run.acceptance import load_answer
from verl.crosscheck.run.actor_files import ActorFiles, load_checked
from verl.crosscheck.run.indexing import CallIndex, CallKey, index_of_call
from verl.crosscheck.run.live import asked_of
from verl.crosscheck.run.observe.gather import Observed
from verl.crosscheck.run.participation import card_of
from verl.crosscheck.run.rollouts import identify_call
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import ShareMode
from verl.protocol import DataProto
from verl.trainer.config.config import TrainerConfig


class ReplayExchange:
    """A run in `mode` that takes the place of one in a session that is over.

    Mode `rollout` trains on the recorded rollouts and saves no checkpoint for anybody; mode `ckpt` generates and loads
    the recorded checkpoints, all of which must have been kept.

    Raises:
        DirectoryError: the directory holds no session, or the session no run of the other mode.
        AgreementError: the other run was configured differently.
        DamagedError: what lies there cannot be used.
    """

    def __init__(self, config: Any, trainer: TrainerConfig, mode: ShareMode, times: StepTimes) -> None:
        self.mode, self.times, self._trainer = mode, times, trainer
        self.layout, self.session = locate(Path(trainer.share_data_dir))
        own = card_of(config, mode)
        names = self.session.newest(OTHER[mode.value])
        if names is None:
            raise DirectoryError(
                f"{self.session.folder} has no run in mode {OTHER[mode.value]}, so there is nothing to replay for mode "
                f"{mode.value}. Name the directory of a session that two runs took part in"
            )
        other = cards.read_card(names)
        goes_on = own.start.session == self.session.id
        self.start = own.start if goes_on else cards.Start(own.start.global_step)
        comparison = without_length(compare(own.config, other.config, {}, {}, resumed=goes_on), own.config)
        warning = require_agreement(
            comparison, f"this run ({mode.value})", f"the recorded run ({other.mode})", strict=trainer.share_data_strict
        )
        if not comparison.agrees:
            say(MARK, f"Warning: {warning}", "yellow")
        self.index = CallIndex(self.start, trainer.test_freq, resuming.last_step(config))
        self.updates = self.start.updates
        say(MARK, f"replaying session {self.session.number} of {self.layout.root}, recorded with {other.identity}")

    def begin_at(self, global_step: int) -> None:
        """See `LiveSide.begin_at`."""
        resuming.require_start(self.start, global_step)

    def mark_checkpoint(self, folder: Path) -> None:
        """See `LiveSide.mark_checkpoint`."""
        resuming.mark_checkpoint(folder, self.session.id, self.index.next, self.updates)

    def rollouts(self) -> RecordedRollouts | None:
        """What stands in front of the rollout manager; None leaves it alone."""
        return RecordedRollouts(self) if self.mode is ShareMode.ROLLOUT else None

    def exchange_actor(
        self, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], Observed] | None = None
    ) -> None:
        """See `ShareDataTest.after_update_policy`. A replay keeps nothing, so nobody asks what was observed."""
        index, self.updates = self.updates, self.updates + 1
        if self.mode is ShareMode.ROLLOUT:
            return
        path = self.layout.ckpt(index)
        about = {"kind": "ckpt", "index": index, **about}
        with failure_told(MARK, f"Load ckpt failed from {path} because of "), self.times.spent("load_ckpt"):
            self.require_recorded("ckpt", index)
            # The recorded update was made from the recorded rollout, and this run's own may well be another.
            about.pop("batch_digest", None)
            load_checked(path, actor, about, strict=self._trainer.share_data_strict)
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def identify(self, prompts: DataProto) -> Call | None:
        """The session's call that `prompts` make; None if it has no such call."""
        with self.times.spent("identify"):
            call = identify_call(self.index.next, prompts)
            at = index_of_call(self.index, CallKey(call.kind, call.global_step), self._recorded)
            return None if at is None else replace(call, index=at)

    def load_rollout(self, call: Call, prompts: DataProto) -> DataProto:
        """The recorded answer to `call`."""
        path = self.layout.rollout(call.index)
        told = failure_told(MARK, f"Failed to load pre-generated data from {path} Error: ")
        with told, self.times.spent("load_rollout"):
            self.require_recorded("rollout", call.index)
            output = load_answer(path, call, prompts, strict=self._trainer.share_data_strict)
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        self.times.account(call, output)
        return output

    def require_recorded(self, kind: str, index: int) -> None:
        """Return if the session recorded that artefact.

        Raises:
            DirectoryError: it did not, or has not kept it; says what there is.
        """
        if artefacts.of_session(self.layout.root, kind, self.session, [index]):
            return
        found = artefacts.of_session(self.layout.root, kind, self.session)
        there = ", ".join(_ranges(found)) or "none"
        advice = (
            "Record with trainer.share_data_keep_ckpts=null to replay mode ckpt"
            if kind == "ckpt"
            else "The recording ends there"
        )
        raise DirectoryError(
            f"session {self.session.number} in {self.layout.root} holds no {kind}_{index} (there is: {there}). {advice}"
        )

    def _recorded(self, index: int) -> CallKey | None:
        with suppress(FileNotFoundError, DamagedError):
            return asked_of(self.layout.rollout(index))
        return None


class RecordedRollouts:
    """Mode `rollout`: the recording answers."""

    def __init__(self, side: ReplayExchange) -> None:
        self._side = side

    def begin(self, prompts: DataProto) -> Call | None:
        return self._side.identify(prompts)

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        return None if call is None else self._side.load_rollout(call, prompts)

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        assert call is None, "a replay asks the engine only for what is no part of the session"


def _ranges(indexes: list[int]) -> list[str]:
    """`[0, 1, 2, 5]` as `["0 to 2", "5"]`."""
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
