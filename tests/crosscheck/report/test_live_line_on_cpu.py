# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One line a step for the log."""

import subprocess
import sys

from verl.crosscheck.diagnosis.findings import Aspect, Finding, State, StepComparison
from verl.crosscheck.reasons import free_text
from verl.crosscheck.report.live_line import ASPECTS, live_line


def step(*findings):
    return StepComparison(3, 2, rows=64, tokens=256, findings=findings)


def test_what_differs_comes_first_with_its_numbers_then_what_agrees_and_what_is_missing():
    line = live_line(
        step(
            Finding(Aspect.FORWARD, "k3", State.AGREE, 0.0, 0.005),
            Finding(Aspect.ROLLOUT_TAKER, "pearson", State.DIFFER, 0.9, 0.98, above_is_bad=False),
            Finding(Aspect.ROLLOUT_TAKER, "k3", State.DIFFER, 0.0123456, 0.005),
            Finding(Aspect.UPDATE, "grad_norm_rel_diff", State.AGREE, 0.015, 0.03),
            Finding(Aspect.UPDATE, "change_rel_diff", State.MISSING, reason=free_text("not measured")),
            Finding(Aspect.SYNC, "tensors_out_of_sync", State.MISSING, reason=free_text("not told")),
        )
    )
    assert line == (
        "step 3, 64 rows, 256 tokens: differs: own rollout to the other run's training (pearson 0.9, threshold 0.98, "
        "k3 0.0123, threshold 0.005); agrees: training to training, update (closest to its threshold: update, "
        "grad_norm_rel_diff 0.015, threshold 0.03); not compared: weight sync"
    )


def test_each_aspect_that_differs_shows_its_two_worst_and_where():
    line = live_line(
        step(
            Finding(
                Aspect.SAMPLING,
                "nll_minus_entropy_mean",
                State.DIFFER,
                0.112,
                0.004,
                reason=free_text("hotter than claimed"),
            ),
            Finding(
                Aspect.SAMPLING, "nll_minus_entropy_z", State.DIFFER, 5.51, 4.5, reason=free_text("hotter than claimed")
            ),
            Finding(
                Aspect.SAMPLING,
                "nll_minus_entropy_train_z",
                State.DIFFER,
                5.5,
                4.5,
                reason=free_text("hotter than claimed"),
            ),
            Finding(Aspect.FORWARD, "exp_abs_diff_mean", State.AGREE, 1.0004, 1.002),
        )
    )
    assert line == (
        "step 3, 64 rows, 256 tokens: differs: sampling (nll_minus_entropy_mean 0.112, threshold 0.004, "
        "nll_minus_entropy_z 5.51, threshold 4.5, hotter than claimed, 1 more); agrees: training to training (closest "
        "to its threshold: training to training, exp_abs_diff_mean 1.0004, threshold 1.002)"
    )


def test_it_is_one_line_of_bounded_length_whatever_reasons_say():
    wrong = [
        Finding(each, f"q{n}", State.DIFFER, 2.0 + n, 1.0, reason=free_text("x\ny" * 500))
        for each in Aspect
        for n in range(9)
    ]
    line = live_line(step(*wrong))
    assert "\n" not in line
    assert len(line) < 1200
    assert all(name in line for name in ASPECTS.values())


def test_nothing_compared_is_said():
    assert live_line(step()) == "step 3, 64 rows, 256 tokens: nothing was compared"


def test_it_needs_neither_templates_nor_plots():
    code = (
        "import sys; from _verl_overlay.command import _put_light_package_in_place as light; light();"
        "import verl.crosscheck.report.live_line; print({'jinja2', 'matplotlib', 'torch'} & sys.modules.keys())"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"


def test_every_aspect_has_a_name():
    assert set(ASPECTS) == set(Aspect)
