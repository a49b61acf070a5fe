# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Pairs of runs on disk, made by the exchange itself, and the command line: fixtures of two packages."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from verl.crosscheck.cli import main
from verl.crosscheck.clock import ManualClock
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.exchange.publish import publish_file, publish_folder
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.liveness import beat, this_process
from verl.crosscheck.exchange.session.own_run import OwnRun, open_run
from verl.crosscheck.exchange.session.run_files import Card, Start

VERSIONS = {"verl-crosscheck": "0.1.0", "torch": "2.9.0"}


def process(where):
    """What identifies a process: this one, one that is gone from this host, or one of another host."""
    here = this_process()
    return {
        "here": here,
        "gone": {**here, "start": 1},
        "elsewhere": {**here, "boot": "another boot"},
    }[where]


@dataclass
class Pair:
    """One exchange directory and its runs."""

    root: Path

    def start(self, mode, where="here", *, start=None, trainer=(), **card) -> OwnRun:
        """A run takes its place."""
        defaults = {
            "run_id": f"{mode}-{len(list(self.root.rglob('card.json')))}-id",
            "session_id": "",
            "mode": mode,
            "host": "npu-7" if where == "elsewhere" else "gpu-1",
            "process": process(where),
            "started": "2026-11-29 12:00:00 +0000",
            "versions": VERSIONS,
            "device": "cuda",
            "world_size": 8,
            "strategy": "fsdp2",
            "start": start or Start(),
            "others_before": 0,
            "config": {"trainer": {"share_data": mode, "total_training_steps": 10, **dict(trainer)}, "data": {"n": 4}},
        }
        self.root.mkdir(exist_ok=True, mode=0o700)
        clock = ManualClock({0.5: self.beat_all})  # runs that have not ended show that they live
        return open_run(self.root, Card(**{**defaults, **card}), silence_s=20.0, clock=clock)

    def beat_all(self, count=1):
        for heartbeat in self.root.rglob("heartbeat"):
            beat(heartbeat, count)

    def age(self, run, seconds):
        """Let all files of a run look as if written that long ago."""
        for path in run.slot.names.folder.iterdir():
            moment_s = path.stat().st_mtime - seconds
            os.utime(path, (moment_s, moment_s))

    def rollout(self, run, index, *, step=None, at_s=None):
        path = Layout(self.root).rollout(index)
        about = {"kind": "rollout", "index": index, "call": "training", "global_step": index + 1, **run.slot.stamp}
        if step is not None:
            about["global_step"] = step
        publish_file(path, lambda file: write_record(file, Record(about=about)))
        if at_s is not None:
            os.utime(path, (at_s, at_s))
        run.report_published("rollout", index, "training")
        return path

    def ckpt(self, run, index, size_bytes=1000):
        path = Layout(self.root).ckpt(index)

        def fill(stage):
            (stage / "model_world_size_1_rank_0.pt").write_bytes(b"x" * size_bytes)

        publish_folder(path, fill, {"kind": "ckpt", "index": index, **run.slot.stamp})
        run.report_published("ckpt", index, "pushing weights")
        return path

    def finish(self, *runs, error=None):
        for run in runs:
            run.end(error)


@pytest.fixture
def pair(tmp_path):
    return Pair(tmp_path / "share")


@pytest.fixture
def call(monkeypatch):
    """Runs a command line as a pipe would see it; the result has `exit_code`, `stdout` and `stderr`."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def call(*arguments, columns=80, **kwargs):
        runner = CliRunner(env={"COLUMNS": str(columns)})
        result = runner.invoke(main, [str(each) for each in arguments], prog_name="verl-crosscheck", **kwargs)
        if result.exception and not isinstance(result.exception, SystemExit | click.exceptions.Exit):
            raise result.exception
        return result

    return call


@pytest.fixture
def call_json(call):
    """As `call` with `--json`: the exit status and what was printed."""

    def call_json(*arguments):
        result = call(*arguments, "--json")
        return result.exit_code, json.loads(result.stdout)

    return call_json


@pytest.fixture
def replaced_card():
    """Puts another card in place of a run's, as its own host would have written it."""

    def replaced_card(run, **changes):
        run.slot.names.card.unlink()
        run_files.write_card(run.slot.names, replace(run.card, **changes))

    return replaced_card
