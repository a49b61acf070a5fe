# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Start a training run in a process of its own, cut off from every other run on the host, and read its metrics.

For the demo and for the tests. A run has a folder, which keeps what is worth keeping (`metrics.jsonl`, `run.log`,
`checkpoints/`), and a Ray session of its own under a short path, which goes when the run is closed. Only processes
that the run started are ever ended.
"""

from __future__ import annotations

import json
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

CONFIG_NAME = "ppo_cpu_trainer"

_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "HYDRA_FULL_ERROR": "1",
    "RAY_DEDUP_LOGS": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
"""For every run: one thread a process, nothing from the network, no log line swallowed."""

_STOP_GRACE_S = 20.0
_POLL_S = 0.2


@dataclass(frozen=True)
class Step:
    """The metrics of one step, as upstream's file logger wrote them."""

    number: int
    values: dict[str, float]

    @property
    def repeatable(self) -> dict[str, float]:
        """The values that a seeded run has again, to the last digit: all but those a clock or the memory decides."""
        return {name: value for name, value in self.values.items() if is_repeatable(name)}


def is_repeatable(name: str) -> bool:
    """Whether a metric is decided by the configuration alone, not by how fast or how full the machine is."""
    measured = ("timing_s/", "timing_per_token_ms/", "perf/time_per_step", "perf/throughput", "perf/mfu")
    return not name.startswith(measured) and "memory" not in name


def read_steps(path: str | Path) -> list[Step]:
    """Steps of a `metrics.jsonl`, in order; a last line that is still being written is left out."""
    path = Path(path)
    if not path.exists():
        return []
    whole, _, _ = path.read_text(encoding="utf-8").rpartition("\n")
    return [Step(row["step"], row["data"]) for row in map(json.loads, whole.splitlines())]


class RunFailed(RuntimeError):
    """A run ended with an error or did not end in time; the message ends with the last lines of its log."""


class LaunchedRun:
    """A training run in a process group of its own. Make it with `start`, end it with `close` (or use `running`).

    Attributes:
        folder: Where the run's files lie.
        process: The main program.
    """

    def __init__(self, folder: Path, ray_dir: Path, process: subprocess.Popen[bytes]) -> None:
        self.folder, self.process, self._ray_dir = folder, process, ray_dir
        self._family: set[psutil.Process] = set()

    @property
    def steps(self) -> list[Step]:
        """What has been logged so far."""
        return read_steps(metrics_path(self.folder))

    def log(self) -> str:
        return log_path(self.folder).read_text(encoding="utf-8", errors="replace")

    def poll(self) -> int | None:
        """Exit status, or None while it runs. Called now and then it notes which processes there are, so that `close`
        finds those of a main program that died without taking them down."""
        with suppress(psutil.NoSuchProcess):
            self._family.update(psutil.Process(self.process.pid).children(recursive=True))
        return self.process.poll()

    def wait(self, timeout_s: float) -> list[Step]:
        """Wait until the run has ended, and return its steps.

        Raises:
            RunFailed: It ended with an error, or had not ended after `timeout_s` seconds; it is closed then.
        """
        deadline = time.monotonic() + timeout_s
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.close()
                raise RunFailed(f"{self.folder}: still running after {timeout_s:.0f} s\n{self._tail()}")
            time.sleep(_POLL_S)
        if code != 0:
            self.close()
            raise RunFailed(f"{self.folder}: ended with exit code {code}\n{self._tail()}")
        return self.steps

    def terminate(self) -> None:
        """Ask the run to end, and do not wait for it: `close` does."""
        if self.poll() is None:
            self.process.terminate()

    def close(self) -> None:
        """End what is left of the run and remove its Ray session. Can be called at any time, and again."""
        self.poll()
        end_processes(self.process.pid, self._family | _mentioning(self._ray_dir))
        self.process.wait()
        # Ray's daemons start others until they are gone themselves, and those lose the parent they could be found by.
        for process in _mentioning(self._ray_dir):
            _signal(process, signal.SIGKILL)
        shutil.rmtree(self._ray_dir, ignore_errors=True)

    def _tail(self, lines: int = 40) -> str:
        return "\n".join(self.log().splitlines()[-lines:])


def metrics_path(folder: Path) -> Path:
    """Upstream's file log of the run in `folder`: one JSON object a step."""
    return folder / "metrics.jsonl"


def log_path(folder: Path) -> Path:
    """Everything the run in `folder` printed."""
    return folder / "run.log"


def checkpoint_dir(folder: Path) -> Path:
    return folder / "checkpoints"


def override(key: str, path: str | Path) -> str:
    """A Hydra override of `key` by a path with any characters in it: in quotes, and no interpolation."""
    literal = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(path))  # for OmegaConf; backslashes count only in front of these
    quoted = re.sub(r"(\\*)'", r"\1\1\\'", literal)  # for Hydra; likewise
    trailing = len(quoted) - len(quoted.rstrip("\\"))
    return f"{key}='{quoted}{chr(92) * trailing}'"


def command(folder: Path, ray_dir: Path, overrides: Sequence[str], config_name: str = CONFIG_NAME) -> list[str]:
    """The command line of a run; `overrides` are Hydra's and come last, so they win."""
    return [
        sys.executable,
        "-m",
        "verl.trainer.main_ppo",
        f"--config-name={config_name}",
        override("hydra.run.dir", folder / "hydra"),
        override("ray_kwargs.ray_init._temp_dir", ray_dir),
        override("trainer.default_local_dir", checkpoint_dir(folder)),
        "trainer.logger=[console,file]",
        *overrides,
    ]


def environment(folder: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment of a run: this process's, without a Ray cluster to join, and with what every run wants."""
    inherited = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**inherited, **_ENVIRONMENT, "VERL_FILE_LOGGER_PATH": str(metrics_path(folder)), **(extra or {})}


def start(
    folder: str | Path,
    overrides: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    config_name: str = CONFIG_NAME,
) -> LaunchedRun:
    """Start a run.

    Args:
        folder: Where its files go; made if missing. Paths in `overrides` should be absolute.
        overrides: Hydra overrides, such as `trainer.total_training_steps=3`.
        env: Environment variables besides those of `environment`.
        cwd: Working directory of the main program; `folder` if None.
        config_name: Configuration to start from.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    # Ray puts Unix sockets below this, and their paths are limited to 107 bytes.
    ray_dir = Path(tempfile.mkdtemp(prefix="vcc", dir="/tmp"))
    with log_path(folder).open("wb") as log:
        process = subprocess.Popen(
            command(folder, ray_dir, overrides, config_name),
            cwd=cwd or folder,
            env=environment(folder, env),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return LaunchedRun(folder, ray_dir, process)


@contextmanager
def running(folder: str | Path, overrides: Sequence[str], **kwargs: object) -> Iterator[LaunchedRun]:
    """`start`, and close the run on the way out, whatever happened."""
    run = start(folder, overrides, **kwargs)  # type: ignore[arg-type]
    try:
        yield run
    finally:
        run.close()


def end_processes(pid: int, known: Iterable[psutil.Process] = (), grace_s: float = _STOP_GRACE_S) -> None:
    """End the process `pid`, its descendants and the `known` ones: ask, wait `grace_s` seconds, then insist."""
    family = set(known)
    try:
        root = psutil.Process(pid)
        family |= {root, *root.children(recursive=True)}
        _signal(root, signal.SIGTERM)  # Ray's main program takes its daemons and workers down with it
    except psutil.NoSuchProcess:
        for orphan in family:
            _signal(orphan, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and any(map(_alive, family)):
        family |= _children(family)
        time.sleep(_POLL_S)
    for process in filter(_alive, family | _children(family)):
        logger.info("process %d outlived its run; killed", process.pid)
        _signal(process, signal.SIGKILL)


def _children(family: set[psutil.Process]) -> set[psutil.Process]:
    found: set[psutil.Process] = set()
    for process in family:
        with suppress(psutil.NoSuchProcess):
            found.update(process.children(recursive=True))
    return found


def _mentioning(ray_dir: Path) -> set[psutil.Process]:
    """Processes that have the run's Ray folder, whose name is no other's, on their command line."""
    processes = psutil.process_iter(["cmdline"])
    return {each for each in processes if any(str(ray_dir) in part for part in each.info["cmdline"] or ())}


def _alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)  # checks that the pid has not been given to another process
