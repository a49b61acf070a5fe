# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Cross-check of two runs: exchange of rollouts and actor checkpoints through a shared directory.

`ShareDataTest` is one run's side of the exchange. The trainer of this fork calls it; it can be called by hand as well:

    share = ShareDataTest(config)
    share.wrap_generate_sequences("ckpt", rollout_manager)           # once, before the first rollout
    # after each actor update, before the weights are pushed to the rollout engine:
    share.after_update_policy("ckpt", load_func=load, dump_func=save)
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl.crosscheck.checkpoints import LAYOUT
from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.console import failure_told, say
from verl.crosscheck.errors import CrossCheckError, MismatchError, PublishError
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.exchange.layout import MANIFEST, Layout
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.publish import publish_folder
from verl.crosscheck.exchange.wait import Wait, Waiting
from verl.crosscheck.identity import Call, CallKind
from verl.crosscheck.interception import intercept
from verl.crosscheck.rollouts import identify_call, load_rollout, save_rollout
from verl.crosscheck.settings import ShareMode
from verl.crosscheck.startup import open_exchange, validate
from verl.protocol import DataProto

__all__ = ["ShareDataTest"]

MARK = "[ShareDataTest]"
RAY_SESSIONS = "/tmp/ray/session"  # noqa: S108  compared with, never written to

SAME_QUESTION = (
    "Start both runs with the same data files, data.seed, data.shuffle, batch sizes, rollout.n, test_freq and "
    "val_before_train, at the same time, in a directory of their own."
)
SAME_LAYOUT = (
    "Upstream's checkpoints load only on the same kind of device with the same number of ranks and the same sharding: "
    "give both runs equal trainer.device, trainer.nnodes, trainer.n_gpus_per_node and actor strategy."
)


class ShareDataTest:
    """One run's side of a cross-check: what it saves for the other run, and what it takes from it.

    Indexes count from 0: rollouts by calls of `generate_sequences` of any kind, checkpoints by actor updates.

    Args:
        config: the run's whole configuration. `trainer.share_data_dir` is opened here.
        clock: the time that waits go by.

    Raises:
        SettingsError, DirectoryError: the configuration cannot be used; see `verl.crosscheck.startup`.
    """

    print_mark = MARK

    def __init__(self, config: Any, clock: Clock | None = None) -> None:
        trainer = open_exchange(config, validate(config))
        self._layout = Layout(Path(trainer.share_data_dir))
        self._wait = Wait(trainer.share_data_timeout_s, _report, clock or SystemClock())
        self._calls = itertools.count()
        self._updates = itertools.count()
        self._timing = _Timing()
        say(MARK, f"dump path set to: {self._layout.root}")
        if str(self._layout.root).startswith(RAY_SESSIONS):
            say(
                MARK,
                f"Warning: Using dump path '{self._layout.root}' is not recommended as it's located in {RAY_SESSIONS}*",
                "yellow",
            )

    def wrap_generate_sequences(self, share_data: str, worker: Any) -> None:
        """Route every call of `worker.generate_sequences` through the exchange.

        In mode `ckpt` the worker answers and the answer is saved for the other run; in mode `rollout` the other run's
        answer is waited for and the worker is never asked.

        Args:
            share_data: "ckpt" or "rollout".
            worker: anything with `generate_sequences(DataProto) -> DataProto`, plain or awaitable.
        """
        mode = ShareMode.parse(share_data)
        if mode is ShareMode.CKPT:
            intercept(worker, _GivenRollouts(self._layout, self._calls, self._timing))
        elif mode is ShareMode.ROLLOUT:
            intercept(worker, _TakenRollouts(self._layout, self._calls, self._timing, self._wait))

    def after_update_policy(
        self,
        share_data: str,
        load_func: Callable[[str], object],
        dump_func: Callable[[str], object],
        about: dict[str, Any] | None = None,
    ) -> dict[str, float]:
        """Exchange the actor after an update of it; returns where the time went, in seconds by name.

        In mode `ckpt` the other run's checkpoint is waited for and loaded over the own weights; in mode `rollout` the
        own one is saved for it. The times of rollouts that were not for training, which have no step's metrics of
        their own, are returned along with it.

        Args:
            share_data: "ckpt" or "rollout".
            load_func: loads the checkpoint in the folder it is given, on all workers, and returns when done.
            dump_func: saves one into the folder it is given, likewise.
            about: plain JSON that says what was trained on, and by what; both runs must say the same.

        Raises:
            WaitTimeoutError, DamagedError, MismatchError: nothing was loaded.
            PublishError: the save failed; the other run sees nothing of it.
        """
        mode = ShareMode.parse(share_data)
        if mode is None:
            return {}
        index = next(self._updates)
        about = {"kind": "ckpt", "index": index, **(about or {})}
        path = self._layout.ckpt(index)
        if mode is ShareMode.CKPT:
            self._take_ckpt(path, load_func, about)
        else:
            self._give_ckpt(path, dump_func, about)
        return self._timing.collect()

    def _take_ckpt(self, path: Path, load: Callable[[str], object], about: dict[str, Any]) -> None:
        say(MARK, f"waiting for {path}", "green")
        with failure_told(MARK, f"Load ckpt failed from {path} because of "):
            self._timing.add("wait_ckpt", self._wait.until_listed(path, marker=MANIFEST))
            with self._timing.spent("load_ckpt"):
                _require_same_update(path, about, read_checked(path).about)
                load(str(path))
        say(MARK, f"Successfully load ckpt from {path}", "green")

    def _give_ckpt(self, path: Path, dump: Callable[[str], object], about: dict[str, Any]) -> None:
        with self._timing.spent("save_ckpt"), _saving(path), failure_told(MARK, f"Failed to save ckpt to {path}: "):
            publish_folder(path, lambda stage: dump(str(stage)), about)
        say(MARK, f"Successfully save ckpt to {path}", "green")


class _Timing:
    """Seconds by name, until somebody collects them."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()

    def add(self, name: str, seconds: float) -> None:
        self._seconds[name] += seconds  # type: ignore[assignment]  a counter of seconds

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        start_s = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - start_s)

    def collect(self, suffix: str = "") -> dict[str, float]:
        """Everything so far, or what has the suffix, under the names that the metrics have; then forget it."""
        names = [name for name in self._seconds if name.endswith(suffix)]
        return {f"share_data/{name}": float(self._seconds.pop(name)) for name in names}


class _Rollouts:
    """What both modes do with a call: count it, identify it, and say where its time went."""

    def __init__(self, layout: Layout, calls: Iterator[int], timing: _Timing) -> None:
        self._layout, self._calls, self._timing = layout, calls, timing

    def begin(self, prompts: DataProto) -> Call:
        with self._timing.spent("identify"):
            return identify_call(next(self._calls), prompts)

    def _account(self, call: Call, output: DataProto) -> None:
        """The trainer logs a rollout's `timing` only if it is trained on; other calls' is kept for the next update."""
        spent = self._timing.collect("_rollout")
        spent["share_data/identify"] = sum(self._timing.collect("identify").values())
        if call.kind is CallKind.TRAINING:
            output.meta_info["timing"] = {**(output.meta_info.get("timing") or {}), **spent}
        else:
            for name, seconds in spent.items():
                self._timing.add(f"{name.removeprefix('share_data/')}_{call.kind.value}", seconds)


class _GivenRollouts(_Rollouts):
    """Mode `ckpt`: the engine answers, and the other run gets a copy."""

    def load(self, call: Call, prompts: DataProto) -> DataProto | None:
        return None

    def save(self, call: Call, prompts: DataProto, output: DataProto) -> None:
        path = self._layout.rollout(call.index)
        with self._timing.spent("save_rollout"), _saving(path), failure_told(MARK, f"Failed to dump data in {path}: "):
            save_rollout(path, call, prompts, output)
        say(MARK, f"Successfully dump data in {path}", "green")
        self._account(call, output)


class _TakenRollouts(_Rollouts):
    """Mode `rollout`: the other run's engine answers."""

    def __init__(self, layout: Layout, calls: Iterator[int], timing: _Timing, wait: Wait) -> None:
        super().__init__(layout, calls, timing)
        self._wait = wait

    def load(self, call: Call, prompts: DataProto) -> DataProto | None:
        path = self._layout.rollout(call.index)
        say(MARK, "Waiting for shared data...", "green")
        with failure_told(MARK, f"Failed to load pre-generated data from {path} Error: "):
            if not self._wait.is_listed(path):
                say(MARK, f"No data dump found at {path}.")
            self._timing.add("wait_rollout", self._wait.until_listed(path))
            with self._timing.spent("load_rollout"):
                require_own_file(path)
                output = load_rollout(path, call, prompts, SAME_QUESTION)
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        output.meta_info["timing"] = {}  # the recorded one is the other run's
        self._account(call, output)
        return output

    def save(self, call: Call, prompts: DataProto, output: DataProto) -> None:
        raise AssertionError("mode rollout never asks the engine, so there is nothing of it to save")


@contextmanager
def _saving(path: Path) -> Iterator[None]:
    """Errors that explain themselves go on as they are; others become one that says what was being saved."""
    try:
        yield
    except CrossCheckError:
        raise
    except Exception as e:
        raise PublishError(
            f"{path} was not saved ({type(e).__name__}: {e}), so the other run would wait for it in vain and this run "
            "stops. Check free space and permissions there, then start both runs again in an empty directory"
        ) from e


def _require_same_update(path: Path, own: dict[str, Any], found: dict[str, Any]) -> None:
    for key, value in own.items():
        if found.get(key) != value:
            made = "by another kind of run than this" if key in LAYOUT else "after another update than this run's"
            raise MismatchError(
                f"{path} was saved {made} (update {own['index']}): its {key.replace('_', ' ')} is {found.get(key)!r}, "
                f"expected {value!r}. It was not loaded. {SAME_LAYOUT if key in LAYOUT else SAME_QUESTION}"
            )


def _report(waiting: Waiting) -> None:
    say(
        MARK,
        f"still waiting for {waiting.path.name}: {waiting.waited_s:.0f} s so far, last sign of progress "
        f"{waiting.since_progress_s:.0f} s ago, giving up after {waiting.timeout_s:.0f} s without one",
    )
