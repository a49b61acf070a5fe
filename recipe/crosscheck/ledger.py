# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Where the seconds of a cross-checked step went, from the metrics of both runs.

One step of the pair, run A in mode `ckpt` and run B in mode `rollout`:

    A  |-- generate --|save|-- train ----|..wait..|load|-- push --|-- generate ...
    B  ....wait.......|load|-- train --------|save|-- push --|....wait...........

What the pair would take if handing over took no time follows from both runs' own work alone: neither can train before
A has generated, and A cannot push before both have trained. What it took beyond that is the price of the exchange:
saving, loading, noticing that something is there, and telling one call from another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

TIMING = "timing_s/"


@dataclass(frozen=True)
class LedgerStep:
    """Seconds of one run's step.

    Args:
        step_s: the whole step.
        wait_s, save_s, load_s: in the exchange; identifying prompts counts as loading or saving them, recording and
            comparing a step as saving.
        generate_s: in the own engine; in mode `rollout` the little that the trainer does around the exchange.
        push_s: weights to the own engine.
    """

    step_s: float
    wait_s: float
    save_s: float
    load_s: float
    generate_s: float
    push_s: float

    @classmethod
    def of(cls, metrics: dict[str, Any]) -> LedgerStep:
        """Read a step's metrics as the trainer logs them."""

        def total(*names: str) -> float:
            return sum(float(metrics.get(f"{TIMING}{name}", 0.0)) for name in names)

        identify_s = total("share_data/identify")
        load_rollout_s, save_rollout_s = total("share_data/load_rollout"), total("share_data/save_rollout")
        wait_rollout_s = total("share_data/wait_rollout")
        return cls(
            step_s=total("step"),
            wait_s=wait_rollout_s + total("share_data/wait_ckpt"),
            save_s=save_rollout_s
            + total("share_data/save_ckpt", "share_data/evidence")
            + (identify_s if save_rollout_s else 0.0),
            load_s=load_rollout_s + total("share_data/load_ckpt") + (identify_s if load_rollout_s else 0.0),
            # The trainer's "gen" spans everything around `generate_sequences`, the exchange of the rollout included.
            generate_s=total("gen") - wait_rollout_s - load_rollout_s - save_rollout_s - identify_s,
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


def ideal_step_s(ckpt: list[LedgerStep], rollout: list[LedgerStep]) -> tuple[list[float], list[float]]:
    """Seconds that each step of the two runs, given by their modes, would last if handing over took no time.

    Replays the own work of both runs, which start together.
    """
    lasted: tuple[list[float], list[float]] = ([], [])
    a_ready_s = b_ready_s = 0.0  # when each run can start its next step
    for a, b in zip(ckpt, rollout, strict=False):
        generated_s = a_ready_s + a.generate_s
        b_trained_s = max(generated_s, b_ready_s + b.generate_s) + b.train_s
        a_end_s = max(generated_s + a.train_s, b_trained_s) + a.push_s
        b_end_s = b_trained_s + b.push_s
        lasted[0].append(a_end_s - a_ready_s)
        lasted[1].append(b_end_s - b_ready_s)
        a_ready_s, b_ready_s = a_end_s, b_end_s
    return lasted


def exchange_s(ckpt: list[LedgerStep], rollout: list[LedgerStep]) -> tuple[list[float], list[float]]:
    """For each step but the first, what the two runs took beyond `ideal_step_s`; single steps may be negative.

    In the first step the run that starts earlier waits for the other one's start.
    """
    ideal = ideal_step_s(ckpt, rollout)
    measured = ([a.step_s for a in ckpt], [b.step_s for b in rollout])
    costs = [
        [took - owed for took, owed in zip(steps, each, strict=False)][1:]
        for steps, each in zip(measured, ideal, strict=True)
    ]
    return costs[0], costs[1]
