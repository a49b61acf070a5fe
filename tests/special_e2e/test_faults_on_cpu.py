# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults in run A of a real pair, one a step, with the new workers: each in the numbers of its step alone.

The legacy workers' faults are the same code in another place, see `tests/recipe/test_training_faults_on_cpu.py`.
"""

from contextlib import ExitStack

import pytest

from recipe.crosscheck import launch
from recipe.crosscheck.data import task_overrides, write_data
from recipe.crosscheck.faults import plan as plans

pytestmark = pytest.mark.slow

LIMIT_S = 600
PLAN = plans.parse("stale_weights@2,gradient_scaled@3,train_temperature@4,cut_responses@5,perturbed_layer@6")
STEPS = 7
APART = "training/rollout_probs_diff_mean"
"""Of a run's rollout (in B: A's) and its training. Healthy: below 1e-5."""


@pytest.mark.extended
def test_each_fault_acts_in_its_step_alone(tmp_path):
    data = write_data(tmp_path / "data", val_rows=8)
    with ExitStack() as stack:
        runs = {}
        for name, mode in (("a", "ckpt"), ("b", "rollout")):
            planted = PLAN if name == "a" else plans.FaultPlan()
            overrides = [
                *task_overrides(data),
                *plans.overrides(planted),
                "trainer.use_legacy_worker_impl=disable",
                f"trainer.share_data={mode}",
                f"trainer.share_data_dir={tmp_path / 'share'}",
                f"trainer.total_training_steps={STEPS}",
                "trainer.share_data_timeout_s=500",
            ]
            runs[name] = stack.enter_context(launch.running(tmp_path / name, overrides, env=plans.environment(planted)))
        a, b = ({step.number: step.values for step in runs[name].wait(LIMIT_S)} for name in "ab")
        log = {name: runs[name].log() for name in "ab"}
    assert sorted(a) == sorted(b) == list(range(1, STEPS + 1))

    for step in (1, 7):  # healthy: before the faults, and after
        assert a[step][APART] < 1e-5 and b[step][APART] < 1e-5
        assert a[step]["actor/grad_norm"] == b[step]["actor/grad_norm"]
    # Rollout: both trainings agree, and neither agrees with the engine.
    assert a[2][APART] == b[2][APART] > 1e-3
    assert a[2]["actor/grad_norm"] == b[2]["actor/grad_norm"]
    assert a[5][APART] < 1e-5
    assert a[5]["response_length/mean"] < a[1]["response_length/mean"] - 0.5  # a token less
    # Update: the log-probs agree.
    assert a[3][APART] < 1e-5 and b[3][APART] < 1e-5
    assert a[3]["actor/grad_norm"] == pytest.approx(10 * b[3]["actor/grad_norm"], rel=1e-3)
    # Forward: A's training agrees with neither its engine nor B's training.
    for step in (4, 6):
        assert a[step][APART] > 1e-3 and b[step][APART] < 1e-5

    for planted in PLAN.faults:
        assert f"planted fault {planted.fault.name} acts in step {planted.first}" in log["a"]
    assert log["a"].count("planted fault") == 2 * len(PLAN.faults)  # told by the server and by the training worker
    assert "planted fault" not in log["b"]
