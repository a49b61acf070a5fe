# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's task as Hydra overrides: which model, data and reward, on top of `ppo_cpu_trainer`."""

from __future__ import annotations

from pathlib import Path

from recipe.crosscheck.launch import override
from recipe.crosscheck.make_data import DataFiles

HERE = Path(__file__).resolve().parent
MODEL_DIR = HERE / "model"
REWARD_FILE = HERE / "reward.py"

PROMPT_TOKENS = 8
"""`99+99=` has 6."""
RESPONSE_TOKENS = 8
"""`198` and the end mark have 4."""


def overrides(data: DataFiles, samples: int = 4, learning_rate: float = 1e-5) -> list[str]:
    """Overrides for GRPO on two-digit sums.

    Args:
        data: What `make_data.write` wrote.
        samples: Responses to a prompt.
        learning_rate: Of the actor. From 1e-4 on the tiny model forgets what it knows within a few steps.
    """
    return [
        override("actor_rollout_ref.model.path", MODEL_DIR),
        override("reward.custom_reward_function.path", REWARD_FILE),
        override("data.train_files", data.train.resolve()),
        override("data.val_files", data.val.resolve()),
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={RESPONSE_TOKENS}",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.rollout.n={samples}",
        f"actor_rollout_ref.actor.optim.lr={learning_rate}",
        "trainer.val_before_train=False",
    ]
