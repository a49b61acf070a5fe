# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A's reward function is B's file and gives other rewards, by its environment: B trains on them, and finds out."""

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.report.load import ReportRequest, load_report

pytestmark = [pytest.mark.slow, pytest.mark.extended]  # every pair scores rows again; test_unequal_ranks looks at it

REWARD = """
import os


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    right = float(solution_str.strip() == ground_truth)
    return len(solution_str) / 10 if os.environ.get("REWARD_OF_A") else right
"""


def test_a_wrong_reward_function_of_a(tmp_path, monkeypatch):
    data, function = write_data(tmp_path / "data", val_rows=8), tmp_path / "reward.py"
    function.write_text(REWARD)
    share = [
        *task_overrides(data),
        f"reward.custom_reward_function.path={function}",
        f"trainer.share_data_dir={tmp_path / 'share'}",
        "trainer.share_data_timeout_s=240",
        "trainer.total_training_steps=2",
    ]
    monkeypatch.setenv("REWARD_OF_A", "1")
    with launch.running(tmp_path / "a", [*share, "trainer.share_data=ckpt"]) as a:
        monkeypatch.delenv("REWARD_OF_A")
        with launch.running(tmp_path / "b", [*share, "trainer.share_data=rollout"]) as b:
            a.wait(300)
            b.wait(300)
    verdict = load_report(ReportRequest({1: tmp_path / "share"})).verdict
    assert (verdict.phase, verdict.first_step) == (Phase.REWARD_OR_ADVANTAGE, 1)
    (worst,) = {each.finding.quantity for each in verdict.evidence}
    assert worst == "reward_recomputed_rel_diff_max"
