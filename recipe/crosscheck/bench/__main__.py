# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Runs one benchmark: `scripts/bench NAME [--quick]`; `scripts/bench --list` shows the names."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from recipe.crosscheck.bench.harness import OUTPUTS, BenchFailed, Benchmark, BenchResult, console
from recipe.crosscheck.launch import RunFailed
from verl.crosscheck import installation

BENCHMARKS = {
    "engines": "how far a rollout engine's probabilities are from the training engine's when nothing is wrong",
    "evidence": "what it costs to record a step and to compare it with the other run's",
    "exchange": "what handing over rollouts and checkpoints costs",
    "faults": "whether the verdict names the right phase: every planted fault, and healthy pairs beside them",
    "portable": "what portable weights cost",
    "report": "what a report of many steps costs",
    "sensitivity": "how small each kind of fault may be and still be found",
}
"""What each measures, by name."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a benchmark; the exit status is its own, 1 if it failed, 130 if it was interrupted."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in BENCHMARKS:
        return run(words[0], words[1:])
    listed = "\n".join(f"  {name:12} {sentence}" for name, sentence in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        usage="scripts/bench NAME [--quick] [options]\n       scripts/bench --list",
        description="Runs one benchmark. Its own options: scripts/bench NAME --help",
        epilog=f"names:\n{listed}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=BENCHMARKS, nargs="?", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="show the names")
    if not parser.parse_args(words).list:
        parser.error("expected the name of a benchmark")
    print(listed)
    return 0


def run(name: str, words: Sequence[str]) -> int:
    """Run the benchmark of a name with its options."""
    benchmark, parser = load(name)
    args = parser.parse_args(words)
    installation.require_active()
    shown = console()
    try:
        default = OUTPUTS / f"{benchmark.result(args)}.json"
    except ValueError as e:
        parser.error(str(e))
    result = BenchResult(args.out or default)
    try:
        with terminated_as_interrupted():
            status = benchmark.run(args, result)
    except KeyboardInterrupt:
        shown.print(f"Interrupted. What was done by then: {result.out}", style="yellow")
        return 130
    except (BenchFailed, RunFailed) as e:
        shown.print(f"{name} failed: {e}\nWhat was done by then: {result.out}", markup=False, style="red")
        return 1
    result.finish()
    shown.print(f"Figures: {result.out}")
    return status


def load(name: str) -> tuple[Benchmark, argparse.ArgumentParser]:
    """A benchmark, and the parser of its options."""
    module = import_module(f"{__package__}.{name}")
    benchmark: Benchmark = module.BENCHMARK
    parser = argparse.ArgumentParser(
        prog=f"scripts/bench {name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="a short form, whose figures say little")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help=f"default: outputs/bench/{name}.json")
    parser.add_argument("--scratch", type=Path, metavar="DIR", help="a directory on the disk under test")
    benchmark.options(parser)
    return benchmark, parser


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Let SIGTERM raise KeyboardInterrupt, so that the processes of the moment are ended, too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


if __name__ == "__main__":
    sys.exit(main())
