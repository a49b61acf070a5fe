# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Random models for tests of the hf rollout."""

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM


def tiny_qwen2(vocab_size=37, seed=0, **overrides):
    """A 2-layer model with grouped-query attention, sharp enough that tokens differ."""
    torch.manual_seed(seed)
    kwargs = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "initializer_range": 0.3,
    }
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=vocab_size, **{**kwargs, **overrides})).eval()


def save_with_tokenizer(folder):
    """Save a tiny model and the demo's tokenizer into a folder; return the folder."""
    from recipe.crosscheck.model import build_tokenizer

    tokenizer = build_tokenizer()
    tiny_qwen2(vocab_size=len(tokenizer)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
