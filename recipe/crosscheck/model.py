# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Make `recipe/crosscheck/model/`: a Qwen2 of 87 thousand parameters over single characters that adds, badly.

    python -m recipe.crosscheck.model [--out DIR] [--steps N]

The result is committed, so nobody has to run this. It is supervised training on two-digit sums, stopped while a
sampled answer is right in about four cases out of ten: reinforcement learning then has something to gain, and a fault
shows as a fall. One thread and fixed seeds make it repeatable on one machine; about a minute.
"""

from __future__ import annotations

import argparse
import logging
import random
from pathlib import Path

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from recipe.crosscheck.data import MODEL_DIR, Problem, draw

logger = logging.getLogger(__name__)

PAD_ID, EOS_ID = 0, 1
_CHAT_TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}{% if add_generation_prompt %}={% endif %}"
_BATCH, _WIDTH = 128, 12
"""Rows of a supervised step, and tokens of a row: `99+99=198` and the end mark fit."""
_PEAK_LR = 4e-3


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token for each printable ASCII character, after the three special ones."""
    characters = [chr(code) for code in range(32, 127)] + ["\n"]
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *characters])}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106  a token, not a secret
    core.pre_tokenizer = pre_tokenizers.Split(Regex("."), behavior="isolated")
    core.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        eos_token="<eos>",  # noqa: S106
        pad_token="<pad>",  # noqa: S106
        unk_token="<unk>",  # noqa: S106
    )
    tokenizer.chat_template = _CHAT_TEMPLATE
    return tokenizer


def build_model(vocab_size: int) -> Qwen2ForCausalLM:
    """An untrained model. Heads of 32, the smallest that vLLM's CPU build accepts."""
    config = Qwen2Config(
        vocab_size=vocab_size,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=256,
        pad_token_id=PAD_ID,
        eos_token_id=EOS_ID,
        bos_token_id=None,
        tie_word_embeddings=False,
    )
    return Qwen2ForCausalLM(config)


def encode(tokenizer: PreTrainedTokenizerFast, problem: Problem) -> tuple[list[int], list[int]]:
    """Token ids [`_WIDTH`] of question and answer, and labels of the same shape that ask for the answer alone."""
    asked = tokenizer(problem.question + "=")["input_ids"]
    answered = [*tokenizer(problem.answer)["input_ids"], EOS_ID]
    fill = _WIDTH - len(asked) - len(answered)
    return asked + answered + [PAD_ID] * fill, [-100] * len(asked) + answered + [-100] * fill


def batch(tokenizer: PreTrainedTokenizerFast, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Token ids and labels, each [`_BATCH`, `_WIDTH`]."""
    rows = [encode(tokenizer, draw(rng)) for _ in range(_BATCH)]
    return torch.tensor([ids for ids, _ in rows]), torch.tensor([labels for _, labels in rows])


@torch.no_grad()
def sampled_accuracy(model: Qwen2ForCausalLM, tokenizer: PreTrainedTokenizerFast, problems: list[Problem]) -> float:
    """Share of `problems` answered exactly by one sample at temperature 1."""
    model.eval()
    right = 0
    for problem in problems:
        asked = tokenizer(problem.question + "=", return_tensors="pt")["input_ids"]
        out = model.generate(asked, max_new_tokens=5, do_sample=True, temperature=1.0, pad_token_id=PAD_ID)
        right += tokenizer.decode(out[0, asked.shape[1] :], skip_special_tokens=True) == problem.answer
    model.train()
    return right / len(problems)


def train(steps: int) -> tuple[Qwen2ForCausalLM, PreTrainedTokenizerFast]:
    """Model and tokenizer after `steps` supervised steps."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = random.Random(0)  # noqa: S311  exercises, not secrets
    tokenizer = build_tokenizer()
    model = build_model(len(tokenizer)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=_PEAK_LR, weight_decay=0.0, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, _PEAK_LR, total_steps=steps, pct_start=0.1)
    for step in range(1, steps + 1):
        ids, labels = batch(tokenizer, rng)
        loss = model(input_ids=ids, attention_mask=(ids != PAD_ID).long(), labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if step % 100 == 0:
            logger.info("step %d of %d, loss %.3f", step, steps, loss.item())
    return model, tokenizer


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the demo's tiny model.")
    parser.add_argument("--out", type=Path, default=MODEL_DIR, help="folder to write (default: the committed one)")
    parser.add_argument("--steps", type=int, default=1500, help="supervised steps (default: 1500)")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    model, tokenizer = train(args.steps)
    rng = random.Random(1)  # noqa: S311
    accuracy = sampled_accuracy(model, tokenizer, [draw(rng) for _ in range(200)])
    logger.info("sampled accuracy %.0f %%", 100 * accuracy)
    model.save_pretrained(args.out, safe_serialization=True)
    tokenizer.save_pretrained(args.out)


if __name__ == "__main__":
    main()
