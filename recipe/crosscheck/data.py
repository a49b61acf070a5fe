# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The demo's task, two-digit sums: write its data set, and name model, data and reward as Hydra overrides. No torch.

python -m recipe.crosscheck.data [--out DIR] [--train ROWS] [--val ROWS] [--seed N]
"""

from __future__ import annotations

import argparse
import random
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.crosscheck.launch import override

HERE = Path(__file__).resolve().parent
MODEL_DIR = HERE / "model"
"""The committed model; `recipe.crosscheck.model` makes it."""
REWARD_FILE = HERE / "reward.py"

MAX_TERM = 99
"""Largest number on either side of the plus sign."""
PROMPT_TOKENS = 8
"""`99+99=` has 6."""
RESPONSE_TOKENS = 8
"""`198` and the end mark have 4."""

DATA_SOURCE = "crosscheck/addition"
"""Value of the `data_source` column; the validation metrics are named after it."""


@dataclass(frozen=True)
class Problem:
    """One addition, `left + right`, with terms in [0, `MAX_TERM`]."""

    left: int
    right: int

    @property
    def question(self) -> str:
        """What the user message says, such as `12+34`; the chat template adds the `=`."""
        return f"{self.left}+{self.right}"

    @property
    def answer(self) -> str:
        return str(self.left + self.right)


class DataFiles(NamedTuple):
    """What `write_data` wrote."""

    train: Path
    val: Path


def draw(rng: random.Random) -> Problem:
    """Return one problem with both terms uniform."""
    return Problem(rng.randint(0, MAX_TERM), rng.randint(0, MAX_TERM))


def write_data(folder: str | Path, train_rows: int = 512, val_rows: int = 64, seed: int = 1) -> DataFiles:
    """Write `train.parquet` and `val.parquet`, in the layout that upstream's `RLHFDataset` reads.

    The folder is made if missing. Equal arguments give equal rows.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)  # noqa: S311  exercises, not secrets
    files = DataFiles(folder / "train.parquet", folder / "val.parquet")
    for path, rows in ((files.train, train_rows), (files.val, val_rows)):
        pq.write_table(pa.Table.from_pylist([_row(draw(rng), i, path.stem) for i in range(rows)]), path)
    return files


def _row(problem: Problem, index: int, split: str) -> dict[str, object]:
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": problem.question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"index": index, "split": split},
    }


def task_overrides(files: DataFiles, samples: int = 4, learning_rate: float = 1e-5) -> list[str]:
    """Return overrides for GRPO on the task, on top of `ppo_cpu_trainer`.

    Args:
        samples: Responses to a prompt.
        learning_rate: Of the actor. From 1e-4 on the tiny model forgets what it knows within a few steps.
    """
    return [
        override("actor_rollout_ref.model.path", MODEL_DIR),
        override("reward.custom_reward_function.path", REWARD_FILE),
        override("data.train_files", files.train.resolve()),
        override("data.val_files", files.val.resolve()),
        f"data.max_prompt_length={PROMPT_TOKENS}",
        f"data.max_response_length={RESPONSE_TOKENS}",
        "algorithm.adv_estimator=grpo",
        f"actor_rollout_ref.rollout.n={samples}",
        f"actor_rollout_ref.actor.optim.lr={learning_rate}",
        "trainer.val_before_train=False",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the demo's data set.")
    parser.add_argument("--out", type=Path, default=Path("outputs/crosscheck/data"), help="folder to write")
    parser.add_argument("--train", type=int, default=512, help="training rows (default: 512)")
    parser.add_argument("--val", type=int, default=64, help="validation rows (default: 64)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems (default: 1)")
    args = parser.parse_args()
    write_data(args.out, args.train, args.val, args.seed)


if __name__ == "__main__":
    main()
