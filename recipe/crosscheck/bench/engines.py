# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The noise floor of a rollout engine: how far its probabilities are from the training engine's when nothing is wrong.

One run of the demo's task for each engine and number format, training in float32; medians over its steps. vLLM is in
the environment of `scripts/test-vllm` alone. With --made-up nothing is started: the
metrics of runs are made up.
"""

from __future__ import annotations

import json
import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import product
from pathlib import Path

from rich.table import Table

from recipe.crosscheck import launch
from recipe.crosscheck.bench.harness import Benchmark, BenchResult, console
from recipe.crosscheck.data import task_overrides, write_data

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


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--engines", nargs="+", choices=ENGINES)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=DTYPES, help="in which the engine computes")
    parser.add_argument("--steps", type=int, default=4, help="of each run; the first one only warms up")
    parser.add_argument("--made-up", action="store_true", help="start no run")


def _result(args: Namespace) -> str:
    if args.quick:
        args.engines, args.dtypes, args.steps = args.engines or ("hf",), args.dtypes[:1], 2
    args.engines = args.engines or ENGINES
    if args.steps < 2:
        raise ValueError("--steps: at least 2, since the first step only warms up")
    if "vllm" in args.engines and not args.made_up and find_spec("vllm") is None:
        raise ValueError("vLLM is not installed here. Take the environment of scripts/test-vllm, or type --engines hf")
    return "engines"


def _run(args: Namespace, result: BenchResult) -> int:
    take = made_up if args.made_up else measure
    for engine, dtype in product(args.engines, args.dtypes):
        result.add({f"{engine}, {dtype}": floor(take(result.folder, engine, dtype, args.steps))})
    console().print(table(result.figures))
    return 0


def made_up(out: Path, engine: str, dtype: str, steps: int) -> list[launch.Step]:
    """As `measure`, of a run that never was."""
    path = launch.metrics_path(out / f"{engine}_{dtype}")
    path.parent.mkdir()
    rows = [
        {"step": number, "data": dict.fromkeys(QUANTITIES.values(), 1.0 / number)} for number in range(1, steps + 1)
    ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return launch.read_steps(path)


def measure(out: Path, engine: str, dtype: str, steps: int) -> list[launch.Step]:
    """The steps of one run.

    Raises:
        launch.RunFailed: it failed, or had not ended in time.
    """
    data = write_data(out / "data", train_rows=PROMPTS * steps, val_rows=8)
    overrides = [
        *task_overrides(data),
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


BENCHMARK = Benchmark(_options, _run, _result)
