# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Servers without Ray, of a tiny model."""

import pytest
import torch
from omegaconf import OmegaConf

from verl.workers.config import RolloutConfig
from verl.workers.rollout.hf_server.server import HFServer


@pytest.fixture(scope="module")
def model_config(model_folder):
    return OmegaConf.create({"path": str(model_folder), "override_config": {"attn_implementation": "sdpa"}})


@pytest.fixture
def make_server(model_config):
    before = torch.get_num_threads()

    def make(**kwargs):
        options = {"name": "hf", "dtype": "float32", "load_format": "auto", "prompt_length": 16, "response_length": 16}
        options |= {"max_num_seqs": 8, "tensor_model_parallel_size": 1, "engine_kwargs": {"hf": {"seed": 5}}}
        return HFServer(RolloutConfig(**{**options, **kwargs}), model_config, replica_rank=0)

    yield make
    torch.set_num_threads(before)
