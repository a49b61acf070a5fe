# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Write the demo's data set: two-digit sums in the layout that upstream's `RLHFDataset` reads.

python -m recipe.crosscheck.make_data [--out DIR] [--train ROWS] [--val ROWS] [--seed N]
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from recipe.crosscheck.arithmetic import Problem, draw

DATA_SOURCE = "crosscheck/addition"
"""Value of the `data_source` column; the validation metrics are named after it."""


class DataFiles(NamedTuple):
    """What `write` wrote."""

    train: Path
    val: Path


def _row(problem: Problem, index: int, split: str) -> dict[str, object]:
    return {
        "data_source": DATA_SOURCE,
        "prompt": [{"role": "user", "content": problem.question}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": problem.answer},
        "extra_info": {"index": index, "split": split},
    }


def write(folder: str | Path, train_rows: int = 512, val_rows: int = 64, seed: int = 1) -> DataFiles:
    """Write `train.parquet` and `val.parquet` into `folder`, made if missing; equal arguments give equal rows."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(seed)  # noqa: S311  exercises, not secrets
    files = DataFiles(folder / "train.parquet", folder / "val.parquet")
    for path, rows in ((files.train, train_rows), (files.val, val_rows)):
        pq.write_table(pa.Table.from_pylist([_row(draw(rng), i, path.stem) for i in range(rows)]), path)
    return files


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the demo's data set.")
    parser.add_argument("--out", type=Path, default=Path("outputs/crosscheck/data"), help="folder to write")
    parser.add_argument("--train", type=int, default=512, help="training rows (default: 512)")
    parser.add_argument("--val", type=int, default=64, help="validation rows (default: 64)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the problems (default: 1)")
    args = parser.parse_args()
    write(args.out, args.train, args.val, args.seed)


if __name__ == "__main__":
    main()
