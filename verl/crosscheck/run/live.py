# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One run's side of an exchange with another run that lives: what it gives, what it takes, and what it waits for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from verl.crosscheck.clock import Clock
from verl.crosscheck.console import MARK, failure_told, say
from verl.crosscheck.errors import CrossCheckError, DamagedError, PublishError
from verl.crosscheck.exchange import artefacts, filesystem, layout
from verl.crosscheck.exchange.free_space import require_space
from verl.crosscheck.exchange.layout import MANIFEST, Layout
from verl.crosscheck.exchange.manifest import read_manifest
from verl.crosscheck.exchange.publish import discard, publish_folder, sweep
from verl.crosscheck.exchange.retention import removable
from verl.crosscheck.exchange.session.claim import WRITES
from verl.crosscheck.exchange.session.peer import Sighting
from verl.crosscheck.exchange.session.wait import Wait, Waiting
from verl.crosscheck.identity import Call, CallKind
from verl.crosscheck.run import resuming
from verl.crosscheck.run.acceptance import load_answer
from verl.crosscheck.run.actor_files import ActorFiles, Save, load_checked
from verl.crosscheck.run.indexing import CallIndex, CallKey, index_of_call
from verl.crosscheck.run.observe.gather import Observed
from verl.crosscheck.run.observe.step_observer import StepObserver
from verl.crosscheck.run.participation import own_run
from verl.crosscheck.run.partner_checks import PartnerChecks
from verl.crosscheck.run.rollouts import identify_call, save_rollout
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import CkptFormat, ShareMode
from verl.protocol import DataProto
from verl.trainer.config.config import TrainerConfig


class LiveExchange:
    """A run in `mode`, taking part in a session.

    Args:
        config: the run's whole configuration.
        trainer: its trainer section, the directory having been opened.

    Raises:
        SessionError, DamagedError, DirectoryError: see `runs.own_run`.
    """

    def __init__(self, config: Any, trainer: TrainerConfig, mode: ShareMode, clock: Clock, times: StepTimes) -> None:
        self.mode, self.trainer, self.times = mode, trainer, times
        self.layout = Layout(Path(trainer.share_data_dir))
        self.run = own_run(config, trainer, mode, clock)
        self.meeting = PartnerChecks(self.run, trainer, clock)
        self.wait = Wait(trainer.share_data_timeout_s, _report, clock, self.meeting.peer)
        self.index = CallIndex(self.run.start, trainer.test_freq, resuming.last_step(config))
        self.updates = self.run.start.updates
        self.witness = StepObserver(self.run.place, trainer, times)
        self._size_bytes: dict[str, int] = {}
        self._half_deleted = False

    # ---------------------------------------------------------------- what the trainer tells

    def begin_at(self, global_step: int) -> None:
        """The trainer begins after `global_step`.

        Raises:
            ResumeError: which is not what this run told the other one.
        """
        resuming.require_start(self.run.start, global_step)

    def mark_checkpoint(self, folder: Path) -> None:
        """The trainer is about to save a checkpoint of its own in `folder`."""
        resuming.mark_checkpoint(folder, self.run.place.session.id, self.index.next, self.updates)

    def begin_training(self, actor: Any) -> None:
        """See `ShareDataTest.begin_training`."""
        if self.trainer.ckpt_format is not CkptFormat.NATIVE:
            self.meeting.why_not_portable = _why_not_portable(actor)
        self.meeting.look_around()
        self.meeting.require_portable_if_chosen()
        self.witness.begin(actor)

    # ---------------------------------------------------------------- rollouts

    def rollouts(self) -> PublishedRollouts | ReceivedRollouts:
        """What stands in front of the rollout manager."""
        return PublishedRollouts(self) if self.mode is ShareMode.CKPT else ReceivedRollouts(self)

    def identify(self, prompts: DataProto) -> Call | None:
        """The session's call that `prompts` make; None if it has no such call."""
        with self.times.spent("identify"):
            call = identify_call(self.index.next, prompts)
            at = index_of_call(self.index, CallKey(call.kind, call.global_step), self.recorded)
            if at is None:
                say(
                    MARK,
                    f"The validation after the resume from step {call.global_step} is no part of the session: the own "
                    "engine answers it.",
                )
                return None
            return replace(call, index=at)

    def recorded(self, index: int) -> CallKey | None:
        """What the session's rollout of an index answers; None if there is none yet."""
        path = self.layout.rollout(index)
        if not self.wait.is_listed(path) or not self.is_ours(path):
            return None
        return asked_of(path)

    def is_ours(self, path: Path) -> bool:
        """Whether an artefact was made in this session.

        Raises:
            DamagedError: it is damaged. Only until the other run has started, and has put aside what lay there before,
                such a one may be an earlier session's.
        """
        try:
            session = artefacts.read_artefact_about(path).get("session")
        except FileNotFoundError:
            return False
        except DamagedError:
            own = layout.is_of_kind(path.name, WRITES[self.mode.value])
            seen = None if own else self.meeting.peer.look()
            if own or (seen is not None and seen.progress is not None):
                raise
            return False
        return bool(session == self.run.place.session.id)

    # ---------------------------------------------------------------- checkpoints

    def exchange_actor(
        self, actor: ActorFiles, about: dict[str, Any], observed: Callable[[], Observed] | None = None
    ) -> None:
        """See `ShareDataTest.after_update_policy`."""
        index, self.updates = self.updates, self.updates + 1
        about = {"kind": "ckpt", "index": index, **about}
        path = self.layout.ckpt(index)
        evidence = self.witness.observe(observed, index, self.meeting.known_format)
        if self.mode is ShareMode.CKPT:
            self._take_ckpt(path, index, actor, about)
            self.witness.compare(evidence)
        else:
            self.witness.keep_own(evidence)
            self._give_ckpt(path, index, self.witness.reloaded(actor), about)

    def _take_ckpt(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        say(MARK, f"waiting for {path}", "green")
        self.run.report(f"waiting for {path.name}", updates=index)
        with failure_told(MARK, f"Load ckpt failed from {path} because of "):
            self.times.add("wait_ckpt", self.until_there(path, MANIFEST))
            self.witness.before_load()
            with self.times.spent("load_ckpt"):
                self.meeting.require_agreement()
                self.run.report(f"loading {path.name}")
                self._load(path, actor, about)
        self.witness.after_load()
        self.run.report_taken("ckpt", index, "pushing weights")
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def _give_ckpt(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        self.meeting.require_partner("rollout", self.index.next)
        if self.wait.is_listed(path) and self.is_ours(path):
            self._go_on_with(path, index, actor, about)
            return
        form = self.meeting.ckpt_format()
        save = actor.save_as(form)
        self.run.report(f"saving {path.name}", updates=index)
        with self.times.spent("save_ckpt"):
            with saving(path), failure_told(MARK, f"Failed to save ckpt to {path}: "):
                self.run.place.require_current()
                require_space(path, self._last_size_bytes("ckpt", index))
                stamped = {**about, "format": form.value, **self.run.place.stamp}
                self._size_bytes["ckpt"] = publish_folder(path, lambda stage: self._fill(stage, save), stamped)
            self.run.report_published("ckpt", index, "pushing weights")
            self._delete_old()
        say(MARK, f"Successfully save ckpt to {path}", "green")

    def _fill(self, stage: Path, save: Save) -> None:
        """A save may take long, and a run that was replaced meanwhile has had its half-filled folder swept away, which
        upstream's workers then make anew: it must not be published as if it were whole."""
        save(str(stage))
        self.run.place.require_current()

    def _go_on_with(self, path: Path, index: int, actor: ActorFiles, about: dict[str, Any]) -> None:
        """An earlier run of this side saved that update, and the other run may have loaded it: both go on from it."""
        with self.times.spent("load_ckpt"), failure_told(MARK, f"Load ckpt failed from {path} because of "):
            self._load(path, actor, about)
        self.run.report_published("ckpt", index, "pushing weights")
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def _load(self, path: Path, actor: ActorFiles, about: dict[str, Any]) -> None:
        self.run.place.require_current()
        load_checked(path, actor, about, strict=self.trainer.share_data_strict)

    def _delete_old(self) -> None:
        """Delete the checkpoints that neither this run nor the other one needs again."""
        seen = self.meeting.peer.look()
        taken = seen.progress.taken.get("ckpt", 0) if seen is not None and seen.progress is not None else 0
        root, keep = self.layout.root, self.trainer.share_data_keep_ckpts
        if self._half_deleted:
            with suppress(OSError):
                sweep(root, "ckpt")
                self._half_deleted = False
        present = layout.artefacts(filesystem.active().names(root), "ckpt")
        for index in removable(present, taken, keep):
            try:
                discard(self.layout.ckpt(index))
            except OSError as e:  # the run is none the worse
                self._half_deleted = True
                say(MARK, f"Warning: {self.layout.ckpt(index)} could not be deleted ({e.strerror})", "yellow")

    def _last_size_bytes(self, kind: str, index: int) -> int:
        """What the last artefact of a kind took; 0 if there was none."""
        if kind not in self._size_bytes and index > 0:
            path = self.layout.artefact(kind, index - 1)
            with suppress(CrossCheckError, OSError):
                self._size_bytes[kind] = (
                    sum(read_manifest(path).files.values()) if kind == "ckpt" else path.lstat().st_size
                )
        return self._size_bytes.get(kind, 0)

    # ---------------------------------------------------------------- both

    def until_there(self, path: Path, marker: str | None = None) -> float:
        """Wait for an artefact of this session; the seconds that took. Raises as `Wait.until_listed` does."""
        return self.wait.until_listed(path, marker, self.is_ours, self._each_look)

    def save_rollout(self, call: Call, prompts: DataProto, output: DataProto) -> Path:
        """Publish the engine's answer to `call`."""
        path = self.layout.rollout(call.index)
        with saving(path), failure_told(MARK, f"Failed to dump data in {path}: "):
            self.run.place.require_current()
            require_space(path, self._last_size_bytes("rollout", call.index))
            self._size_bytes["rollout"] = save_rollout(path, call, prompts, output, stamp=self.run.place.stamp)
        return path

    def load_rollout(self, path: Path, call: Call, prompts: DataProto) -> DataProto:
        """The recorded answer to `call`."""
        return load_answer(path, call, prompts, strict=self.trainer.share_data_strict)

    def _each_look(self, seen: Sighting | None) -> None:
        self.meeting.notice(seen)
        self.run.place.require_current()


class PublishedRollouts:
    """Mode `ckpt`: the engine answers, and the other run gets a copy. What an earlier run of this side has already
    given, before it was resumed, is not generated again: the other run may have trained on it."""

    def __init__(self, side: LiveExchange) -> None:
        self._side = side

    def begin(self, prompts: DataProto) -> Call | None:
        self._side.meeting.require_partner("ckpt", self._side.updates)
        call = self._side.identify(prompts)
        if call is not None:
            self._side.run.report("generating", global_step=call.global_step, calls=call.index)
        return call

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        if call is None:
            return None
        side, path = self._side, self._side.layout.rollout(call.index)
        if not side.wait.is_listed(path) or not side.is_ours(path):
            return None
        told = failure_told(MARK, f"Failed to load pre-generated data from {path} Error: ")
        with told, side.times.spent("load_rollout"):
            output = side.load_rollout(path, call, prompts)
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        side.run.report_published("rollout", call.index, _after(call))
        side.times.account(call, output)
        return output

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        if call is None:
            return
        side = self._side
        with side.times.spent("save_rollout"):
            path = side.save_rollout(call, prompts, output)
        side.run.report_published("rollout", call.index, _after(call))
        say(MARK, f"Successfully dump data in {path}", "green")
        side.times.account(call, output)


class ReceivedRollouts:
    """Mode `rollout`: the other run's engine answers."""

    def __init__(self, side: LiveExchange) -> None:
        self._side = side

    def begin(self, prompts: DataProto) -> Call | None:
        return self._side.identify(prompts)

    def load(self, call: Call | None, prompts: DataProto) -> DataProto | None:
        if call is None:
            return None
        side = self._side
        say(MARK, "Waiting for shared data...", "green")
        call = self._await(call)
        path = side.layout.rollout(call.index)
        told = failure_told(MARK, f"Failed to load pre-generated data from {path} Error: ")
        with told, side.times.spent("load_rollout"):
            side.meeting.require_agreement()
            side.run.place.require_current()
            output = side.load_rollout(path, call, prompts)
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        side.run.report_taken("rollout", call.index, _after(call))
        side.times.account(call, output)
        return output

    def _await(self, call: Call) -> Call:
        """Wait for the answer to `call`; it comes with the index at which it was found."""
        side = self._side
        while True:
            path = side.layout.rollout(call.index)
            side.run.report(f"waiting for {path.name}", global_step=call.global_step, calls=call.index)
            if not side.wait.is_listed(path):
                say(MARK, f"No data dump found at {path}.")
            with failure_told(MARK, f"Failed to load pre-generated data from {path} Error: "):
                side.times.add("wait_rollout", side.until_there(path))
                # Only a run that goes on with a session may meet a recording of a call that it does not make.
                recorded = side.recorded(call.index) if side.run.start.session is not None else None
            if recorded is None or not side.index.passes_over(CallKey(call.kind, call.global_step), recorded):
                return call
            call = replace(call, index=call.index + 1)

    def save(self, call: Call | None, prompts: DataProto, output: DataProto) -> None:
        assert call is None, "mode rollout asks the engine only for what is no part of the session"


def _why_not_portable(actor: Any) -> str:
    """As its workers tell; empty if nothing stands in the way."""
    from verl.crosscheck.weights.portable.transfer import support

    try:
        return support(actor)
    except Exception as e:  # it matters only if the other run needs portable ones
        return f"workers that do not tell ({type(e).__name__}: {e})"


def _after(call: Call) -> str:
    """What a run does once it has the answer to a call."""
    return "validating" if call.kind is CallKind.VALIDATION else "training"


def asked_of(path: Path) -> CallKey:
    """What a rollout says that it answers, its body being unread.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it says nothing that could be one.
    """
    about = artefacts.read_artefact_about(path)
    try:
        return CallKey(CallKind(about["call"]), about["global_step"])
    except (KeyError, ValueError) as e:
        raise DamagedError(f"{path} does not say what it answers ({e!r}). Nothing of it was used") from None


@contextmanager
def saving(path: Path) -> Iterator[None]:
    """Errors that explain themselves go on as they are; others become one that says what was being saved."""
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


def _report(waiting: Waiting) -> None:
    doing = f", the other run is {waiting.peer or 'not there: it has not started'}"
    say(
        MARK,
        f"still waiting for {waiting.path.name}: {waiting.waited_s:.0f} s so far, last sign of progress "
        f"{waiting.since_progress_s:.0f} s ago{doing}; giving up after {waiting.timeout_s:.0f} s without one",
    )
