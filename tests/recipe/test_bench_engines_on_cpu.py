# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The table of noise floors; the runs themselves are `scripts/test-vllm`'s."""

import pytest

from recipe.crosscheck import bench_engines
from recipe.crosscheck.launch import Step


def step(number, value):
    return Step(number, dict.fromkeys(bench_engines.QUANTITIES.values(), value))


def test_the_floor_is_the_median_without_the_step_that_warms_up():
    found = bench_engines.floor([step(1, 100.0), step(2, 3.0), step(3, 1.0), step(4, 2.0)])
    assert found == dict.fromkeys(bench_engines.QUANTITIES, 2.0)


def test_a_metric_that_a_run_does_not_have_is_not_made_up():
    with pytest.raises(KeyError, match="rollout_probs_diff_mean"):
        bench_engines.floor([step(1, 1.0), Step(2, {})])


def test_engines_stand_side_by_side():
    found = {name: dict.fromkeys(bench_engines.QUANTITIES, value) for name, value in (("hf", 1.0), ("vllm", 7e-7))}
    shown = bench_engines.table(found)
    assert [column.header for column in shown.columns] == ["", "hf", "vllm"]
    assert list(shown.columns[2].cells) == ["7e-07"] * len(bench_engines.QUANTITIES)


@pytest.mark.parametrize(
    ("arguments", "words"), [(["--steps", "1"], "at least 2"), (["--engines", "vllm"], "--engines hf")]
)
def test_what_cannot_work_is_said_before_a_run(monkeypatch, capsys, arguments, words):
    monkeypatch.setattr(bench_engines, "find_spec", lambda name: None)
    with pytest.raises(SystemExit):
        bench_engines.main(arguments)
    assert words in capsys.readouterr().err
