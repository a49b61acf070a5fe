# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a report costs: time and memory of `verl-crosscheck report` on many steps of many rows.

Writes made-up evidence of two runs (about 0.6 GB by default), measures the command in a process of its own, and deletes
it. Exit status 1 if it took longer than --most-s or more than --most-mb.
"""

from __future__ import annotations

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from recipe.crosscheck.bench.harness import (
    BenchFailed,
    Benchmark,
    BenchResult,
    console,
    figures_table,
    scratch_folder,
    seconds,
)
from recipe.crosscheck.bench.synthetic import SyntheticPlan, record_steps, start_runs
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.report.as_json import EXIT_STATUS


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=128, help="of a response, at most")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--recompute", action="store_true", help="from the evidence, as if runs had not compared")
    parser.add_argument("--most-s", type=float, default=30.0)
    parser.add_argument("--most-mb", type=float, default=2048.0)


def _run(args: Namespace, result: BenchResult) -> int:
    steps, rows = (4, 16) if args.quick else (args.steps, args.rows)
    plan = SyntheticPlan(rows=rows, tokens=args.tokens, layers=args.layers, faulty_from=steps // 2)
    with scratch_folder(args) as folder:
        root = folder / "share"
        made_s = seconds(lambda: make(root, plan, steps))
        size_mb = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 1e6
        console().print(f"made in {made_s:.0f} s, {size_mb:.0f} MB")
        found = measure(root, folder / "report.html", ["--recompute"] if args.recompute else [])
    result.add({**found, "steps": steps, "rows": rows, "tokens": args.tokens, "recompute": args.recompute})
    console().print(figures_table(result.figures))
    return int(found["wall_s"] > args.most_s or found["peak_mb"] > args.most_mb)


def make(root: Path, plan: SyntheticPlan, steps: int) -> None:
    """Leave what two runs would have left of so many steps, with the rollouts where the fault begins."""
    runs = start_runs(root)
    record_steps(runs, plan, range(1, steps + 1))
    record_steps(runs, plan, [steps // 2, steps // 2 + 1], rollouts=True)
    for run in runs.values():
        run.end(None)


def measure(root: Path, page: Path, options: list[str]) -> dict[str, float]:
    """Run the command on a directory: seconds, megabytes at the peak, size of the page.

    Raises:
        BenchFailed: it did not find the fault.
    """
    command = [sys.executable, "-c", "from _verl_overlay.command import main; main()"]
    before = os.times()
    process = subprocess.Popen(
        [*command, "report", str(root), "-o", str(page), *options],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    _, status, used = os.wait4(process.pid, 0)  # what this child alone has used
    process.returncode = os.waitstatus_to_exitcode(status)
    expected = EXIT_STATUS[Phase.ROLLOUT]
    if process.returncode != expected:
        raise BenchFailed(f"the report ended with status {process.returncode}; expected {expected}, rollout at fault")
    return {
        "wall_s": round(os.times().elapsed - before.elapsed, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024, 1),
        "page_mb": round(page.stat().st_size / 1e6, 3),
    }


BENCHMARK = Benchmark(_options, _run, lambda args: "report")
