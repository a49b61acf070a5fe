# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""With `share_data` unset, a seeded run gives upstream's numbers to the last digit.

Upstream does not train on a CPU, so its side of the comparison is its unmodified trainer on the fork's CPU back end:
what differs between the two runs is the fork's trainer with its hooks, its typed configuration and its rollout skip.
"""

from pathlib import Path

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data

pytestmark = pytest.mark.slow
EXTERNAL = Path(__file__).parent / "external"


def test_metrics_equal_plain_upstreams(tmp_path):
    data = write_data(tmp_path / "data")
    overrides = [*task_overrides(data), "trainer.total_training_steps=3"]
    plain = {"PYTHONPATH": str(EXTERNAL), "VERL_USE_EXTERNAL_MODULES": "plain_upstream_trainer"}
    with (
        launch.running(tmp_path / "fork", [*overrides, f"trainer.share_data_dir={tmp_path / 'share'}"]) as fork,
        launch.running(tmp_path / "upstream", overrides, env=plain) as upstream,
    ):
        ours, theirs = fork.wait(240), upstream.wait(240)
    assert "trainer of this run: verl.trainer.ppo.ray_trainer__upstream" in upstream.log()
    assert "trainer of this run" not in fork.log()
    assert [step.number for step in ours] == [step.number for step in theirs] == [1, 2, 3]
    for one, other in zip(ours, theirs, strict=True):
        assert one.repeatable == other.repeatable
        assert one.values.keys() == other.values.keys()
        assert one.repeatable["actor/grad_norm"] > 0
    assert not (tmp_path / "share").exists()
    assert "ShareDataTest" not in fork.log()
