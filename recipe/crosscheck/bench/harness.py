# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What all benchmarks share: their results on disk, a folder for each run, timing, processes, the table."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

OUTPUTS = Path(__file__).resolve().parents[3] / "outputs" / "bench"
WIDTH = 140
"""Columns of tables where there is no terminal to ask."""
UNFINISHED = "unfinished"
"""Key of a result that has more parts to come; a finished one does not have it."""


@dataclass(frozen=True)
class Benchmark:
    """One benchmark; each module of this package that is one has it as `BENCHMARK`.

    Args:
        options: adds its options to those that all have.
        run: measures, adds each part's result as soon as it has it, and returns the exit status.
        result: name of the result by the options. Raises ValueError if these do not fit together.
    """

    options: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, BenchResult], int]
    result: Callable[[Namespace], str]


class BenchFailed(RuntimeError):
    """A benchmark cannot go on; the message says why."""


class BenchResult:
    """Figures of one run of a benchmark, as JSON.

    Attributes:
        out: The file. One of an earlier run is removed at once, so that its figures are never taken for new ones.
        folder: Of this run alone, beside `out`; new. It keeps a copy of the file, for comparing runs.
    """

    def __init__(self, out: Path) -> None:
        self.out = out.resolve()
        self.folder = new_folder(self.out.with_suffix(""))
        self.figures: dict[str, Any] = {}
        self.out.unlink(missing_ok=True)

    def add(self, figures: Mapping[str, Any]) -> None:
        """Keep a part's figures, in place of earlier ones of the same names."""
        self.figures |= figures
        self._write({**self.figures, UNFINISHED: True})

    def finish(self) -> None:
        """Say that all parts are there."""
        self._write(self.figures)

    def _write(self, figures: Mapping[str, Any]) -> None:
        for path in (self.folder / self.out.name, self.out):
            partial = path.with_name(f".{path.name}.{os.getpid()}")
            partial.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
            partial.replace(path)


def new_folder(parent: Path) -> Path:
    """Make a folder named after the time; never one that is there already."""
    parent.mkdir(parents=True, exist_ok=True)
    name = datetime.now().strftime("%Y-%m-%d-%H%M%S")
    for number in range(1, 1000):
        folder = parent / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        return folder
    raise FileExistsError(f"{parent} has a thousand folders of this second")


@contextmanager
def scratch_folder(args: Namespace) -> Iterator[Path]:
    """A folder on the disk under test, which goes afterwards."""
    with tempfile.TemporaryDirectory(prefix="bench", dir=args.scratch) as folder:
        yield Path(folder)


def console() -> Console:
    """For tables and progress."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(width=WIDTH, highlight=False)


def figures_table(figures: Mapping[str, Any]) -> Table:
    """A line for each number."""
    shown = Table(show_header=False, box=None)
    shown.add_column()
    shown.add_column(justify="right")
    for name, value in figures.items():
        shown.add_row(name, f"{value:.4g}" if isinstance(value, float) else str(value))
    return shown


def seconds(call: Callable[[], object]) -> float:
    """Seconds that one call takes, without collecting its garbage."""
    gc.collect()
    start_s = time.perf_counter()
    result = call()
    taken_s = time.perf_counter() - start_s
    del result
    return taken_s


def rotations(names: Sequence[str], rounds: int) -> Iterator[tuple[int, str]]:
    """Round and name: what is compared takes turns, each round beginning with another one."""
    for number in range(rounds):
        at = number % len(names)
        for name in (*names[at:], *names[:at]):
            yield number, name


def medians(values: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """The median of each."""
    return {name: statistics.median(each) for name, each in values.items()}


def fsync_all(folder: Path) -> None:
    """Return once the files of a folder, and the folder, are safe on the disk."""
    for path in (*sorted(folder.iterdir()), folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def processes() -> ForkServerContext:
    """How a benchmark starts processes of its own: clean ones, for which torch is read once."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["verl.protocol", f"{__package__}.exchange", f"{__package__}.portable"])
    return context
