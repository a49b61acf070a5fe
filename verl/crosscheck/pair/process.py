# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Start one training run as processes of this host, watch it and its log, and end all its processes.

A run has a process group and a Ray session of its own. Which processes are its own is known in three ways: they descend
from the one that was started, they carry its mark in their environment, or they have its Ray folder, whose name is no
other's, on their command line. Each finds some that the others miss: Ray's daemons lose their parent, and Ray's workers
write their title over command line and environment. Nothing else is ever ended, and only by pid.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from verl.crosscheck.clock import Clock
from verl.crosscheck.overrides import assignment
from verl.crosscheck.pair.commands import runs_program
from verl.crosscheck.pair.plan import Side, script

MARK = "VERL_CROSSCHECK_RUN"
"""Environment variable by which processes of a run are known."""

_LOOK_EVERY_S = 0.1
_RAY_LONGEST = 40
"""Characters of Ray's folder: with more, its sockets' paths have more than the 107 bytes that a socket may have."""


_LONGEST_BYTES = 256 * 1024
"""Of a log that may have gigabytes, this much of its end is read."""

_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RAY_PREFIX = re.compile(r"\A\([^()]*pid=\d+[^()]*\)\s*")
_ERROR = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)(?::\s.*)?\Z")
_SHELL_ERROR = re.compile(r"(?:\S*(?:ba|da|z)?sh: .*|.*: command not found)\Z")


class TrainingRun:
    """A run that was started; see `start`."""

    def __init__(self, side: Side, process: subprocess.Popen[bytes], mark: str, ray_dir: Path | None) -> None:
        self.side, self._process, self._mark, self._ray_dir = side, process, mark, ray_dir
        self._known: set[psutil.Process] = set()

    @property
    def pid(self) -> int:
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status, None while it runs; remember which processes it has now."""
        with suppress(psutil.Error):
            self._known.update(psutil.Process(self.pid).children(recursive=True))
        return self._process.poll()

    def log_bytes(self) -> int:
        """Return the size of its log."""
        return self.side.log.stat().st_size

    def without_overrides(self) -> str:
        """Return the command line of a training that it started without its overrides; empty if there is none."""
        expected = self.side.overrides[0]
        for process in self._descendants():
            words = _words(process)
            if runs_program(words) and expected not in words:
                return shlex.join(words)
        return ""

    def ask_to_end(self) -> None:
        """Send SIGTERM to the training program, which reports its end to the other run and ends Ray; do not wait."""
        if self.poll() is not None:
            return
        family = self._descendants()
        programs = {each.pid: words for each in family if runs_program(words := _words(each))}
        for process in family:
            # What it has forked looks like itself, and is its own to end; a shell has no message for the other run.
            forked = programs.get(_parent(process)) == programs.get(process.pid)
            if (process.pid in programs and not forked) or (not programs and process.pid == self.pid):
                _signal(process, signal.SIGTERM)

    def close(self, clock: Clock, grace_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        """End all its processes within about `grace_s` seconds, and remove its Ray session. May be called again.

        Args:
            hurry: returns whether to stop waiting.
        """
        self.ask_to_end()
        self._await_end(clock, grace_s / 2, hurry)
        for process in self._family():
            _signal(process, signal.SIGTERM)
        self._await_end(clock, grace_s / 2, hurry)
        # Ray's daemons start others until they are gone themselves, so one round may not be enough.
        for _ in range(3):
            for process in self._family():
                _signal(process, signal.SIGKILL)
            self._await_end(clock, 1.0)
        self._process.wait()
        if self._ray_dir is not None:
            shutil.rmtree(self._ray_dir, ignore_errors=True)

    def _await_end(self, clock: Clock, longest_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        deadline_s = clock.monotonic_s() + longest_s
        while clock.monotonic_s() < deadline_s and not hurry():
            self._process.poll()  # takes note of its end, so that no zombie stays
            if not any(map(_alive, self._known)) and not self._family():
                return
            clock.sleep(_LOOK_EVERY_S)

    def _descendants(self) -> list[psutil.Process]:
        with suppress(psutil.Error):
            root = psutil.Process(self.pid)
            return [root, *root.children(recursive=True)]
        return []

    def _family(self) -> set[psutil.Process]:
        """Yield all its live processes."""
        self._known.update(self._descendants(), self._marked())
        for process in tuple(self._known):
            with suppress(psutil.Error):
                self._known.update(process.children(recursive=True))
        self._known = {process for process in self._known if _alive(process)}
        return self._known

    def _marked(self) -> Iterator[psutil.Process]:
        folder = str(self._ray_dir) if self._ray_dir else None
        for process in psutil.process_iter():
            if folder and any(folder in word for word in _words(process)):
                yield process
            else:
                with suppress(psutil.Error, OSError):  # those of other users tell nothing
                    if process.environ().get(MARK) == self._mark:
                        yield process


def start(side: Side, inherited: Mapping[str, str] | None = None) -> TrainingRun:
    """Start a run of this host.

    Args:
        inherited: environment to start from; this process's if None.

    Raises:
        OSError: it cannot be started, or its folder not be made.
    """
    mark = secrets.token_hex(8)
    env = environment(side, os.environ if inherited is None else inherited, mark)
    side.folder.mkdir(parents=True, exist_ok=True)
    overrides = [*side.overrides, assignment("hydra.run.dir", str(side.folder / "hydra"), known=True)]
    ray_dir = None
    if "RAY_ADDRESS" not in env:
        ray_dir = _ray_dir(env)
        overrides.append(assignment("ray_kwargs.ray_init._temp_dir", str(ray_dir), known=False))
    _write_down(side, overrides)
    with side.log.open("wb") as log:
        process = subprocess.Popen(
            side.command.argv(overrides),
            cwd=side.cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return TrainingRun(side, process, mark, ray_dir)


def _write_down(side: Side, overrides: Sequence[str]) -> None:
    """Save what was started, readable for its owner alone: commands and variables may hold secrets."""
    path = side.folder / "command.sh"
    path.touch(mode=0o600)
    path.write_text(f"{script(side, overrides)}\n", encoding="utf-8")


def environment(side: Side, inherited: Mapping[str, str], mark: str) -> dict[str, str]:
    """Return the environment of a run: the inherited one without the address of a Ray cluster, paths of log files that
    keep two runs with equal names apart, and the variables of this side."""
    own = {name: value for name, value in inherited.items() if name != "RAY_ADDRESS"}
    return {
        **own,
        "PYTHONUNBUFFERED": "1",
        "VERL_FILE_LOGGER_PATH": str(side.folder / "metrics.jsonl"),
        "TENSORBOARD_DIR": str(side.folder / "tensorboard"),
        **side.env,
        MARK: mark,
    }


def _ray_dir(env: Mapping[str, str]) -> Path:
    """Make and return a folder for Ray's session: below RAY_TMPDIR if paths of sockets fit there, else below /tmp."""
    wanted = env.get("RAY_TMPDIR", "")
    parent = wanted if wanted and len(wanted) < _RAY_LONGEST - len("/vcc12345678") else "/tmp"  # noqa: S108
    return Path(tempfile.mkdtemp(prefix="vcc", dir=parent))


def end_all(
    runs: Sequence[TrainingRun], clock: Clock, grace_s: float, hurry: Callable[[], bool] = lambda: False
) -> None:
    """Ask all runs to end at the same time, then end what is left of each."""
    for run in runs:
        run.ask_to_end()
    for run in runs:
        run.close(clock, grace_s, hurry)


def _words(process: psutil.Process) -> list[str]:
    with suppress(psutil.Error, OSError):
        return [str(word) for word in process.cmdline()]
    return []


def _parent(process: psutil.Process) -> int:
    with suppress(psutil.Error):
        return int(process.ppid())
    return 0


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running()) and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def _signal(process: psutil.Process, number: signal.Signals) -> None:
    with suppress(psutil.Error):
        process.send_signal(number)  # makes sure that the pid has not been given to another process


def last_lines(path: Path, number: int, longest: int = 300) -> list[str]:
    """Return the last `number` lines that are not empty, oldest first, without colours; none if there is no file.

    Args:
        longest: characters of a line, which are cut off beyond; a line of metrics has thousands.
    """
    lines = [line.expandtabs(4).rstrip() for line in _read_end(path) if line.strip()][-number:]
    return [line if len(line) <= longest else f"{line[: longest - 4]} ..." for line in lines]


def last_words(path: Path) -> str:
    """Return the last line, without Ray's prefix."""
    return "".join(_RAY_PREFIX.sub("", line.strip()) for line in last_lines(path, 1))


def error_line(path: Path) -> str:
    """Return the last line that names an error, such as `ValueError: ...`, without Ray's prefix; empty without one."""
    for line in reversed(_read_end(path)):
        text = _RAY_PREFIX.sub("", line.strip())
        if _ERROR.fullmatch(text) or _SHELL_ERROR.fullmatch(text):
            return text
    return ""


def _read_end(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _LONGEST_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar draws itself anew on the same line; only its last state counts.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in _COLOURS.sub("", text).split("\n")]
    return lines[1:] if size > _LONGEST_BYTES else lines
