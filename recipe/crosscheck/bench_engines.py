# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The noise floor of a rollout engine: how far its probabilities are from the training engine's when nothing is wrong.

    python -m recipe.crosscheck.bench_engines [--engines hf vllm] [--dtypes float32 bfloat16] [--steps 4] [--out DIR]

One run of the demo's task for each engine and number format, training in float32; medians over its steps. vLLM is in
the environment of `scripts/test-vllm` alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from rich.console import Console
from rich.table import Table

from recipe.crosscheck import demo_task, launch, make_data
from verl.crosscheck import installation

ENGINES = ("hf", "vllm")
DTYPES = ("float32", "bfloat16")
PROMPTS = 64
"""In a step; there are four responses to each."""
LIMIT_S = 600.0

QUANTITIES = {
    "mean difference of a token's probability": "training/rollout_probs_diff_mean",
    "largest": "training/rollout_probs_diff_max",
    "standard deviation": "training/rollout_probs_diff_std",
    "k3": "rollout_corr/k3_kl",
    "seconds to generate": "timing_s/gen",
    "seconds to send weights": "timing_s/update_weights",
}
"""What is shown, and the metric that it is."""


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="in which the engine computes")
    parser.add_argument("--steps", type=int, default=4, help="of each run; the first one only warms up")
    parser.add_argument("--out", type=Path, help="folder for the runs and engines.json; else one that goes")
    args = parser.parse_args(arguments)
    if args.steps < 2:
        parser.error("--steps: at least 2, since the first step only warms up")
    if "vllm" in args.engines and find_spec("vllm") is None:
        parser.error("vLLM is not installed here. Take the environment of scripts/test-vllm, or type --engines hf")
    installation.require_active()
    with tempfile.TemporaryDirectory(prefix="vcce") as scratch:
        out = (args.out or Path(scratch)).resolve()
        found: dict[str, dict[str, float]] = {}
        for engine, dtype in product(args.engines, args.dtypes):
            found[f"{engine}, {dtype}"] = floor(measure(out, engine, dtype, args.steps))
            (out / "engines.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    Console().print(table(found))


def measure(out: Path, engine: str, dtype: str, steps: int) -> list[launch.Step]:
    """The steps of one run.

    Raises:
        launch.RunFailed: it failed, or had not ended in time.
    """
    data = make_data.write(out / "data", train_rows=PROMPTS * steps, val_rows=8)
    overrides = [
        *demo_task.overrides(data),
        f"data.train_batch_size={PROMPTS}",
        f"actor_rollout_ref.rollout.name={engine}",
        f"actor_rollout_ref.rollout.dtype={dtype}",
        "actor_rollout_ref.rollout.max_num_seqs=256",
        f"trainer.total_training_steps={steps}",
    ]
    with launch.running(out / f"{engine}_{dtype}", overrides) as run:
        return run.wait(LIMIT_S)


def floor(steps: Sequence[launch.Step]) -> dict[str, float]:
    """Medians of the quantities over all steps but the first."""
    return {label: statistics.median(step.values[metric] for step in steps[1:]) for label, metric in QUANTITIES.items()}


def table(found: dict[str, dict[str, float]]) -> Table:
    shown = Table("", *found, title="Engine against training, healthy steps")
    for label in QUANTITIES:
        shown.add_row(label, *(f"{values[label]:.2g}" for values in found.values()))
    return shown


if __name__ == "__main__":
    main()
