# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One run alone, on what a finished session recorded. Waits for nothing and writes nothing into the directory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from verl.crosscheck.agreement.compare import compare, require_agreement, without_length
from verl.crosscheck.console import MARK, failure_told, say
from verl.crosscheck.errors import DamagedError, DirectoryError
from verl.crosscheck.exchange import artefacts
from verl.crosscheck.exchange.layout import OTHER, ArtefactKind
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import locate
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.identity import Call
from verl.crosscheck.run.acceptance import load_checked, recorded_key
from verl.crosscheck.run.exchanging import Exchange
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate
from verl.crosscheck.run.indexing import CallKey
from verl.crosscheck.run.participation import card_of
from verl.crosscheck.settings import ShareMode, ShareSettings
from verl.protocol import DataProto


class ReplayExchange(Exchange):
    """A run in `mode` that takes the place of one in a session that is over.

    Mode `rollout` trains on the recorded rollouts and saves no checkpoint for anybody; mode `ckpt` generates and loads
    the recorded checkpoints, all of which must have been kept.

    Raises:
        DirectoryError: the directory holds no session, or the session no run of the other mode.
        AgreementError: the other run was configured differently.
        DamagedError: what lies there cannot be used.
    """

    def __init__(self, config: Any, settings: ShareSettings, mode: ShareMode) -> None:
        layout, self.session = locate(settings.directory)
        own = card_of(config, mode)
        names = self.session.newest(OTHER[mode])
        if names is None:
            raise DirectoryError(
                f"{self.session.folder} has no run in mode {OTHER[mode]}, so there is nothing to replay for mode "
                f"{mode}. Name the directory of a session that two runs took part in"
            )
        other = run_files.read_card(names)
        goes_on = own.start.session == self.session.id
        _require_agreement(own, other, resumed=goes_on, strict=settings.strict)
        start = own.start if goes_on else run_files.Start(own.start.global_step)
        super().__init__(config, settings, mode, layout, self.session.id, start)
        say(MARK, f"replaying session {self.session.number} of {layout.root}, recorded with {other.identity}")

    def rollouts(self) -> RecordedRollouts | None:
        return RecordedRollouts(self) if self.mode is ShareMode.ROLLOUT else None

    def recorded(self, index: int) -> CallKey | None:
        with suppress(FileNotFoundError, DamagedError):
            return recorded_key(self.layout.rollout(index))
        return None

    def _exchange_ckpt(
        self, index: int, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], ActorUpdate] | None
    ) -> None:
        """Load the recorded checkpoint in mode `ckpt`. Records nothing, so `observed` is not called."""
        if self.mode is ShareMode.ROLLOUT:
            return
        path = self.layout.ckpt(index)
        with failure_told(MARK, f"Load ckpt failed from {path} because of "), self.times.spent("load_ckpt"):
            self.require_recorded(ArtefactKind.CKPT, index)
            # The recorded update was made from the recorded rollout, and this run's own may well be another.
            about.pop("batch_digest", None)
            load_checked(path, actor, about, strict=self.settings.strict)
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def require_recorded(self, kind: ArtefactKind, index: int) -> None:
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
            if kind is ArtefactKind.CKPT
            else "The recording ends there"
        )
        raise DirectoryError(
            f"session {self.session.number} in {self.layout.root} holds no {kind}_{index} (there is: {there}). {advice}"
        )


class RecordedRollouts:
    """Mode `rollout`: the recording answers."""

    def __init__(self, exchange: ReplayExchange) -> None:
        self._exchange = exchange

    def begin(self, prompts: DataProto) -> Call | None:
        return self._exchange.identify(prompts)

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        if call is None:
            return None
        index = call.index
        output = self._exchange.load_rollout(
            call, prompts, lambda: self._exchange.require_recorded(ArtefactKind.ROLLOUT, index)
        )
        self._exchange.times.account(call, output)
        return output

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        assert call is None, "a replay asks the engine only for what is no part of the session"


def _require_agreement(own: Card, other: Card, *, resumed: bool, strict: bool) -> None:
    """Return if the two configurations agree, or `strict` is not set; then warn. Raises AgreementError."""
    comparison = without_length(compare(own.config, other.config, {}, {}, resumed=resumed), own.config)
    warning = require_agreement(comparison, f"this run ({own.mode})", f"the recorded run ({other.mode})", strict=strict)
    if not comparison.agrees:
        say(MARK, f"Warning: {warning}", "yellow")


def _ranges(indexes: list[int]) -> list[str]:
    """Return `[0, 1, 2, 5]` as `["0 to 2", "5"]`."""
    ranges: list[list[int]] = []
    for index in indexes:
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    return [str(first) if first == last else f"{first} to {last}" for first, last in ranges]
