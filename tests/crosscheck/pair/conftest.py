# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Commands that behave as training runs do, as seen from outside: their exchange, their log, their end; in a moment."""

import shlex
import sys

import pytest

from verl.crosscheck.pair import watch

# Its overrides are those of `verl-crosscheck run`. `how` is what becomes of it. The module name makes it a training.
TRAINING = """
import os, signal, sys, time

from _verl_overlay.command import _put_light_package_in_place

how = sys.argv[1]
values = dict(word.split("=", 1) for word in sys.argv[2:])
mode, root = values["trainer.share_data"], values["trainer.share_data_dir"].strip("'")
steps = int(values["trainer.total_training_steps"])
print("starting", mode, flush=True)
if how == "fails at once":
    print("Traceback (most recent call last):")
    print("ValueError: no such model")
    sys.exit(3)
if how == "hangs":
    time.sleep(60)
if how == "ignores signals":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("deaf", flush=True)
    time.sleep(60)

_put_light_package_in_place()

from pathlib import Path

from verl.crosscheck.clock import SystemClock
from verl.crosscheck.errors import PeerFailedError
from verl.crosscheck.exchange.session.run_files import Card, Start
from verl.crosscheck.exchange.session.own_run import open_run
from verl.crosscheck.exchange.session.liveness import this_process
from verl.crosscheck.exchange.session.claim import current_session

OTHER = {"ckpt": "rollout", "rollout": "ckpt"}


def stop(number, frame):
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, stop)
card = Card(
    run_id=f"{mode}-{os.getpid()}", session_id="", mode=mode, host="here", process=this_process(),
    started="2026-11-29 12:00:00 +0000", versions={}, device="cpu", world_size=1, strategy="fsdp2", start=Start(),
    others_before=0, config={"trainer": {"share_data": mode, "total_training_steps": steps}},
)
run = open_run(Path(root), card, silence_s=20.0, clock=SystemClock())


def peer():
    session = current_session(Path(root))
    names = session.newest(OTHER[mode]) if session else None
    return names


deadline = time.monotonic() + 30
error = None
try:
    while peer() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    for step in range(1, steps + 1):
        run.report("training", global_step=step)
        print("step", step, flush=True)
        if how == f"fails in step {step}":
            raise RuntimeError("out of memory")
        if how == f"waits in step {step}":
            while peer() is None or not peer().end.exists():
                time.sleep(0.01)
            raise PeerFailedError("the other run failed")
        if how == f"stays in step {step}":
            time.sleep(60)
        if mode == "rollout":
            run.report_published("ckpt", step - 1, "pushing weights")
        else:
            run.report_taken("ckpt", step - 1, "generating")
except BaseException as e:
    error = e
    print(f"{type(e).__name__}: {e}")
run.end(error)
sys.exit(1 if error else 0)
"""


@pytest.fixture
def training(tmp_path):
    """Makes the text of a command that runs a training of that kind: `training("fails in step 2")`."""
    folder = tmp_path / "bin it's"
    folder.mkdir()
    (folder / "main_ppo.py").write_text(TRAINING)

    def training(how="is well"):
        return shlex.join([sys.executable, str(folder / "main_ppo.py"), how])

    return training


@pytest.fixture(autouse=True)
def looks_often(monkeypatch):
    monkeypatch.setattr(watch, "LOOK_EVERY_S", 0.02)
