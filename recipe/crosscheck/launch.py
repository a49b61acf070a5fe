# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Configure one training run of the demo's kind in a folder, start it, and read its metrics.

For the demo, the benchmarks and the tests. A folder keeps `metrics.jsonl`, `run.log`, `command.sh` and `checkpoints/`.
How processes are started and ended is `verl.crosscheck.pair.process`'s.
"""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.clock import SystemClock
from verl.crosscheck.overrides import assignment
from verl.crosscheck.pair import process
from verl.crosscheck.pair.commands import PROGRAM, parse
from verl.crosscheck.pair.plan import Side
from verl.crosscheck.pair.process import last_lines
from verl.crosscheck.settings import ShareMode

CONFIG_NAME = "ppo_cpu_trainer"

ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",
}
"""Of every run: one thread a process, nothing from the network, no log line swallowed, and no worker started in
advance: upstream's all have a runtime environment, so none of them would be used."""

_END_GRACE_S = 20.0
_POLL_S = 0.2
_TAIL_LINES = 40


@dataclass(frozen=True)
class Step:
    """The metrics of one step, as upstream's file logger wrote them."""

    number: int
    values: dict[str, float]

    @property
    def repeatable(self) -> dict[str, float]:
        """The values that a seeded run repeats to the last digit: all that do not depend on time or memory."""
        return {name: value for name, value in self.values.items() if is_repeatable(name)}


def is_repeatable(name: str) -> bool:
    """Return whether the configuration alone decides a metric, not how fast or how full the machine is."""
    measured = ("timing_s/", "timing_per_token_ms/", "perf/time_per_step", "perf/throughput", "perf/mfu")
    return not name.startswith(measured) and "memory" not in name


def read_steps(path: Path) -> list[Step]:
    """Return the steps of a `metrics.jsonl`, in order; a last line that is still being written is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [Step(row["step"], row["data"]) for row in map(json.loads, whole.splitlines())]


def metrics_path(folder: Path) -> Path:
    """Upstream's file log of the run in `folder`: one JSON object a step."""
    return folder / "metrics.jsonl"


def checkpoint_dir(folder: Path) -> Path:
    return folder / "checkpoints"


def override(key: str, path: str | Path) -> str:
    """Return the Hydra override of a known key by a path with any characters in it."""
    return assignment(key, str(path), known=True)


def side(
    folder: str | Path,
    overrides: Sequence[str],
    *,
    name: str = "",
    mode: ShareMode = ShareMode.CKPT,
    env: Mapping[str, str] | None = None,
    config_name: str = CONFIG_NAME,
) -> Side:
    """Return a run to start.

    Args:
        folder: Where its files go, and the folder it runs in; made if missing.
        overrides: Hydra overrides, such as `trainer.total_training_steps=3`; paths in them should be absolute.
        name: `a` or `b` for one of a pair.
        mode: Its `trainer.share_data`, for `play_pair`; not made an override.
        env: Environment variables besides `ENVIRONMENT`.
        config_name: Configuration to start from.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    command = parse(f"{shlex.quote(sys.executable)} -m {PROGRAM} --config-name={config_name}", "run")
    own = (override("trainer.default_local_dir", checkpoint_dir(folder)), "trainer.logger=[console,file]")
    label = f"Run {name.upper()}"
    return Side(name, label, mode, command, {**ENVIRONMENT, **(env or {})}, folder, (*own, *overrides), cwd=folder)


class RunFailed(RuntimeError):
    """A run ended with an error or did not end in time; the message ends with the last lines of its log."""


class LaunchedRun:
    """A training run that was started, apart from all others on the host. See `running`."""

    def __init__(self, run: process.TrainingRun) -> None:
        self._run = run
        self.folder = run.side.folder

    @property
    def pid(self) -> int:
        """Of its main program."""
        return self._run.pid

    @property
    def steps(self) -> list[Step]:
        """What has been logged so far."""
        return read_steps(metrics_path(self.folder))

    def log(self) -> str:
        """Return everything it has printed."""
        return self._run.side.log.read_text(encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        """Return its exit status, or None while it runs."""
        return self._run.poll()

    def wait(self, timeout_s: float) -> list[Step]:
        """Wait until the run has ended, and return its steps.

        Raises:
            RunFailed: It ended with an error, or had not ended after `timeout_s` seconds; it is closed then.
        """
        deadline_s = time.monotonic() + timeout_s
        while (code := self.poll()) is None and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
        if code != 0:
            self.close()
            how = f"still running after {timeout_s:.0f} s" if code is None else f"ended with exit code {code}"
            raise RunFailed("\n".join([f"{self.folder}: {how}", *last_lines(self._run.side.log, _TAIL_LINES)]))
        return self.steps

    def close(self) -> None:
        """End what is left of the run and remove its Ray session. Can be called at any time, and again."""
        self._run.close(SystemClock(), _END_GRACE_S)


@contextmanager
def running(
    folder: str | Path,
    overrides: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    config_name: str = CONFIG_NAME,
) -> Iterator[LaunchedRun]:
    """Start the run of a `side`, and close it on the way out, whatever happened."""
    run = LaunchedRun(process.start(side(folder, overrides, env=env, config_name=config_name)))
    try:
        yield run
    finally:
        run.close()
