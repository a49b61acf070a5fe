# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One run's part in an exchange with a run that lives: what it publishes, what it takes, and what it waits for."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.facts import collect_facts
from verl.crosscheck.agreement.facts_model import adapter_facts, critic_adapter_facts, trains_adapters
from verl.crosscheck.clock import Clock
from verl.crosscheck.console import MARK, failure_told, say
from verl.crosscheck.errors import CrossCheckError, DamagedError, PublishError
from verl.crosscheck.exchange import artefacts, filesystem, layout
from verl.crosscheck.exchange.artefacts import removable, require_space
from verl.crosscheck.exchange.layout import MANIFEST, WRITES, ArtefactKind, Layout
from verl.crosscheck.exchange.manifest import read_manifest
from verl.crosscheck.exchange.publish import discard, publish_folder, sweep
from verl.crosscheck.exchange.session.peer import Sighting
from verl.crosscheck.exchange.session.wait import Wait, Waiting
from verl.crosscheck.identity import Call, CallKind
from verl.crosscheck.redaction import without_secrets
from verl.crosscheck.run.acceptance import load_checked, recorded_key
from verl.crosscheck.run.exchanging import Exchange
from verl.crosscheck.run.hooks import ActorFiles, ActorUpdate, Save
from verl.crosscheck.run.indexing import CallKey
from verl.crosscheck.run.observe.step_observer import StepObserver
from verl.crosscheck.run.participation import own_run
from verl.crosscheck.run.partner_checks import PartnerChecks
from verl.crosscheck.run.rollouts import save_rollout
from verl.crosscheck.settings import CkptFormat, ShareMode, ShareSettings
from verl.crosscheck.weights.portable import transfer
from verl.protocol import DataProto


class LiveExchange(Exchange):
    """A run in `mode`, taking part in a session. Its parts: `partner` says whether the other run's output may be used,
    `wait` waits for it, `observer` records and compares the steps.

    Args:
        config, settings: see `Exchange`.
        clock: the time that waits go by.

    Raises:
        SessionError, DamagedError, DirectoryError: see `participation.own_run`.
    """

    def __init__(self, config: Any, settings: ShareSettings, mode: ShareMode, clock: Clock) -> None:
        self.run = own_run(config, settings, mode, clock)
        self.slot = self.run.slot
        super().__init__(config, settings, mode, Layout(settings.directory), self.slot.session.id, self.run.start)
        self.partner = PartnerChecks(self.run, settings, clock)
        self.wait = Wait(settings.timeout_s, _say_waiting, clock, self.partner.peer)
        self.observer = StepObserver(self.slot, settings, self.times)
        self._trains_adapters = trains_adapters(config)
        self._facts: dict[str, Any] = {}
        self._size_bytes: dict[ArtefactKind, int] = {}
        """By kind: size of the artefact that this run saved last."""
        self._half_deleted = False

    # ---------------------------------------------------------------- places of the trainer

    def constructed(self, trainer: Any) -> None:
        self._facts = {**collect_facts(trainer), **critic_adapter_facts(self.config)}
        if not self._trains_adapters:
            self.report_facts(self._facts)
        self.note_sampling(getattr(trainer, "tokenizer", None))

    def resumed(self, global_step: int, trainer: Any) -> None:
        self.begin_at(global_step)
        if self._trains_adapters:  # no worker has its adapter earlier
            self._facts["adapters"] = adapter_facts(trainer.actor_rollout_wg, global_step)
            self.report_facts(self._facts)
        self.begin_training(trainer.actor_rollout_wg)

    def ended(self, error: BaseException | None) -> None:
        """Report how this run ended. The first report counts."""
        self.run.end(error)

    def before_update(self, batch: DataProto, global_step: int) -> None:
        self.observer.before_update(batch, global_step)

    # ---------------------------------------------------------------- steps of these places

    def report_facts(self, facts: dict[str, Any]) -> None:
        self.run.report_facts(without_secrets(facts, os.environ))

    def note_sampling(self, tokenizer: Any) -> None:
        self.observer.note_sampling(self.config, tokenizer)

    def begin_training(self, workers: Any) -> None:
        """Begin training. Raises as `PartnerChecks.look_around` does, and SettingsError if `workers` lack the form that
        is chosen."""
        if self.settings.ckpt_format is not CkptFormat.NATIVE:
            self.partner.why_not_portable = _why_not_portable(workers)
        self.partner.look_around()
        self.partner.require_portable_if_chosen()
        self.observer.begin(workers)

    def metrics(self) -> dict[str, float]:
        return self.observer.metrics()

    # ---------------------------------------------------------------- rollouts

    def rollouts(self) -> PublishedRollouts | ReceivedRollouts:
        return PublishedRollouts(self) if self.mode is ShareMode.CKPT else ReceivedRollouts(self)

    def identify(self, prompts: DataProto) -> Call | None:
        call = super().identify(prompts)
        if call is None:
            say(
                MARK,
                f"The validation after the resume from step {prompts.meta_info.get('global_steps')} is no part of the "
                "session: the own engine answers it.",
            )
        return call

    def recorded(self, index: int) -> CallKey | None:
        path = self.layout.rollout(index)
        return recorded_key(path) if self.is_there(path) else None

    def is_there(self, path: Path) -> bool:
        """Return whether an artefact of this session is listed at `path`. Raises as `is_ours` does."""
        return self.wait.is_listed(path) and self.is_ours(path)

    def is_ours(self, path: Path) -> bool:
        """Return whether an artefact was made in this session.

        Raises:
            DamagedError: it is damaged. Only until the other run has started, and has put aside what lay there before,
                a damaged one may be an earlier session's.
        """
        try:
            session = artefacts.read_artefact_about(path).get("session")
        except FileNotFoundError:
            return False
        except DamagedError:
            own = layout.is_of_kind(path.name, WRITES[self.mode])
            seen = None if own else self.partner.peer.look()
            if own or (seen is not None and seen.progress is not None):
                raise
            return False
        return bool(session == self.session_id)

    def until_there(self, path: Path, marker: str | None = None) -> float:
        """Wait for an artefact of this session. Return the seconds that took. Raises as `Wait.until_listed` does."""
        return self.wait.until_listed(path, marker, self.is_ours, self._each_look)

    def _each_look(self, seen: Sighting | None) -> None:
        self.partner.notice(seen)
        self.slot.require_current()

    def save_rollout(self, call: Call, prompts: DataProto, output: DataProto) -> Path:
        """Publish the engine's answer to `call`."""
        path = self.layout.rollout(call.index)
        with saving(path), failure_told(MARK, f"Failed to dump data in {path}: "):
            self.slot.require_current()
            require_space(path, self._last_size_bytes(ArtefactKind.ROLLOUT, call.index))
            self._size_bytes[ArtefactKind.ROLLOUT] = save_rollout(path, call, prompts, output, stamp=self.slot.stamp)
        return path

    # ---------------------------------------------------------------- checkpoints

    def _exchange_ckpt(
        self, index: int, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], ActorUpdate] | None
    ) -> None:
        path = self.layout.ckpt(index)
        evidence = self.observer.observe(observed, index, self.partner.known_format)
        if self.mode is ShareMode.CKPT:
            self._take_ckpt(path, index, actor, about)
            self.observer.compare(evidence)
        else:
            self.observer.keep_own(evidence)
            self._give_ckpt(path, index, self.observer.reloaded(actor), about)

    def _take_ckpt(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        say(MARK, f"waiting for {path}", "green")
        self.run.report(f"waiting for {path.name}", updates=index)
        with failure_told(MARK, f"Load ckpt failed from {path} because of "):
            self.times.add("wait_ckpt", self.until_there(path, MANIFEST))
            self.observer.before_load()
            with self.times.spent("load_ckpt"):
                self.partner.require_agreement()
                self.run.report(f"loading {path.name}")
                self._load(path, actor, about)
        self.observer.after_load()
        self.run.report_taken(ArtefactKind.CKPT, index, "pushing weights")
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def _give_ckpt(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        self.partner.require_partner(ArtefactKind.ROLLOUT, self.index.next)
        if self.is_there(path):
            self._go_on_with(path, index, actor, about)
            return
        form = self.partner.ckpt_format()
        save = actor.save_as(form)
        self.run.report(f"saving {path.name}", updates=index)
        with self.times.spent("save_ckpt"):
            with saving(path), failure_told(MARK, f"Failed to save ckpt to {path}: "):
                self.slot.require_current()
                require_space(path, self._last_size_bytes(ArtefactKind.CKPT, index))
                stamped = {**about, "format": form.value, **self.slot.stamp}
                self._size_bytes[ArtefactKind.CKPT] = publish_folder(
                    path, lambda stage: self._fill(stage, save), stamped
                )
            self.run.report_published(ArtefactKind.CKPT, index, "pushing weights")
            self._delete_old()
        say(MARK, f"Successfully save ckpt to {path}", "green")

    def _fill(self, stage: Path, save: Save) -> None:
        """Save into `stage`, and raise SessionError if this run was replaced meanwhile. Its successor sweeps `stage`
        away and upstream's workers make it anew for the rest of their files: half a checkpoint must not be published.
        """
        save(str(stage))
        self.slot.require_current()

    def _go_on_with(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        """Load what an earlier run of this mode saved of this update. The other run may have loaded it already, and
        both must go on from the same weights."""
        with self.times.spent("load_ckpt"), failure_told(MARK, f"Load ckpt failed from {path} because of "):
            self._load(path, actor, about)
        self.run.report_published(ArtefactKind.CKPT, index, "pushing weights")
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def _load(self, path: Path, actor: ActorFiles, about: dict[str, Any]) -> None:
        self.slot.require_current()
        load_checked(path, actor, about, strict=self.settings.strict)

    def _delete_old(self) -> None:
        """Delete the checkpoints that neither this run nor the other one needs again."""
        seen = self.partner.peer.look()
        taken = seen.progress.taken.get(ArtefactKind.CKPT, 0) if seen is not None and seen.progress is not None else 0
        root = self.layout.root
        if self._half_deleted:
            with suppress(OSError):
                sweep(root, ArtefactKind.CKPT)
                self._half_deleted = False
        present = layout.artefacts(filesystem.active().names(root), ArtefactKind.CKPT)
        for index in removable(present, taken, self.settings.keep_ckpts):
            try:
                discard(self.layout.ckpt(index))
            except OSError as e:  # costs space and nothing else: tried again after the next update
                self._half_deleted = True
                say(MARK, f"Warning: {self.layout.ckpt(index)} could not be deleted ({e.strerror})", "yellow")

    def _last_size_bytes(self, kind: ArtefactKind, index: int) -> int:
        """Return the size of the last artefact of a kind; 0 if there was none."""
        if kind not in self._size_bytes and index > 0:
            path = self.layout.artefact(kind, index - 1)
            with suppress(CrossCheckError, OSError):
                self._size_bytes[kind] = (
                    sum(read_manifest(path).files.values()) if kind is ArtefactKind.CKPT else path.lstat().st_size
                )
        return self._size_bytes.get(kind, 0)


class PublishedRollouts:
    """Mode `ckpt`: the engine answers, and the other run gets a copy. After a resume, an answer that an earlier run of
    this mode published is loaded instead of generated again: the other run may have trained on it."""

    def __init__(self, exchange: LiveExchange) -> None:
        self._exchange = exchange

    def begin(self, prompts: DataProto) -> Call | None:
        exchange = self._exchange
        exchange.partner.require_partner(ArtefactKind.CKPT, exchange.updates)
        call = exchange.identify(prompts)
        if call is not None:
            exchange.run.report("generating", global_step=call.global_step, calls=call.index)
        return call

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        exchange = self._exchange
        if call is None or not exchange.is_there(exchange.layout.rollout(call.index)):
            return None
        output = exchange.load_rollout(call, prompts)
        exchange.run.report_published(ArtefactKind.ROLLOUT, call.index, _phase_after(call))
        exchange.times.account(call, output)
        return output

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        if call is None:
            return
        exchange = self._exchange
        with exchange.times.spent("save_rollout"):
            path = exchange.save_rollout(call, prompts, output)
        exchange.run.report_published(ArtefactKind.ROLLOUT, call.index, _phase_after(call))
        say(MARK, f"Successfully dump data in {path}", "green")
        exchange.times.account(call, output)


class ReceivedRollouts:
    """Mode `rollout`: the other run's engine answers."""

    def __init__(self, exchange: LiveExchange) -> None:
        self._exchange = exchange

    def begin(self, prompts: DataProto) -> Call | None:
        return self._exchange.identify(prompts)

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        if call is None:
            return None
        exchange = self._exchange
        say(MARK, "Waiting for shared data...", "green")
        call = self._await(call)
        output = exchange.load_rollout(call, prompts, self._require_usable)
        exchange.run.report_taken(ArtefactKind.ROLLOUT, call.index, _phase_after(call))
        exchange.times.account(call, output)
        return output

    def _require_usable(self) -> None:
        self._exchange.partner.require_agreement()
        self._exchange.slot.require_current()

    def _await(self, call: Call) -> Call:
        """Wait for the answer to `call`. Return the call with the index at which its answer was found."""
        exchange = self._exchange
        while True:
            path = exchange.layout.rollout(call.index)
            exchange.run.report(f"waiting for {path.name}", global_step=call.global_step, calls=call.index)
            if not exchange.wait.is_listed(path):
                say(MARK, f"No data dump found at {path}.")
            with failure_told(MARK, f"Failed to load pre-generated data from {path} Error: "):
                exchange.times.add("wait_rollout", exchange.until_there(path))
                # Only a run that goes on with a session may meet a recording of a call that it does not make.
                recorded = exchange.recorded(call.index) if exchange.start.session is not None else None
            if recorded is None or not exchange.index.passes_over(CallKey(call.kind, call.global_step), recorded):
                return call
            call = replace(call, index=call.index + 1)

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        assert call is None, "mode rollout asks the engine only for what is no part of the session"


def _why_not_portable(workers: Any) -> str:
    """Return why the workers have no portable checkpoints, as they report it; empty if they have them."""
    try:
        return transfer.support(workers)
    except Exception as e:  # it matters only if the other run needs portable ones
        return f"workers that do not report it ({type(e).__name__}: {e})"


def _phase_after(call: Call) -> str:
    """Return what a run does once it has the answer to `call`, as its progress says it."""
    return "validating" if call.kind is CallKind.VALIDATION else "training"


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Let errors of the cross-check pass, and turn any other into one that says what was being saved."""
    try:
        yield
    except CrossCheckError:
        raise
    except Exception as e:
        raise PublishError(
            f"{path} was not saved ({type(e).__name__}: {e}), so the other run would wait for it in vain and this run "
            "stops. Check free space and permissions there, then start both runs again; with trainer.resume_mode=auto "
            "they go on from their last checkpoints"
        ) from e


def _say_waiting(waiting: Waiting) -> None:
    doing = f", the other run is {waiting.peer or 'not there: it has not started'}"
    say(
        MARK,
        f"still waiting for {waiting.path.name}: {waiting.waited_s:.0f} s so far, last sign of progress "
        f"{waiting.since_progress_s:.0f} s ago{doing}; giving up after {waiting.timeout_s:.0f} s without one",
    )
