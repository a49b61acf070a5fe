# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two fake runs in one directory: started, stopped, started again, and judged by what they must have computed."""

from __future__ import annotations

import functools
import gc
import json
import pickle
import shutil
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf

from torture import fake_run, toy
from torture.fake_run import OUTCOME, TRACKER, Disturbance, RunPlan
from torture.points import Watch
from torture.toy import Course
from torture.zygote import Child, fork
from verl.crosscheck.agreement.compare import compare
from verl.crosscheck.clock import Clock
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.exchange import filesystem, layout
from verl.crosscheck.exchange.artefacts import read_artefact_about
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.record.record import read_record
from verl.crosscheck.exchange.session.claim import sessions
from verl.crosscheck.exchange.session.liveness import Heartbeat
from verl.crosscheck.run import participation

MODES = ("ckpt", "rollout")
PATIENCE_S = 25.0
BEAT_S = 0.05

Setup = Callable[[], object]


@dataclass(frozen=True)
class ToyOutcome:
    """How a run ended: with a state, or with an error."""

    state: dict[str, Any] | None
    error: str = ""
    message: str = ""
    ours: bool = False
    """Whether the error is of the cross-check's tree, and survives pickling."""

    def __str__(self) -> str:
        return "finished" if self.state else f"{self.error}: {self.message}"


@dataclass
class ToyPair:
    """A directory for an exchange, and one for the own checkpoints of each run."""

    folder: Path
    course: Course
    settings: dict[str, Any]

    @property
    def root(self) -> Path:
        return self.folder / "exchange"

    def own(self, mode: str) -> Path:
        return self.folder / mode

    def plan(self, mode: str) -> RunPlan:
        return RunPlan(mode, self.root, self.own(mode), self.course, self.settings)

    # ---------------------------------------------------------------- runs

    def start(
        self,
        mode: str,
        disturbance: Disturbance | None = None,
        *,
        clock: Callable[[], Clock] | None = None,
        setup: Setup = lambda: None,
        at_end: Setup = lambda: None,
        outcome: str = OUTCOME,
    ) -> Child:
        """A run of its own process, which leaves word in its own folder how it ended.

        Args:
            setup, at_end: done first, and last, in the child.
            outcome: name of that word.
        """
        plan = self.plan(mode)
        plan.own.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            (plan.own / outcome).unlink()

        def work() -> None:
            vars(participation)["Heartbeat"] = _quick_heartbeat
            setup()
            if isinstance(disturbance, Watch):
                with filesystem.replaced(disturbance.disk(plan)):
                    end = ended(plan, disturbance, clock)
            else:
                end = ended(plan, disturbance, clock)
            at_end()
            (plan.own / outcome).write_text(json.dumps(asdict(end)))

        return fork(work, self.folder / f"{mode}.log")

    def outcome(self, mode: str) -> ToyOutcome | None:
        """How a run ended; None if it was killed."""
        with suppress(FileNotFoundError):
            return ToyOutcome(**json.loads((self.own(mode) / OUTCOME).read_text()))
        return None

    def resume(self, modes: tuple[str, ...]) -> dict[str, Child]:
        """Start runs again. One that goes on with a session is started before one that begins anew, as the error that
        else comes says."""
        started = {}
        for mode in sorted(modes, key=lambda mode: not self.is_marked(mode)):
            before = self.claims()
            started[mode] = self.start(mode)
            if len(modes) > 1 and self.is_marked(mode):
                wait_until(partial(self._has_begun, started[mode], before))
        return started

    def _has_begun(self, child: Child, claims_before: int) -> bool:
        return self.claims() > claims_before or child.poll() is not None

    def is_marked(self, mode: str) -> bool:
        """Whether a run has a checkpoint that says where in a session it was saved."""
        try:
            step = (self.own(mode) / TRACKER).read_text()
        except FileNotFoundError:
            return False
        return (self.own(mode) / f"global_step_{step}" / layout.CHECKPOINT_MARK).exists()

    def claims(self, mode: str = "*") -> int:
        """How many runs, of a mode or all, have taken a place in the directory so far."""
        return len(list(self.root.glob(f"sessions/session_*/runs/{mode}_*/card.json")))

    # ---------------------------------------------------------------- what must be

    def problems(self, modes: tuple[str, ...] = MODES) -> list[str]:
        """What is wrong with how runs ended, and with what they computed; empty if all is as if undisturbed."""
        found, expected = [], toy.sequence(self.course)
        outcomes = {mode: self.outcome(mode) for mode in modes}
        for mode, outcome in outcomes.items():
            if outcome is None or outcome.state is None:
                found.append(f"{mode} ended without a state: {outcome}")
            elif (outcome.state["step"], outcome.state["weights"]) != (self.course.steps, expected.weights):
                found.append(f"{mode} computed other numbers")
        took = {outcome.state["took"] for outcome in outcomes.values() if outcome and outcome.state}
        if not found and len(took) > 1:
            found.append("the runs trained on different generations of a rollout")
        return found

    def audit(self, *, running: bool = False, earlier: dict[str, Course] | None = None) -> list[str]:
        """Reads every artefact that has a name, wherever it lies, and says what is not whole or not as it must be.

        Args:
            running: whether something may be deleted meanwhile.
            earlier: courses of sessions that were there before, by id.
        """
        found = []
        for path in self.artefacts():
            try:
                self._check(path, earlier or {})
            except Exception as e:
                if not running or path.exists():
                    found.append(f"{path}: {type(e).__name__}: {e}")
        return found

    def artefacts(self) -> list[Path]:
        folders = [self.root, *self.root.glob("sessions/*")]
        return [
            path
            for folder in folders
            if folder.is_dir()
            for path in folder.iterdir()
            if layout.kind_and_index(path.name)
        ]

    def _check(self, path: Path, earlier: dict[str, Course]) -> None:
        about = read_artefact_about(path)
        course = earlier.get(about["session"], self.course)
        expected, step = toy.sequence(course), about["global_step"]
        if about["kind"] == "ckpt":
            read_checked(path)
            assert toy.read_checkpoint(path) == expected.checkpoints[step - 1], "holds other weights"
            return
        record = read_record(path)
        call = record.meta["call"]
        right = [made for made in expected.rollouts if (made.kind, made.step) == (call["kind"], call["global_step"])]
        assert record.tensors["responses"].tolist() == right[0].answers, "holds other answers"

    def left_over(self) -> list[str]:
        """What has a staging name though both runs have ended, in the directory itself."""
        return sorted(path.name for path in self.root.glob(f"{layout.STAGING_PREFIX}*"))

    def tail(self) -> str:
        """The ends of both logs, for a report."""
        return "\n".join(f"--- {mode}\n{(self.folder / f'{mode}.log').read_text()[-1500:]}" for mode in MODES)


def ended(plan: RunPlan, disturbance: Disturbance | None, clock: Callable[[], Clock] | None) -> ToyOutcome:
    """Does a run, and says how it ended."""
    try:
        return ToyOutcome(asdict(fake_run.run(plan, disturbance, clock() if clock else None)))
    except BaseException as e:
        traceback.print_exc()
        ours = isinstance(e, CrossCheckError)
        again = pickle.loads(pickle.dumps(e)) if ours else e
        return ToyOutcome(None, type(e).__name__, str(e), ours and (type(again), str(again)) == (type(e), str(e)))


def _quick_heartbeat(path: Path) -> Heartbeat:
    return Heartbeat(path, BEAT_S)


@contextmanager
def new_pair(
    course: Course, scratch: Path, *, template: Path | None = None, settings: dict[str, Any] | None = None
) -> Iterator[ToyPair]:
    """An empty pair, or one whose directory earlier sessions have used; gone afterwards."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    pair = ToyPair(folder, course, settings or {})
    if template:
        shutil.copytree(template, pair.root, symlinks=True)
    try:
        yield pair
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def warm_up() -> None:
    """Has the parent do once what each of a thousand runs would do again, and what takes most of a run's start."""
    names = vars(participation)
    for name in ("read_installation", "installed_versions"):
        names[name] = functools.cache(names[name])
        names[name]()
    config = OmegaConf.to_container(RunPlan("ckpt", Path("/"), Path("/"), Course(1), {}).config())
    compare(config, config, {}, {})
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # or the first collection of each child would copy the parent's memory


def make_template(target: Path, course: Course, scratch: Path) -> dict[str, Course]:
    """An exchange directory that one session has used; its course by its id."""
    with new_pair(course, scratch) as pair:
        children = [pair.start(mode) for mode in MODES]
        wait_for(children)
        problems = pair.problems()
        if problems:
            raise SystemExit(f"torture: an undisturbed pair failed: {problems}\n{pair.tail()}")
        shutil.copytree(pair.root, target)
    return {session.id: course for session in sessions(target)}


def wait_for(children: list[Child], patience_s: float = PATIENCE_S) -> bool:
    """Whether all have ended in time; those that have not are killed."""
    deadline_s = time.monotonic() + patience_s
    for child in children:
        child.poll(max(0.0, deadline_s - time.monotonic()))
    late = [child for child in children if child.status is None]
    for child in late:
        child.signal(signal.SIGCONT)
        child.kill()
    return not late


def wait_until(condition: Callable[[], bool], patience_s: float = PATIENCE_S) -> bool:
    """Whether it became true in time."""
    deadline_s = time.monotonic() + patience_s
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.002)
    return True
