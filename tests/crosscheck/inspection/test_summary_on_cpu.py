# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The sentence on top of `verl-crosscheck status`."""

import pytest

from verl.crosscheck.inspection.run_state import RunState, WatchedRun
from verl.crosscheck.inspection.status import summary

WAITS = WatchedRun("ckpt", RunState.RUNNING, number=1, phase="waiting for ckpt_3", phase_s=12.0, global_step=4)
TRAINS = WatchedRun("rollout", RunState.RUNNING, number=1, phase="training", phase_s=3.0, global_step=4, host="npu-7")
NO_CKPT, NO_ROLLOUT = WatchedRun("ckpt"), WatchedRun("rollout")


def of(run, **changes):
    return WatchedRun(**{**vars(run), **changes})


CASES = {
    "nobody": (NO_CKPT, NO_ROLLOUT, "No run has taken part here yet."),
    "one starts": (
        of(WAITS, state=RunState.STARTING, phase="starting", global_step=None),
        NO_ROLLOUT,
        "The ckpt run is starting (12 s so far). No run in mode rollout has started: start one with "
        "trainer.share_data=rollout and this same directory.",
    ),
    "waits for nobody": (
        WAITS,
        NO_ROLLOUT,
        "The ckpt run waits for ckpt_3 (12 s so far), and no run in mode rollout has started: start one with "
        "trainer.share_data=rollout and this same directory.",
    ),
    "the other works": (
        WAITS,
        TRAINS,
        "The ckpt run waits for ckpt_3 (12 s so far); the rollout run is training in step 4 (3.0 s so far).",
    ),
    "the other saves it": (
        WAITS,
        of(TRAINS, phase="saving ckpt_3"),
        "The ckpt run waits for ckpt_3; the rollout run is saving it (3.0 s so far).",
    ),
    "it is there": (
        WAITS,
        of(TRAINS, phase="pushing weights", published={"ckpt": 4}),
        "The ckpt run waits for ckpt_3, which is there (12 s so far); the rollout run is pushing weights in step 4.",
    ),
    "each waits for the other": (
        WAITS,
        of(TRAINS, phase="waiting for rollout_4"),
        "The ckpt run waits for ckpt_3 (12 s so far), and the rollout run waits for rollout_4 (3.0 s so far).",
    ),
    "it will not come": (
        WAITS,
        of(TRAINS, state=RunState.FAILED, error="ValueError", message="no\nsecond line"),
        "The ckpt run waits for ckpt_3 (12 s so far), which will not come. The rollout run failed while training in "
        "step 4: ValueError: no.",
    ),
    "it came before the end": (
        WAITS,
        of(TRAINS, state=RunState.FINISHED, published={"ckpt": 4}),
        "The ckpt run waits for ckpt_3, which is there (12 s so far). The rollout run finished, after step 4.",
    ),
    "the other is silent": (
        WAITS,
        of(TRAINS, state=RunState.SILENT, last_sign_s=400.0),
        "The ckpt run waits for ckpt_3 (12 s so far). The rollout run has been silent for 6 min, and was last seen "
        "while training in step 4. Look on npu-7.",
    ),
    "the other was over before": (
        of(WAITS, number=2, others_before=1),
        of(TRAINS, state=RunState.INTERRUPTED, error="KeyboardInterrupt", message="stopped by a signal"),
        "The ckpt run waits for ckpt_3 (12 s so far) from a run that must be started again: start one with "
        "trainer.share_data=rollout and this same directory. The rollout run was interrupted while training in step 4: "
        "KeyboardInterrupt: stopped by a signal.",
    ),
    "one failed because the other did": (
        of(WAITS, state=RunState.FAILED, error="PeerFailedError", message="the other run ... a long story"),
        of(TRAINS, state=RunState.FAILED, error="ValueError", message="bad!"),
        "The rollout run failed while training in step 4: ValueError: bad! The ckpt run learnt of it while waiting for "
        "ckpt_3 in step 4, and stopped as well.",
    ),
    "both work": (
        of(WAITS, phase="generating"),
        TRAINS,
        "The ckpt run is generating in step 4 (12 s so far). The rollout run is training in step 4 (3.0 s so far).",
    ),
    "one died": (
        of(WAITS, phase="generating"),
        of(TRAINS, state=RunState.DIED),
        "The rollout run died while training in step 4: its process is gone and reported no end, as after kill -9 or "
        "when memory ran out. Look into the kernel's log, then start it again. The ckpt run is generating in step 4 "
        "(12 s so far).",
    ),
    "one cannot be read": (
        of(WAITS, state=RunState.FINISHED),
        of(NO_ROLLOUT, state=RunState.UNREADABLE),
        "The rollout run cannot be read: its files are damaged, or of another version. The ckpt run finished, after "
        "step 4.",
    ),
    "both finished": (
        of(WAITS, state=RunState.FINISHED),
        of(TRAINS, state=RunState.FINISHED),
        "Both runs finished, after step 4.",
    ),
    "both finished apart": (
        of(WAITS, state=RunState.FINISHED, global_step=5),
        of(TRAINS, state=RunState.FINISHED),
        "Both runs finished, the ckpt run after step 5 and the rollout run after step 4.",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_who_waits_for_what(case):
    ckpt, rollout, expected = CASES[case]
    assert summary(ckpt, rollout) == expected
    if case not in (
        "both finished apart",
        "both work",
        "each waits for the other",
    ):  # who is named first does not hang on the order
        assert summary(rollout, ckpt) == expected
