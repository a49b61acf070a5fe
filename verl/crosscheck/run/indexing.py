# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which call of `generate_sequences` is which rollout of the session, also after a resume. Pure; knows no files.

A run that takes part from the beginning of a session counts its calls. A run that resumes after step N starts at the
index that its checkpoint noted, which is before the validation of step N. It then makes another sequence of calls than
an undisturbed run: upstream validates right after a resume if `trainer.val_before_train` is set, whether step N was due
for validation or not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from verl.crosscheck.exchange.session.run_files import Start
from verl.crosscheck.identity import CallKind


@dataclass(frozen=True)
class CallKey:
    """What a call is for. Its index in the sequence depends on nothing else."""

    kind: CallKind
    global_step: int | None


class Decision(Enum):
    """What to do with a call, given the rollout that is recorded at its index."""

    EXCHANGE = "exchange"
    """The call is the session's call of that index."""
    SKIP = "skip"
    """The recorded one is a validation that this run, being resumed, does not repeat: look at the next index."""
    OWN = "own"
    """The session has no such call: the own engine answers, and nothing is exchanged."""


@dataclass
class CallIndex:
    """The index of a run's next call.

    Args:
        start: where the run begins.
        test_freq: steps between validations; -1 for none.
        last_step: after which there is one in any case, unless there are none; None if that is not known.
    """

    start: Start
    test_freq: int = -1
    last_step: int | None = None

    def __post_init__(self) -> None:
        self.next = self.start.calls
        self._goes_on = self.start.session is not None
        self._trained = 0

    @property
    def looks_back(self) -> bool:
        """Whether the next decision depends on what is recorded."""
        return self._goes_on and not self._trained

    def decide(self, call: CallKey, recorded: CallKey | None) -> Decision:
        """Return what to do with `call`, and count the call.

        Args:
            recorded: the rollout of the index `next`, None if there is none yet. After SKIP ask again with that of the
                new `next`.
        """
        decision = self._decision(call, recorded)
        if decision is not Decision.OWN:
            self.next += 1
        if decision is Decision.EXCHANGE and call.kind is not CallKind.VALIDATION:
            self._trained += 1
        return decision

    def passes_over(self, call: CallKey, recorded: CallKey) -> bool:
        """Return whether `recorded` is a validation that this run does not repeat. It was found where the answer to the
        first training call after a resume was expected; that call then has the next index."""
        first = self._goes_on and self._trained == 1 and call.kind is not CallKind.VALIDATION
        if first and self._ends_resumed_step(recorded):
            self.next += 1
            return True
        return False

    def _decision(self, call: CallKey, recorded: CallKey | None) -> Decision:
        if not self.looks_back:
            return Decision.EXCHANGE
        there = recorded is not None and self._ends_resumed_step(recorded)
        if self._ends_resumed_step(call):
            return Decision.EXCHANGE if there or (recorded is None and self._is_due()) else Decision.OWN
        return Decision.SKIP if there else Decision.EXCHANGE

    def _is_due(self) -> bool:
        """Return whether an undisturbed run validates at the end of the step after which this one was resumed."""
        step = self.start.global_step
        last = self.last_step is not None and step >= self.last_step
        return self.test_freq > 0 and (last or step % self.test_freq == 0)

    def _ends_resumed_step(self, call: CallKey) -> bool:
        """Return whether a call is of the validation at the end of the step after which this run was resumed."""
        return call.kind is CallKind.VALIDATION and call.global_step == self.start.global_step


def index_of_call(index: CallIndex, call: CallKey, recorded: Callable[[int], CallKey | None]) -> int | None:
    """Return the index of `call` in the session; None if the session has no such call.

    Args:
        recorded: what is recorded at an index, None if nothing is yet.
    """
    while True:
        at = index.next
        decision = index.decide(call, recorded(at) if index.looks_back else None)
        if decision is not Decision.SKIP:
            return at if decision is Decision.EXCHANGE else None
