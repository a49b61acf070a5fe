# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Rewards once more, by the reward function of the run that takes rollouts: those that it trains on come with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Rescore = Callable[[Sequence[int]], npt.NDArray[np.float64]]
"""Scores rows of a batch, given by number, with the run's own reward function."""

ROWS = 64
"""Rows of a step that are scored again, those of lowest identity. A reward function that is wrong in one row of twenty
is seen in a step with a probability of 96 %, and a slow one is called for few of them."""


class NotRepeatableError(Exception):
    """A reward function gives other scores for the same responses when it is called again."""


def rescore_of(manager: Any, batch: Any) -> Rescore | None:
    """Return a function that scores rows of `batch`; None where rewards are no local function.

    Args:
        manager: upstream's reward loop manager of the trainer, or None.
        batch: what the actor was updated on, with the columns that rewards are made of.
    """
    if manager is None or getattr(manager, "reward_model_manager", None) is not None:
        return None
    workers = manager.reward_loop_workers

    def rescore(rows: Sequence[int]) -> npt.NDArray[np.float64]:
        import ray

        parts = [(worker, list(rows[at :: len(workers)])) for at, worker in enumerate(workers)]
        asked = [(part, worker.compute_score_batch.remote(batch.select_idxs(part))) for worker, part in parts if part]
        scores = {
            row: each["reward_score"] for part, answer in asked for row, each in zip(part, ray.get(answer), strict=True)
        }
        return np.asarray([scores[row] for row in rows], np.float64)

    return rescore


def own_rewards(rescore: Rescore, rows: Sequence[int], rewards: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the run's own rewards of some rows.

    Args:
        rescore: of the batch.
        rows: numbers of the rows in the batch.
        rewards: that the rows came with, for each of `rows`.

    Raises:
        NotRepeatableError: they differ, and differ from each other when asked for twice.
    """
    found = rescore(rows)
    if not np.array_equal(found, rewards) and not np.array_equal(found, again := rescore(rows)):
        count = int(np.count_nonzero(found != again))
        raise NotRepeatableError(f"in {count} of {len(rows)} rows")
    return found
