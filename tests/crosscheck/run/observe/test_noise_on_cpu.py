# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the trainer's process makes of the workers' answers: when it asks, for which rows, and what is recorded."""

import math

import numpy as np
import pytest
import torch

from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.run.observe import noise as module
from verl.crosscheck.run.observe.noise import NoiseProbe, gradient_noise, log_prob_noise, rows_of_ranks, total_by_tensor
from verl.crosscheck.weights.noise.gradient import GradientSums
from verl.crosscheck.weights.noise.on_worker import LogProbPass, LogProbPasses, WorkerPlace
from verl.protocol import DataProto

SAMPLING = {"temperature": 0.7, "rollout_dtype": "bfloat16", "quantization": None}


def batch_of(lengths, width=8):
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    columns = {name: mask.long() for name in ("responses", "input_ids", "attention_mask", "response_mask")}
    columns["input_ids"] = torch.arange(len(lengths))[:, None].expand(-1, width).contiguous()
    return DataProto.from_dict(
        {**columns, "token_level_scores": mask.float()},
        non_tensors={"uid": np.arange(len(lengths)).astype(object), "other": np.zeros(len(lengths), object)},
    )


def test_each_rank_gets_the_first_rows_of_its_share():
    rows = rows_of_ranks(batch_of([4] * 16), 2, 0.7)
    assert [each.batch["input_ids"][:, 0].tolist() for each in rows] == [[0, 1], [8, 9]]
    assert [list(each.non_tensor_batch) for each in rows] == [["uid"]] * 2
    assert "token_level_scores" not in rows[0].batch and rows[1].meta_info["temperature"] == 0.7


def test_rows_are_bounded_by_tokens(monkeypatch):
    monkeypatch.setattr(module, "MOST_TOKENS", 12)
    assert [len(each) for each in rows_of_ranks(batch_of([2] * 32 + [6] * 32), 2, 1.0)] == [2, 2]
    monkeypatch.setattr(module, "MOST_TOKENS", 1)
    assert [len(each) for each in rows_of_ranks(batch_of([5] * 3), 2, 1.0)] == [1, 1]
    with pytest.raises(ValueError, match="1 rows for 2"):
        rows_of_ranks(batch_of([5]), 2, 1.0)


def passes(plain, noisy, row_tokens):
    columns = [LogProbPass(np.float32(each), np.float32(each) * -0.5) for each in (plain, noisy)]
    return LogProbPasses(np.int64(row_tokens), columns[0], {"train": columns[1], "engine": columns[0]})


def test_log_probs_of_all_ranks_count():
    noise = log_prob_noise([passes([-1, -2, -3], [-1.1, -2, -3], [2, 1]), passes([-4], [-4.3], [1])])
    assert noise["train/logprob_abs_diff_mean"] == pytest.approx(0.1) and noise["train/tokens"] == 4
    assert noise["train/logprob_abs_diff_max"] == pytest.approx(0.3) and noise["train/k3"] > 0
    assert 0.29 < noise["train/logprob_abs_diff_q999"] <= 0.3001
    assert noise["train/entropy_abs_diff_mean"] == pytest.approx(0.05)
    assert noise["engine/logprob_abs_diff_mean"] == 0


def test_gradients_of_all_ranks_count():
    ranks = [
        {"a": GradientSums(3, 3, 0.1, 4, 4, 0.4), "b": GradientSums(0, 0, 0, 0, 0, 0)},
        {"a": GradientSums(1, 1, 0.3, 0, 0, 0)},
    ]
    noise = gradient_noise(total_by_tensor(ranks))
    assert noise["train/grad_rel_diff"] == noise["train/grad_rel_diff/a"] == pytest.approx(math.sqrt(0.1))
    assert noise["train/change_rel_diff/a"] == pytest.approx(math.sqrt(0.1)) and noise["train/grad_norm_rel_diff"] == 0
    assert "train/grad_rel_diff/b" not in noise
    assert gradient_noise({"a": GradientSums(4, 4, 1)}).keys() == {
        "train/grad_rel_diff",
        "train/grad_norm_rel_diff",
        "train/grad_rel_diff/a",
    }


class Workers:
    """Answer each question as they are told."""

    def __init__(self, monkeypatch, why_not=None, error=None):
        self.asked, self._why_not, self._error = [], why_not, error
        monkeypatch.setattr(module, "run_on_all", self.ask)
        monkeypatch.setattr(module, "ask_all", self.ask)
        monkeypatch.setattr(module.ray, "put", lambda rows: rows)

    def ask(self, group, function, *args):
        self.asked.append(function.__name__)
        if self._error and function.__name__ == self._error:
            raise RuntimeError("out of memory")
        return {
            "place": [WorkerPlace(0, 1, self._why_not)],
            "log_prob_passes": [(0, passes([-1, -2], [-1.25, -2], [1, 1]))],
            "gradient_passes": [{"a": GradientSums(4, 4, 1, 1, 1, 0.25)}],
        }[function.__name__]


def taken(probe, step):
    probe.measure(batch_of([2] * 8), step)
    return probe.take()


def test_the_first_step_and_every_few_after_it(monkeypatch):
    workers = Workers(monkeypatch)
    probe = NoiseProbe(None, 3, SAMPLING)
    assert probe.take() == ({}, {"noise": because(ReasonCode.NOISE_NOT_ASKED)})
    measured = [bool(taken(probe, step)[0]) for step in range(7, 14)]
    assert measured == [True, False, False, True, False, False, True]
    assert workers.asked == ["place", "log_prob_passes", "gradient_passes"] * 3
    noise, missing = taken(NoiseProbe(None, 1, SAMPLING), 1)
    assert missing == {} and noise["train/logprob_abs_diff_mean"] == 0.125 and noise["train/change_rel_diff"] == 0.5
    assert noise["seconds"] > 0 and noise["rows_share"] == 0.25
    probe.measure(batch_of([2] * 8), 14)
    assert probe.take()[1] == {"noise": because(ReasonCode.NOISE_OTHER_STEP, every=3)}


def test_off_asks_nobody(monkeypatch):
    workers = Workers(monkeypatch)
    assert taken(NoiseProbe(None, 0, SAMPLING), 1) == ({}, {"noise": because(ReasonCode.NOISE_OFF)})
    assert workers.asked == []


def test_what_cannot_be_measured_has_its_reason(monkeypatch):
    _, missing = taken(NoiseProbe(None, 1, {**SAMPLING, "quantization": "awq"}) if Workers(monkeypatch) else None, 1)
    assert missing == {"noise/engine": because(ReasonCode.NOISE_FORMAT, dtype="bfloat16", quantization="awq")}
    why = because(ReasonCode.NOISE_BACK_END, back_end="Megatron")
    workers = Workers(monkeypatch, why_not=why)
    probe = NoiseProbe(None, 1, SAMPLING)
    assert [taken(probe, step) for step in (1, 2)] == [({}, {"noise": why})] * 2 and workers.asked == ["place"]


def test_an_error_ends_the_measuring_and_not_the_run(monkeypatch):
    workers = Workers(monkeypatch, error="gradient_passes")
    probe = NoiseProbe(None, 1, SAMPLING)
    reason = because(ReasonCode.CHANGE_ERROR, error="RuntimeError: out of memory")
    assert [taken(probe, step) for step in (1, 2)] == [({}, {"noise": reason})] * 2
    assert workers.asked == ["place", "log_prob_passes", "gradient_passes"]
