# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of a cross-checked step went, from the metrics of both runs.

One step of the pair, run A in mode `ckpt` and run B in mode `rollout`:

    A  |-- generate --|save|-- train ----|..wait..|load|-- push --|-- generate ...
    B  ....wait.......|load|-- train --------|save|-- push --|....wait...........

A run may have to wait for the other's *own work*: A for B's training as far as it lasts longer than A's own, B for A's
pushing and generating as far as those last longer than B's own pushing. Whatever else a step takes beyond the run's own
work (saving, loading, noticing that something is there) is the price of the exchange.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

TIMING = "timing_s/"
WAIT = ("share_data/wait_rollout", "share_data/wait_ckpt")
SAVE = ("share_data/save_rollout", "share_data/save_ckpt")
LOAD = ("share_data/load_rollout", "share_data/load_ckpt")


@dataclass(frozen=True)
class StepTimes:
    """Seconds of one run's step.

    Args:
        step_s: the whole step.
        wait_s, save_s, load_s: in the exchange.
        generate_s: in the own engine; 0 in mode `rollout`.
        push_s: weights to the own engine.
    """

    step_s: float
    wait_s: float
    save_s: float
    load_s: float
    generate_s: float
    push_s: float

    @classmethod
    def of(cls, metrics: dict[str, Any]) -> StepTimes:
        """Read a step's metrics as the trainer logs them."""

        def total(*names: str) -> float:
            return sum(float(metrics.get(TIMING + name, 0.0)) for name in names)

        # The trainer's "gen" spans everything around `generate_sequences`, the exchange of the rollout included.
        in_gen = total("share_data/wait_rollout", "share_data/load_rollout", "share_data/save_rollout")
        return cls(
            step_s=total("step"),
            wait_s=total(*WAIT),
            save_s=total(*SAVE),
            load_s=total(*LOAD),
            generate_s=max(0.0, total("gen") - in_gen),
            push_s=total("update_weights"),
        )

    @property
    def work_s(self) -> float:
        """The run's own work."""
        return self.step_s - self.wait_s - self.save_s - self.load_s

    @property
    def train_s(self) -> float:
        """Log-probs, advantages and updates: the own work between having the rollout and having the new weights."""
        return self.work_s - self.generate_s - self.push_s


def exchange_s(own: list[StepTimes], peer: list[StepTimes]) -> list[float]:
    """For each step but the first, what `own` took beyond its own work and what it had to wait for of the peer's.

    The first step is left out: the wait in it is for the start of the other run.

    Args:
        own, peer: the steps of the two runs, in order; the longer one is cut.
    """
    steps = list(zip(own, peer, strict=False))
    return [
        now.save_s + now.load_s + max(0.0, now.wait_s - _owed_s(before, (now, peer_now)))
        for before, (now, peer_now) in pairwise(steps)
    ]


def _owed_s(before: tuple[StepTimes, StepTimes], now: tuple[StepTimes, StepTimes]) -> float:
    """The peer's own work that a step waited for, given the pair (own, peer) of this step and of the one before."""
    own, peer = now
    if own.generate_s:  # mode ckpt: waits for the peer's training
        return max(0.0, peer.train_s - own.train_s)
    # Mode rollout: while the peer pushed its weights of the last step and generated, this run pushed its own.
    return max(0.0, before[1].push_s + peer.generate_s - before[0].push_s)
