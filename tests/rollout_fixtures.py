# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Small batches and a rollout manager for tests of what stands between trainer and engine."""

import numpy as np
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

from verl.protocol import DataProto


def column(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def make_prompts(texts, *, step=1, uid=None, **meta_info):
    """A batch as the trainer gives it to `generate_sequences`: B rows of chat prompts."""
    rows = column([[{"role": "user", "content": text}] for text in texts])
    uids = column(uid or [f"uid-{id(rows)}-{i}" for i in range(len(texts))])
    return DataProto(
        batch=TensorDict({"dummy_tensor": torch.zeros(len(texts), 1, dtype=torch.uint8)}, batch_size=[len(texts)]),
        non_tensor_batch={"raw_prompt": rows, "uid": uids},
        meta_info={"global_steps": step, **meta_info},
    )


class FakeManager:
    """Answers with tokens that depend on the prompt and on how often it was asked; counts its calls.

    Args:
        echo: also return the columns it was given, as upstream's agent loop does with a colocated reward model.
    """

    def __init__(self, *, echo=False):
        self.calls = 0
        self._echo = echo

    def generate_sequences(self, prompts):
        self.calls += 1
        texts = [row[0]["content"] for row in prompts.non_tensor_batch["raw_prompt"]]
        responses = torch.tensor([[len(t), self.calls, sum(map(ord, t))] for t in texts], dtype=torch.int64)
        arrays = {"multi_modal_inputs": column([{} for _ in texts])}
        if self._echo:
            arrays.update({name: values.copy() for name, values in prompts.non_tensor_batch.items()})
        return DataProto(
            batch=TensorDict(
                {"responses": responses, "rollout_log_probs": -torch.rand(len(texts), 3)}, batch_size=[len(texts)]
            ),
            non_tensor_batch=arrays,
            meta_info={"timing": {"agent_loop/slowest": 1.0}, "reward_extra_keys": []},
        )


def make_config(directory, share_data=None, **rollout):
    """The parts of a run's configuration that the hooks read."""
    return OmegaConf.create(
        {
            "trainer": {
                "experiment_name": "exp",
                "project_name": "proj",
                "share_data": share_data,
                "share_data_dir": str(directory),
                "share_data_timeout_s": 60,
                "nnodes": 1,
                "device": "cuda",
                "n_gpus_per_node": 2,
            },
            "data": {"train_batch_size": 8, "gen_batch_size": None},
            "actor_rollout_ref": {
                "rollout": {"n": 2, "skip_rollout": False, "skip_dump_dir": str(directory), **rollout},
                "actor": {
                    "strategy": "fsdp2",
                    "checkpoint": {"save_contents": ["model"], "load_contents": ["model"], "async_save": False},
                },
            },
        }
    )


def exchanged(directory):
    """Names of the artefacts in an exchange directory, staged ones too: all but the sessions' folder."""
    return sorted(path.name for path in directory.iterdir() if path.name != "sessions")


def assert_same_batch(one, other, but=()):
    """Equal keys in equal order, equal tensors bit for bit, equal arrays."""
    assert list(one.batch.keys()) == list(other.batch.keys())
    for key, value in one.batch.items():
        assert torch.equal(value, other.batch[key]), key
        assert value.dtype == other.batch[key].dtype, key
    assert list(one.non_tensor_batch) == list(other.non_tensor_batch)
    for key, value in one.non_tensor_batch.items():
        if key not in but:
            assert value.tolist() == other.non_tensor_batch[key].tolist(), key
