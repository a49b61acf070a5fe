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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from verl.crosscheck.clock import Clock, SystemClock
from verl.crosscheck.console import say
from verl.crosscheck.errors import CrossCheckError, MismatchError, PublishError
from verl.crosscheck.exchange.layout import MANIFEST, Layout
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.publish import publish_folder
from verl.crosscheck.exchange.wait import Wait, Waiting
from verl.crosscheck.identity import Call
from verl.crosscheck.interception import intercept
from verl.crosscheck.rollouts import identify_call, load_rollout, save_rollout
from verl.crosscheck.settings import ShareMode
from verl.crosscheck.startup import prepare
from verl.protocol import DataProto

__all__ = ["ShareDataTest"]

MARK = "[ShareDataTest]"
RAY_SESSIONS = "/tmp/ray/session"  # noqa: S108  compared with, never written to

SAME_QUESTION = (
    "Start both runs with the same data files, data.seed, data.shuffle, batch sizes, rollout.n, test_freq and "
    "val_before_train, at the same time, in a directory of their own."
)


class ShareDataTest:
    """One run's side of a cross-check: what it saves for the other run, and what it takes from it.

    Indexes count from 0: rollouts by calls of `generate_sequences` of any kind, checkpoints by actor updates.

    Args:
        config: the run's whole configuration. `trainer.share_data_dir` is opened here.
        clock: the time that waits go by.

    Raises:
        SettingsError, DirectoryError: the configuration cannot be used; see `verl.crosscheck.startup.prepare`.
    """

    print_mark = MARK

    def __init__(self, config: Any, clock: Clock | None = None) -> None:
        trainer = prepare(config)
        self._layout = Layout(Path(trainer.share_data_dir))
        self._wait = Wait(trainer.share_data_timeout_s, _report, clock or SystemClock())
        self._calls = itertools.count()
        self._updates = itertools.count()
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
        if mode is not None:
            give = _GivenRollouts(self._layout, self._calls)
            intercept(worker, give if mode is ShareMode.CKPT else _TakenRollouts(self._layout, self._calls, self._wait))

    def after_update_policy(
        self,
        share_data: str,
        load_func: Callable[[str], object],
        dump_func: Callable[[str], object],
        about: dict[str, Any] | None = None,
    ) -> dict[str, float]:
        """Exchange the actor after an update of it; returns where the time went, in seconds by name.

        In mode `ckpt` the other run's checkpoint is waited for and loaded over the own weights; in mode `rollout` the
        own one is saved for it.

        Args:
            share_data: "ckpt" or "rollout".
            load_func: loads the checkpoint in the folder it is given, on all workers, and returns when done.
            dump_func: saves one into the folder it is given, likewise.
            about: plain JSON that says what was trained on; both runs must say the same.

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
        return self._take_ckpt(path, load_func, about) if mode is ShareMode.CKPT else _give_ckpt(path, dump_func, about)

    def _take_ckpt(self, path: Path, load: Callable[[str], object], about: dict[str, Any]) -> dict[str, float]:
        say(MARK, f"waiting for {path}", "green")
        waited_s = self._wait.until_listed(path, marker=MANIFEST)
        start_s = time.perf_counter()
        try:
            manifest = read_checked(path)
            _require_same_update(path, about, manifest.about)
            load(str(path))
        except Exception as e:
            say(MARK, f"Load ckpt failed from {path} because of {e}", "red")
            raise
        say(MARK, f"Successfully load ckpt from {path}", "green")
        return {"share_data/wait_ckpt": waited_s, "share_data/load_ckpt": time.perf_counter() - start_s}


class _GivenRollouts:
    """Mode `ckpt`: the engine answers, and the other run gets a copy."""

    def __init__(self, layout: Layout, calls: Iterator[int]) -> None:
        self._layout, self._calls = layout, calls

    def begin(self, prompts: DataProto) -> Call:
        return identify_call(next(self._calls), prompts)

    def load(self, call: Call, prompts: DataProto) -> DataProto | None:
        return None

    def save(self, call: Call, prompts: DataProto, output: DataProto) -> None:
        path = self._layout.rollout(call.index)
        start_s = time.perf_counter()
        try:
            save_rollout(path, call, prompts, output)
        except Exception as e:
            say(MARK, f"Failed to dump data in {path}: {e}", "red")
            raise _publish_error(path, e) from e
        say(MARK, f"Successfully dump data in {path}", "green")
        output.meta_info.setdefault("timing", {})["share_data/save_rollout"] = time.perf_counter() - start_s


class _TakenRollouts:
    """Mode `rollout`: the other run's engine answers."""

    def __init__(self, layout: Layout, calls: Iterator[int], wait: Wait) -> None:
        self._layout, self._calls, self._wait = layout, calls, wait

    def begin(self, prompts: DataProto) -> Call:
        return identify_call(next(self._calls), prompts)

    def load(self, call: Call, prompts: DataProto) -> DataProto | None:
        path = self._layout.rollout(call.index)
        say(MARK, "Waiting for shared data...", "green")
        if not path.exists():
            say(MARK, f"No data dump found at {path}.")
        waited_s = self._wait.until_listed(path)
        start_s = time.perf_counter()
        try:
            output = load_rollout(path, call, prompts, SAME_QUESTION)
        except Exception as e:
            say(MARK, f"Failed to load pre-generated data from {path} Error: {e}", "red")
            raise
        say(MARK, f"Successfully load pre-generated data from {path}", "green")
        # The recorded timing is the other run's; this one spent its time here.
        load_s = time.perf_counter() - start_s
        output.meta_info["timing"] = {"share_data/wait_rollout": waited_s, "share_data/load_rollout": load_s}
        return output

    def save(self, call: Call, prompts: DataProto, output: DataProto) -> None:
        raise AssertionError("mode rollout never asks the engine, so there is nothing of it to save")


def _give_ckpt(path: Path, dump: Callable[[str], object], about: dict[str, Any]) -> dict[str, float]:
    start_s = time.perf_counter()
    try:
        publish_folder(path, lambda stage: dump(str(stage)), about)
    except Exception as e:
        say(MARK, f"Failed to save ckpt to {path}: {e}", "red")
        raise _publish_error(path, e) from e
    say(MARK, f"Successfully save ckpt to {path}", "green")
    return {"share_data/save_ckpt": time.perf_counter() - start_s}


def _publish_error(path: Path, cause: Exception) -> CrossCheckError:
    """Errors that already explain themselves stay; others get the name of what was being saved."""
    if isinstance(cause, CrossCheckError):
        return cause
    return PublishError(
        f"{path} was not saved ({type(cause).__name__}: {cause}), so the other run would wait for it in vain and this "
        "run stops. Check free space and permissions there, then start both runs again in an empty directory"
    )


def _require_same_update(path: Path, own: dict[str, Any], found: dict[str, Any]) -> None:
    for key, value in own.items():
        if found.get(key) != value:
            raise MismatchError(
                f"{path} was saved after another update than this run's update {own['index']}: its "
                f"{key.replace('_', ' ')} is {found.get(key)!r}, expected {value!r}. It was not loaded. {SAME_QUESTION}"
            )


def _report(waiting: Waiting) -> None:
    say(
        MARK,
        f"still waiting for {waiting.path.name}: {waiting.waited_s:.0f} s so far, last sign of progress "
        f"{waiting.since_progress_s:.0f} s ago, giving up after {waiting.timeout_s:.0f} s without one",
    )
