# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Noise of real training workers, of both kinds, on one and two ranks: it is predicted and leaves no trace."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_models import save_with_tokenizer

from verl.crosscheck.run.observe.noise import gradient_noise, log_prob_noise, total_by_tensor

pytestmark = pytest.mark.slow  # about 15 s a process

RANK = Path(__file__).with_name("rank.py")
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_with_tokenizer(tmp_path_factory.mktemp("model"))


def play(model_folder, out, kind, number_format, *options, ranks=1):
    """Run ranks until they have trained; what rank 0 wrote."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    arguments = [sys.executable, str(RANK), str(model_folder), kind, number_format, str(out), *options]
    processes = []
    for rank in range(ranks):
        own = {name: str(value) for name, value in {**common, "RANK": rank, "LOCAL_RANK": rank}.items()}
        environment = {**os.environ, **own, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
        processes.append(
            subprocess.Popen(arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * ranks, outputs[0][-3000:]
    return torch.load(out, weights_only=False)


def predictions(everyone):
    passes = [own for (_, own), _, _ in everyone if own is not None]
    return {**log_prob_noise(passes), **gradient_noise(total_by_tensor(sums for _, sums, _ in everyone))}


ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
CHECKPOINTED = ("actor_rollout_ref.model.enable_gradient_checkpointing=True",)
EIGHT_ROWS = (
    f"{ACTOR}.use_dynamic_bsz=False",
    f"{ACTOR}.ppo_micro_batch_size_per_gpu=8",
    f"{ROLLOUT}.log_prob_use_dynamic_bsz=False",
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu=8",
)


@pytest.mark.parametrize(
    ("kind", "number_format", "ranks", "options"),
    [
        ("legacy", "bf16", 2, CHECKPOINTED),
        ("new", "fp32", 2, EIGHT_ROWS),
        pytest.param("legacy", "fp32", 1, (), marks=pytest.mark.extended),
        pytest.param("new", "bf16", 1, (), marks=pytest.mark.extended),
    ],
)
def test_noise_is_predicted_and_leaves_no_trace(model_folder, tmp_path, kind, number_format, ranks, options):
    measured = play(model_folder, tmp_path / "with", kind, number_format, *options, ranks=ranks)
    plain = play(model_folder, tmp_path / "without", kind, number_format, "without", *options, ranks=ranks)
    assert measured["place"].dp_size == ranks and measured["place"].why_not is None
    assert measured["state"].keys() == plain["state"].keys()
    assert [name for name, value in plain["state"].items() if not torch.equal(value, measured["state"][name])] == []

    first, third = (predictions(everyone) for everyone in measured["answers"])
    for _, _, kept in measured["answers"][0] + measured["answers"][1]:
        assert all(kept.values()), [name for name, same in kept.items() if not same]
    scale = 1e-6 if number_format == "fp32" else 2e-2
    for noise in (first, third):
        assert noise["train/tokens"] == noise["engine/tokens"] > 20 * ranks
        assert scale / 10 < noise["train/logprob_abs_diff_mean"] < scale * 3
        assert 2e-3 < noise["engine/logprob_abs_diff_mean"] < 6e-2
        assert scale / 30 < noise["train/grad_rel_diff"] < scale * 30
        assert 0 < noise["train/change_rel_diff"] < 1.4
        tensors = {name for name in plain["state"] if name.endswith((".weight", ".bias"))}
        assert {f"train/change_rel_diff/{name}" for name in tensors} == {
            n for n in noise if n.count("/") == 2 and "change" in n
        }
