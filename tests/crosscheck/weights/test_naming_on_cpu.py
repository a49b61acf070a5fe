# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Portable names are those of Hugging Face and PEFT."""

from typing import ClassVar

import pytest
import torch
from peft import IA3Config, LoraConfig, get_peft_model, get_peft_model_state_dict
from torch import nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from verl.crosscheck.weights.naming import PortableNames, UnsupportedError, clean
from verl.crosscheck.weights.tensors import local_tensors


@pytest.fixture
def model():
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=11,
            hidden_size=8,
            intermediate_size=6,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            tie_word_embeddings=False,
        )
    )


def test_wrappers_leave_no_trace():
    assert clean("_fsdp_wrapped_module.model._checkpoint_wrapped_module._orig_mod.w") == "model.w"


def test_a_plain_model_has_its_own_names(model):
    assert [held.name for held in local_tensors(model)] == list(model.state_dict())


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modules_to_save": ["lm_head"]},
        {"use_dora": True},
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"bias": "all"},
    ],
    ids=str,
)
def test_adapters_have_the_names_that_peft_saves(model, options):
    before = model.state_dict()
    base = {name: value.clone() for name, value in before.items()}
    peft = get_peft_model(model, LoraConfig(**{"r": 2, "target_modules": ["q_proj", "up_proj"], **options}))
    held = {each.name: each for each in local_tensors(peft)}
    saved = get_peft_model_state_dict(peft, save_embedding_layers=False)
    adapters = {name for name in held if held[name].kind == "adapter"}
    biases = {name for name in held if held[name].kind == "parameter"}
    assert adapters == {name for name in saved if "lora_" in name or name.endswith("lm_head.weight")}
    assert biases == ({name for name in base if name.endswith("bias")} if "bias" in options else set())
    for name in adapters:
        assert torch.equal(held[name].local.view(held[name].shape), saved[name])
    bases = {name: held[name].local.view(held[name].shape) for name in held if held[name].kind == "base"}
    assert bases.keys() | biases == base.keys()
    assert all(torch.equal(bases[name], base[name]) for name in bases)


def test_other_adapters_are_refused_by_name(model):
    with pytest.raises(UnsupportedError, match="kind IA3"):
        PortableNames(get_peft_model(model, IA3Config(target_modules=["k_proj"], feedforward_modules=[])))
    two = get_peft_model(model, LoraConfig(target_modules=["q_proj"]))
    two.add_adapter("second", LoraConfig(target_modules=["q_proj"]))
    with pytest.raises(UnsupportedError, match=r"several PEFT adapters \(default, second\)"):
        PortableNames(two)


class Multimodal(nn.Module):
    """Names inside differ from those of its checkpoints, as in transformers' models for images and text."""

    _checkpoint_conversion_mapping: ClassVar = {
        "^visual": "model.visual",
        r"^model(?!\.(language_model|visual))": "model.language_model",
    }

    def __init__(self):
        super().__init__()
        self.model = nn.Module()
        self.model.visual = nn.Linear(2, 2, bias=False)
        self.model.language_model = nn.Linear(2, 2, bias=False)
        self.lm_head = nn.Linear(2, 2, bias=False)


def test_names_of_checkpoints_where_the_module_has_others():
    assert [held.name for held in local_tensors(Multimodal())] == ["visual.weight", "model.weight", "lm_head.weight"]


def test_names_of_experts_are_just_names():
    model = nn.Module()
    model.experts = nn.ModuleList(nn.Linear(2, 2, bias=False) for _ in range(3))
    assert [held.name for held in local_tensors(model)] == [f"experts.{i}.weight" for i in range(3)]


class Odd(nn.Parameter):
    """As libraries for quantised weights have them."""


def test_unknown_kinds_of_parameters_are_refused_by_name():
    model = nn.Linear(2, 2, bias=False)
    model.weight = Odd(torch.zeros(2, 2))
    with pytest.raises(UnsupportedError, match="weight is a Odd"):
        local_tensors(model)
    with pytest.raises(UnsupportedError, match="weight has no values"):
        local_tensors(nn.Linear(2, 2, bias=False, device="meta"))
    model.weight = nn.Parameter(torch.zeros(2, 3).t())
    with pytest.raises(UnsupportedError, match="weight does not lie in one piece"):
        local_tensors(model)
