# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs record their steps, and mode ckpt compares them as they go; nothing of that ever stops a run."""

import errno
import json
from dataclasses import replace
from math import hypot

import numpy as np
import pytest
from crosscheck.diagnosis.simulated import World
from crosscheck.diagnosis.simulated import step as simulated_step
from evidence_fixtures import make_batch, make_update
from rollout_fixtures import FakeManager, make_config, make_prompts

from verl.crosscheck.diagnosis.findings import Aspect, State
from verl.crosscheck.diagnosis.findings_json import comparison_from_json
from verl.crosscheck.evidence import files
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.run.observe.step_observer import LiveComparison
from verl.utils.share_data import ShareDataTest

PROMPTS = [[1, number] for number in range(40)]
RESPONSES = [[7] * (1 + number % 3) + [2] for number in range(40)]


class Side:
    """A run of one step after the other, its batches given."""

    def __init__(self, root, mode, **trainer):
        config = make_config(root, mode, calculate_log_probs=True)
        config.trainer.update(trainer)
        self.mode, self.step = mode, 0
        self.share, self.worker = ShareDataTest(config), FakeManager()
        self.share.wrap_generate_sequences(mode, self.worker)
        self.share.tell_sampling(None)
        self.share.begin_at(0)

    def generate(self):
        return self.worker.generate_sequences(make_prompts(["1+1="], step=self.step + 1))

    def update(self, **observed):
        self.step += 1
        observed = make_update(
            make_batch(PROMPTS, RESPONSES, **observed.pop("columns", {})), step=self.step, **observed
        )

        def dump(path):
            (files.Path(path) / "model.pt").write_bytes(b"weights")

        return self.share.after_update_policy(
            self.mode, lambda path: None, dump, {"global_step": self.step}, lambda: observed
        )


@pytest.fixture
def root(tmp_path):
    return tmp_path / "share"


def play(root, a=None, b=None, steps=1, **trainer):
    """A pair of runs that trains; `a` and `b` say what each observes."""
    sides = Side(root, "ckpt", **trainer), Side(root, "rollout", **trainer)
    for _ in range(steps):
        for side in sides:
            side.generate()
        sides[1].update(**(b or {}))
        times = sides[0].update(**(a or {}))
    return sides, times


def names_of(root, mode):
    return RunNames(root / "sessions" / "session_1" / "runs" / f"{mode}_1")


def states(comparison, aspect):
    return {each.quantity: each.state for each in comparison.findings if each.aspect is aspect}


def compared(root, step=1):
    return comparison_from_json(json.loads(names_of(root, "ckpt").comparison(step).read_text()))


def test_both_record_and_ckpt_compares(root, capfd):
    (a, b), times = play(root, steps=2)
    for step in (1, 2):
        for mode in ("ckpt", "rollout"):
            evidence = files.load(names_of(root, mode).evidence(step))
            assert (evidence.mode, evidence.global_step, evidence.update_index) == (mode, step, step - 1)
            assert len(evidence.row_ids) == 40
        assert compared(root, step).rows == 40
    assert a.share.metrics()["crosscheck/forward/logprob_abs_diff_mean"] == 0
    assert a.share.metrics()["crosscheck/rollout_taker/logprob_abs_diff_mean"] == pytest.approx(0.01, rel=1e-3)
    assert a.share.metrics()["crosscheck/update/grad_norm_rel_diff"] == 0
    assert a.share.metrics()["crosscheck/beyond_limit"] == 0
    assert b.share.metrics() == {}
    assert not names_of(root, "rollout").comparisons.exists()
    assert times["share_data/evidence"] > 0
    lines = [line for line in capfd.readouterr().out.splitlines() if "step 2" in line]
    assert len(lines) == 1
    assert lines[0].startswith("[ShareDataTest] ")


def test_a_difference_shows_in_metrics_line_and_file(root, capfd):
    batch = make_batch(PROMPTS, RESPONSES)
    (a, _), _ = play(root, a={"columns": {"old_log_probs": batch.batch["old_log_probs"] - 2.0}})
    assert a.share.metrics()["crosscheck/forward/logprob_abs_diff_mean"] == pytest.approx(2.0, rel=1e-3)
    assert a.share.metrics()["crosscheck/beyond_limit"] > 0
    assert State.DIFFER in states(compared(root), Aspect.FORWARD).values()
    assert State.DIFFER not in states(compared(root), Aspect.ROLLOUT_TAKER).values()
    assert "step 1" in capfd.readouterr().out


def test_off_records_nothing(root):
    (a, _), times = play(root, share_data_evidence="off")
    assert a.share.metrics() == {}
    assert "share_data/evidence" not in times
    assert not names_of(root, "ckpt").all_evidence.exists()
    assert not names_of(root, "rollout").all_evidence.exists()


def test_one_side_off_is_no_agreement(root, capfd):
    a, b = Side(root, "ckpt"), Side(root, "rollout", share_data_evidence="off")
    for side in (a, b):
        side.generate()
    b.update()
    a.update()
    assert a.share.metrics() == {}
    assert not names_of(root, "ckpt").comparison(1).exists()
    assert "Warning: step 1 cannot be compared: no run of mode rollout" in capfd.readouterr().out


def test_a_summary_is_compared_by_rows(root):
    play(root, share_data_evidence="summary")
    found = compared(root)
    assert found.tokens == 0
    assert State.DIFFER not in {each.state for each in found.findings}
    assert State.MISSING in states(found, Aspect.FORWARD).values()


def test_what_a_batch_lacks_is_missing_and_never_agreement(root):
    play(root, a={"columns": {"rollout_log_probs": None}}, b={"columns": {"rollout_log_probs": None}})
    found = states(compared(root), Aspect.ROLLOUT_TAKER)
    assert set(found.values()) == {State.MISSING}
    reasons = [str(each.reason) for each in compared(root).findings if each.aspect is Aspect.ROLLOUT_TAKER]
    assert "calculate_log_probs=True" in " ".join(reasons)


def test_a_batch_that_cannot_be_recorded_stops_nothing(root, capfd):
    play(root, a={"columns": {"attention_mask": None}}, steps=2)
    out = capfd.readouterr().out
    assert out.count("Warning: the rows of this step is not recorded (KeyError") == 1
    evidence = files.load(names_of(root, "ckpt").evidence(2))
    assert len(evidence.row_ids) == 0
    assert "KeyError" in str(evidence.missing["rows"])
    assert State.AGREE not in states(compared(root, 2), Aspect.FORWARD).values()


def test_a_full_disk_stops_nothing(root, capfd):
    class Full(filesystem.Filesystem):
        def mkdir(self, path):
            if path.name in ("evidence", "comparison"):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().mkdir(path)

    with filesystem.replaced(Full()):
        (a, _), _ = play(root, steps=2)
    assert a.step == 2
    out = capfd.readouterr().out
    assert "evidence/step_1 is not recorded (OSError: [Errno 28] No space left on device). The run goes on" in out
    assert "step 1 cannot be compared" in out


def test_foreign_evidence_is_not_read(root, capfd, monkeypatch):
    from verl.crosscheck.exchange import directory

    a, b = Side(root, "ckpt"), Side(root, "rollout")
    for side in (a, b):
        side.generate()
    b.update()
    path = names_of(root, "rollout").evidence(1)
    path.write_bytes(b"nonsense" * 100)
    a.update()
    assert "step 1 cannot be compared" in capfd.readouterr().out
    for side in (a, b):
        side.generate()
    b.update()
    require = directory.require_own_file
    real = directory.os.geteuid()

    def somebody_else(path):
        with monkeypatch.context() as patch:
            if "evidence" in path.parts:
                patch.setattr(directory.os, "geteuid", lambda: real + 1)
            return require(path)

    monkeypatch.setattr("verl.crosscheck.evidence.files.require_own_file", somebody_else)
    a.update()
    assert f"belongs to user {real}, expected user {real + 1}" in capfd.readouterr().out


def test_what_will_be_lacking_is_said_at_start(root, capfd):
    config = make_config(root, "ckpt", calculate_log_probs=False)
    config.algorithm = {"rollout_correction": {"bypass_mode": True}}
    ShareDataTest(config)
    out = capfd.readouterr().out
    assert "set actor_rollout_ref.rollout.calculate_log_probs=True on both sides" in out
    assert "algorithm.rollout_correction.bypass_mode=True takes the rollout's log-probs for training's" in out
    config.trainer.share_data_evidence = "off"
    ShareDataTest(config)
    assert "verdict" not in capfd.readouterr().out


def test_a_step_without_predictions_is_held_against_those_of_the_step_before():
    noise = {f"{whose}/logprob_abs_diff_mean": 0.04 for whose in ("engine", "train")}
    live = LiveComparison(slot=None, attempts=None)
    limits = []
    for number, own_noise in ((1, noise), (2, {}), (3, {})):
        sides = simulated_step(World(noise=0.015), np.random.default_rng(number), number)
        found = live._compared(*(replace(side, noise=own_noise) for side in sides))
        limits += [
            each.limit
            for each in found.findings
            if (each.aspect, each.quantity) == (Aspect.FORWARD, "logprob_abs_diff_mean")
        ]
    assert limits == pytest.approx([2.5 * hypot(0.04, 0.04)] * 3)
