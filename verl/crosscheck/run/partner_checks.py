# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Checks of the other run before anything of it is used: both compute the same thing, and both can go on."""

from __future__ import annotations

from typing import Any

from verl.crosscheck.agreement.batch_split import batch_split_of, why_other_updates
from verl.crosscheck.agreement.compare import Comparison, compare, flatten, not_known, require_agreement, without_length
from verl.crosscheck.clock import Clock
from verl.crosscheck.console import MARK, say
from verl.crosscheck.errors import DamagedError, ResumeError, SettingsError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.artefacts import lost, of_session, read_artefact_about
from verl.crosscheck.exchange.layout import OTHER, WRITES, ArtefactKind, RunNames
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.own_run import OwnRun
from verl.crosscheck.exchange.session.peer import Peer, Sighting
from verl.crosscheck.exchange.session.run_files import Card, EndState
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.run.ckpt_format import FormatChoice, choose
from verl.crosscheck.settings import CkptFormat, ShareSettings

_NO_FACTS = {"facts": not_known(because(ReasonCode.NO_FACTS))}
_FACTS_EVERY_S = 0.1


class PartnerChecks:
    """The checks of one run. They are repeated when another run takes the place of the other one.

    Args:
        settings: of this run.
    """

    def __init__(self, run: OwnRun, settings: ShareSettings, clock: Clock) -> None:
        self._run, self._settings, self._clock = run, settings, clock
        slot = run.slot
        self.peer = Peer(slot.session.folder, OTHER[slot.mode], settings.silence_s, clock, run.card.others_before)
        """The other run."""
        self._configured: int | None = None
        self._choice: FormatChoice | None = None
        self._said: FormatChoice | None = None
        self.why_not_portable = ""
        """Why this run's workers have no portable checkpoints, as far as they have reported it."""
        self._compared: tuple[int, bool] | None = None
        """Number of the run that was compared with, and whether its facts were."""

    def look_around(self) -> Sighting | None:
        """Compare configurations, if the other run is there and that has not been done.

        Raises:
            AgreementError: they differ where they must not, and the run is strict.
            MismatchError: neither could load the other's checkpoints, see `ckpt_format.choose`.
            SettingsError: portable ones are needed, and this run's workers have none.
            ResumeError: what this run needs is gone, and will not be made again.
        """
        seen = self.peer.look()
        self.notice(seen)
        return seen

    def notice(self, seen: Sighting | None) -> None:
        """Do as `look_around`, for a caller that has looked already."""
        if seen is None or self._configured == seen.number:
            return
        if self._compared is None or self._compared[0] != seen.number:
            self._compare(seen.card, {}, {})
        self._choose(seen.card)
        self._require_no_loss(seen)
        self._configured = seen.number

    @property
    def known_format(self) -> CkptFormat | None:
        """Form in which this pair exchanges checkpoints; None while that is not known."""
        return None if self._choice is None else self._choice.format

    def ckpt_format(self) -> CkptFormat:
        """Return the form in which this pair exchanges checkpoints. If the other run is over, its card decides.

        Raises:
            MismatchError: see `look_around`.
        """
        if self._choice is None:
            number = self._run.card.others_before
            if number == 0:  # no other run yet: choose what fits a run laid out like this one
                asked = self._settings.ckpt_format
                return CkptFormat.NATIVE if asked is CkptFormat.AUTO else asked
            return self._choose(run_files.read_card(self._run.slot.session.run(self.peer.mode, number))).format
        return self._choice.format

    def _choose(self, other: Card) -> FormatChoice:
        self._choice = choose(self._run.card, other)
        self.require_portable_if_chosen()
        return self._choice

    def require_portable_if_chosen(self) -> None:
        """Raise SettingsError if portable checkpoints are asked for, or needed, and this run's workers have none."""
        asked = self._settings.ckpt_format if self._choice is None else self._choice.format
        if asked is CkptFormat.PORTABLE and self.why_not_portable:
            raise SettingsError(
                f"this run cannot exchange portable checkpoints: not possible with {self.why_not_portable}"
            )

    def require_partner(self, kind: ArtefactKind, index: int) -> None:
        """Do as `look_around`, and raise if the other run has ended without what this one needs next.

        Args:
            kind, index: what this run will need next of the other one.

        Raises:
            PeerFailedError: it has failed, or was interrupted, and the artefact will not come.
            AgreementError, ResumeError: see `look_around`.
        """
        seen = self.look_around()
        if seen is not None and seen.end is not None and seen.end.state is not EndState.FINISHED:
            self.peer.require_hope(kind, index)

    def require_agreement(self) -> None:
        """Compare configurations and facts, before something of the other run is used for the first time.

        If the other run is over, it is still compared with, until another run takes its place.

        Raises:
            AgreementError, ResumeError: see `look_around`.
        """
        seen = self.look_around()
        number = seen.number if seen is not None else self._run.card.others_before
        if number == 0 or self._compared == (number, True):
            return
        names = self._run.slot.session.run(self.peer.mode, number)
        reported = self._reports_facts(names, over=seen is None)
        if self._compared != (number, reported):
            other = seen.card if seen is not None else run_files.read_card(names)
            self._compare_all(other, names, reported, over=seen is None)
            choice = self._choose(other)
            if choice != self._said:  # once, and again if another run takes the other one's place and it changes
                say(MARK, f"checkpoints are exchanged in the {choice.format.value} form: {choice.reason}")
                self._said = choice
            if why := why_other_updates(*(batch_split_of(flatten(each.config)) for each in (self._run.card, other))):
                say(MARK, f"Warning: the verdict will not compare the updates: {why}", "yellow")
            self._compared = (number, reported)

    def _reports_facts(self, names: RunNames, *, over: bool) -> bool:
        """Return whether a run reports that its facts are there. The last report of a run that is over may be lost with
        its node."""
        try:
            progress = run_files.read_progress(names)
        except DamagedError:
            if not over:
                raise
            return names.facts.exists()
        return progress is not None and progress.facts

    def _compare_all(self, other: Card, names: RunNames, reported: bool, *, over: bool) -> None:
        own_facts = run_files.read_facts(self._run.slot.names) if self._run.progress.facts else None
        other_facts = self._facts(names) if reported else None
        comparison = self._compare(other, own_facts or _NO_FACTS, other_facts or _NO_FACTS, over=over)
        if not comparison.agrees:
            say(MARK, f"Warning: {comparison.report(*self._names(other))}", "yellow")
            return
        say(MARK, f"this run agrees with {other.identity}")
        if comparison.allowed:
            keys = ", ".join(each.difference.key for each in comparison.allowed)
            say(MARK, f"{len(comparison.allowed)} settings differ, and may: {keys}")
        for line in comparison.not_compared_lines():
            say(MARK, line)

    def _facts(self, names: RunNames) -> dict[str, Any] | None:
        """Return a run's facts. It has reported that they are there, and the directory may show them later."""
        deadline_s = self._clock.monotonic_s() + self._settings.silence_s
        while (facts := run_files.read_facts(names)) is None and self._clock.monotonic_s() < deadline_s:
            self._clock.sleep(_FACTS_EVERY_S)
        return facts

    def _compare(
        self, other: Card, own_facts: dict[str, Any], other_facts: dict[str, Any], *, over: bool = False
    ) -> Comparison:
        own = self._run.card
        resumed = own.start.session is not None or other.start.session is not None
        comparison = compare(own.config, other.config, own_facts, other_facts, resumed=resumed)
        if over:
            comparison = without_length(comparison, own.config)
        require_agreement(comparison, *self._names(other), strict=self._settings.strict)
        return comparison

    def _names(self, other: Card) -> tuple[str, str]:
        return f"this run ({self._run.card.mode})", f"the other run ({other.mode})"

    def _require_no_loss(self, seen: Sighting) -> None:
        """Raise if an artefact that this run will need is gone and will not be made again. This run may be far
        beyond its start when the other run is started again."""
        kind = WRITES[seen.card.mode]
        progress, start = seen.progress, seen.card.start
        needed = self._run.progress.taken[kind]
        if kind is ArtefactKind.ROLLOUT:
            made = progress.calls if progress else start.calls
        else:
            made = progress.updates if progress else start.updates
        root, session = self._run.slot.root, self._run.slot.session
        listed = layout.artefacts(filesystem.active().names(root), kind)
        newest = max(listed, default=-1)
        # One that is older than another which is there has been deleted; a newer one may only not be listed yet.
        gone = [index for index in lost(needed, made, listed) if index < newest]
        if not gone:
            return
        there = of_session(root, kind, session)
        later = [index for index in there if index > gone[-1]]
        step = self._step_before(kind, later[0]) if later else None
        advice = f"resume this run after step {step} or later, or " if step is not None else "resume "
        raise ResumeError(
            f"this run begins after step {self._run.start.global_step} and needs {kind}_{gone[0]}, which the other "
            f"run, {seen.card.identity}, has deleted: it is about to make {kind}_{made}. There are "
            f"{', '.join(f'{kind}_{index}' for index in there) or 'none'}. So {advice}the other run after step "
            f"{self._run.start.global_step} or earlier, or both from the beginning; trainer.share_data_keep_ckpts=null "
            "on the run in mode rollout keeps all checkpoints"
        )

    def _step_before(self, kind: ArtefactKind, index: int) -> int | None:
        """Return the step after which a run that needs `kind` from `index` on can be resumed, as the artefact says."""
        about = read_artefact_about(layout.Layout(self._run.slot.root).artefact(kind, index))
        step = about.get("global_step")
        return step - 1 if type(step) is int else None
