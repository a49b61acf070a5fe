# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A session that version 0.1.0 recorded is replayed by a real run of this version."""

import shutil
from pathlib import Path

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data

pytestmark = pytest.mark.slow

RECORDED = Path(__file__).parents[1] / "recorded" / "session_0_1_0"
STEPS = 3
LIMIT_S = 300


def test_a_run_trains_on_the_recorded_rollouts(tmp_path):
    share = tmp_path / "share"
    shutil.copytree(RECORDED, share)
    share.chmod(0o700)
    before = sorted(path.relative_to(share) for path in share.rglob("*"))
    overrides = [
        *task_overrides(write_data(tmp_path / "data")),
        "trainer.share_data=rollout",
        "trainer.share_data_replay=True",
        launch.override("trainer.share_data_dir", share),
        f"trainer.total_training_steps={STEPS}",
    ]
    with launch.running(tmp_path / "run", overrides) as run:
        steps = run.wait(LIMIT_S)
    assert [step.number for step in steps if step.number] == [1, 2, 3]
    for index in range(STEPS):
        line = f"[ShareDataTest] Successfully load pre-generated data from {share}/rollout_{index}"
        assert run.log().count(line) == 1
    assert run.log().count("[ShareDataTest] replaying session 1 of") == 1
    assert sorted(path.relative_to(share) for path in share.rglob("*")) == before
