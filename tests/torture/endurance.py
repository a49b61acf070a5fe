# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Thousands of steps in one go: memory and files must not grow, and what a step costs may only as it has to.

The rollouts of a session are all kept, so a listing of the directory grows with them, in time and, while it is looked
at, in memory. What that costs is measured; and whether anything else grows, with a pair whose old rollouts are cleared
away.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from torture.fake_run import Disturbance
from torture.pair import MODES, ToyPair, new_pair, wait_for
from torture.toy import Course

SAMPLES = 50
TIDY_AFTER = 20
GROWTH_KB = 50
"""By so much in 1000 steps memory may grow that nothing explains: what the allocator does not give back."""
GROWTH_BY_NAME_KB = 1.0
"""And by so much for each name that a listing has."""
WARM_SHARE = 0.1
"""This share of the steps is not looked at: caches fill, and the allocator settles."""


class Diary(Disturbance):
    """Writes down, now and then, what a run takes.

    Args:
        every: steps between two entries.
        tidy: whether to remove rollouts that both runs are long done with.
    """

    def __init__(self, out: Path, root: Path, every: int, *, tidy: bool = False) -> None:
        self._out, self._root, self._every, self._tidy = out, root, every, tidy

    def at(self, step: int) -> None:
        if self._tidy and step > TIDY_AFTER:
            (self._root / f"rollout_{step - TIDY_AFTER}").unlink(missing_ok=True)
        if step % self._every:
            return
        start_s = time.perf_counter()
        names = os.listdir(self._root)  # noqa: PTH208  as the exchange does
        listing_s = time.perf_counter() - start_s
        entry = {
            "step": step,
            "at_s": time.monotonic(),
            "cpu_s": time.process_time(),
            "memory_kb": _memory_kb(),
            "descriptors": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
            "listing_ms": listing_s * 1000,
            "rollouts": sum(name.startswith("rollout_") for name in names),
            "checkpoints": sum(name.startswith("ckpt_") for name in names),
            "run_files": sum(len(files) for _, _, files in os.walk(self._root / "sessions")),
        }
        with self._out.open("a") as file:
            file.write(json.dumps(entry) + "\n")


def endure(steps: int, scratch: Path, patience_s: float, *, tidy: bool = False) -> dict[str, Any]:
    """A pair does so many steps; figures of both runs, and what was wrong.

    Args:
        tidy: whether rollouts that both runs are done with are cleared away.
    """
    course = Course(steps, rows=1, save_freq=0)
    every = max(1, steps // SAMPLES)
    with new_pair(course, scratch) as pair:
        diaries = {mode: pair.folder / f"{mode}.jsonl" for mode in MODES}
        start_s = time.monotonic()
        children = [pair.start(mode, Diary(diaries[mode], pair.root, every, tidy=tidy)) for mode in MODES]
        problems = [] if wait_for(children, patience_s) else [f"took longer than {patience_s:.0f} s"]
        took_s = time.monotonic() - start_s
        problems += pair.problems()
        entries = {mode: [json.loads(line) for line in diaries[mode].read_text().splitlines()] for mode in MODES}
        if problems:
            return {"steps": steps, "problems": [*problems, pair.tail()]}
        problems += [f"{mode}: {problem}" for mode in MODES for problem in _growth(entries[mode])]
        return {
            "steps": steps,
            "took_s": round(took_s, 1),
            "runs": {mode: _figures(entries[mode]) for mode in MODES},
            "files": _files(pair),
            "problems": problems,
        }


def _figures(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """First, middle and last of what grows or does not, and by how much a step of a listing's cost grows."""
    warm = _warm(entries)
    step_ms, cpu_ms = _per_step_ms(warm, "at_s"), _per_step_ms(warm, "cpu_s")
    return {
        "memory_kb": _ends([entry["memory_kb"] for entry in warm]),
        "descriptors": _ends([entry["descriptors"] for entry in warm]),
        "checkpoints": _ends([entry["checkpoints"] for entry in warm]),
        "run_files": _ends([entry["run_files"] for entry in warm]),
        "rollouts": _ends([entry["rollouts"] for entry in warm]),
        "step_ms": _ends(step_ms),
        "cpu_ms_per_step": _ends(cpu_ms),
        "listing_ms": _ends([entry["listing_ms"] for entry in warm]),
        "listing_us_per_name": _slope([e["rollouts"] for e in warm], [e["listing_ms"] * 1000 for e in warm]),
    }


def _per_step_ms(entries: list[dict[str, Any]], name: str) -> list[float]:
    return [
        (after[name] - before[name]) / (after["step"] - before["step"]) * 1000 for before, after in pairwise(entries)
    ]


def _growth(entries: list[dict[str, Any]]) -> list[str]:
    """What grew and may not."""
    warm = _warm(entries)
    found = []
    for name in ("descriptors", "run_files"):
        if len({entry[name] for entry in warm}) > 2:  # a report being written is one file more
            found.append(f"{name} changed: {sorted({entry[name] for entry in warm})}")
    if max(entry["checkpoints"] for entry in warm) > 3:
        found.append(f"{max(entry['checkpoints'] for entry in warm)} checkpoints at once")
    ups = [after["memory_kb"] - before["memory_kb"] for before, after in pairwise(warm)]
    grown_kb = sum(ups) - max(ups)  # once in a run the interpreter takes some megabytes for itself, whatever is done
    named = warm[-1]["rollouts"] - warm[0]["rollouts"]
    allowed_kb = GROWTH_KB * (1 + (warm[-1]["step"] - warm[0]["step"]) / 1000) + GROWTH_BY_NAME_KB * named
    if grown_kb > allowed_kb:
        found.append(f"memory grew by {grown_kb} kB, {allowed_kb:.0f} allowed")
    return found


def _files(pair: ToyPair) -> dict[str, int]:
    names = [path.name for path in pair.root.iterdir()]
    return {
        "rollouts": sum(name.startswith("rollout_") for name in names),
        "checkpoints": sum(name.startswith("ckpt_") for name in names),
        "others": sum(not name.startswith(("rollout_", "ckpt_")) for name in names),
        "of_runs": sum(path.is_file() for path in (pair.root / "sessions").rglob("*")),
    }


def _warm(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return entries[int(len(entries) * WARM_SHARE) :]


def _ends(values: Sequence[float]) -> list[float]:
    """Median of the first, the middle and the last tenth."""
    tenth = max(1, len(values) // 10)
    middle = (len(values) - tenth) // 2
    parts = (values[:tenth], values[middle : middle + tenth], values[-tenth:])
    return [round(statistics.median(part), 3) for part in parts]


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """By how much y grows with each x, by least squares."""
    return round(statistics.linear_regression(x, y).slope, 5) if len(set(x)) > 1 else 0.0


def _memory_kb() -> int:
    """Memory in use that is no file's. What a fork shares with its parent counts from the start, written to or not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
