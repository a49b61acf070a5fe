# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a report costs: time and memory of `verl-crosscheck report` on many steps of many rows.

    python -m recipe.crosscheck.bench_report                     # 200 steps of 2048 rows
    python -m recipe.crosscheck.bench_report --recompute         # from the evidence, as if runs had not compared

Writes made-up evidence of two runs (about 0.6 GB by default; --folder says where), measures the command in a process of
its own, and deletes it. Exit status 1 if it took longer than --most-s or more than --most-mb.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from recipe.crosscheck.synthetic_evidence import SyntheticPlan
from recipe.crosscheck.synthetic_session import record_steps, start_runs

ROLLOUT_AT_FAULT = 10


def main() -> int:
    """Make, measure, tell."""
    given = _arguments()
    folder = Path(tempfile.mkdtemp(prefix="bench-report-", dir=given.folder))
    try:
        plan = SyntheticPlan(rows=given.rows, tokens=given.tokens, layers=given.layers, faulty_from=given.steps // 2)
        root = folder / "share"
        started_s = time.perf_counter()
        runs = start_runs(root)
        record_steps(runs, plan, range(1, given.steps + 1))
        record_steps(runs, plan, [given.steps // 2, given.steps // 2 + 1], rollouts=True)
        for run in runs.values():
            run.end(None)
        print(f"made in {time.perf_counter() - started_s:.0f} s, {_size_mb(root):.0f} MB", file=sys.stderr)
        found = measure(root, folder / "report.html", ["--recompute"] if given.recompute else [])
    finally:
        shutil.rmtree(folder)
    found |= {"steps": given.steps, "rows": given.rows, "tokens": given.tokens, "recompute": given.recompute}
    print(json.dumps(found, indent=1))
    return int(found["wall_s"] > given.most_s or found["peak_mb"] > given.most_mb)


def measure(root: Path, page: Path, options: list[str]) -> dict[str, float]:
    """Run the command on a directory: seconds, megabytes at the peak, size of the page.

    Raises:
        RuntimeError: it did not find the fault.
    """
    command = [sys.executable, "-c", "from _verl_overlay.command import main; main()"]
    started_s = time.perf_counter()
    run = subprocess.run(
        [*command, "report", str(root), "-o", str(page), *options],
        stdout=subprocess.DEVNULL,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "2"},
    )
    wall_s = time.perf_counter() - started_s
    if run.returncode != ROLLOUT_AT_FAULT:
        raise RuntimeError(f"the report ended with status {run.returncode}, expected {ROLLOUT_AT_FAULT}")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "wall_s": round(wall_s, 2),
        "cpu_s": round(used.ru_utime + used.ru_stime, 2),
        "peak_mb": round(used.ru_maxrss / 1024, 1),
        "page_mb": round(page.stat().st_size / 1e6, 3),
    }


def _size_mb(root: Path) -> float:
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) / 1e6


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=128, help="of a response, at most")
    parser.add_argument("--layers", type=int, default=28)
    parser.add_argument("--recompute", action="store_true")
    parser.add_argument("--folder", help="where to make the files; default: the temporary folder")
    parser.add_argument("--most-s", type=float, default=30.0)
    parser.add_argument("--most-mb", type=float, default=2048.0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
