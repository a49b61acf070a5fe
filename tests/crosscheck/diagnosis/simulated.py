# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Steps of two runs, sampled from known distributions, so that tests know what is true of them.

Each token has a distribution of its own. The rollout engine samples from its version of it, and each engine reports
log-probs with the noise of its precision.
"""

from dataclasses import dataclass, field

import numpy as np

from verl.crosscheck.evidence.step import MASK, REF, ROLLOUT, TRAIN, StepEvidence
from verl.crosscheck.settings import Detail

VOCABULARY = 99
STOP = 1
DTYPES = {1e-5: "float32", 0.002: "float16", 0.015: "bfloat16"}
"""Precision by the noise that logits have in it."""


@dataclass
class World:
    """How a step comes about; the defaults are healthy."""

    rows: int = 128
    longest: int = 8
    sharpness: float = 2.0
    """Standard deviation of the logits: 0.3 is next to uniform, 8 next to certain."""
    temperature: float = 1.0
    noise: float = 1e-5
    """Standard deviation of each engine's logits about the true ones."""
    sampled_at: float = 1.0
    """Factor on the temperature of sampling."""
    top_k: int = 0
    untempered: bool = False
    """Whether the rollout engine reports log-probs at temperature 1."""
    engine_off: float = 0.0
    """Standard deviation of what is wrong with the rollout engine's logits."""
    train_a_off: float = 0.0
    train_b_off: float = 0.0
    cut: float = 0.0
    """Share of responses that lack their stop token."""
    group: int = 4
    """Responses to each prompt."""
    clones: float = 0.0
    """Share of prompts whose responses are all the same."""
    stops_inside: float = 0.0
    """Share of responses with a stop token before their end."""
    tail: tuple[float, float] = (0.0, 1.0)
    """Share of tokens in which the rollout engine's noise is so many times as large."""
    same_training: bool = True
    """Whether both trainings give equal numbers to the last bit."""
    dtype: str = field(init=False)

    def __post_init__(self):
        self.dtype = DTYPES[self.noise]


def log_softmax(logits):
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def draw(log_probs, rng):
    """One token for each distribution, by the Gumbel trick."""
    return (log_probs + rng.gumbel(size=log_probs.shape)).argmax(axis=-1)


def step(world, rng, global_step=1, a_is_sampler=True):
    """Evidence of sampler and taker."""
    lengths = rng.integers(1, world.longest + 1, world.rows).astype(np.int32)
    prompts = np.arange(world.rows) // world.group
    cloned = rng.random(world.rows // world.group + 1)[prompts] < world.clones
    original = np.where(cloned, prompts * world.group, np.arange(world.rows))
    lengths = lengths[original]
    total = int(lengths.sum())
    logits = rng.normal(0, world.sharpness, (total, VOCABULARY))

    at_row = np.repeat(np.arange(world.rows), lengths)
    starts = np.cumsum(lengths) - lengths
    place = np.arange(total) - starts[at_row]
    source = starts[original[at_row]] + place  # the token of which a clone's is a copy
    first = starts[prompts[at_row] * world.group] + place  # what precedes a prompt's first token is the same
    logits = np.where((place == 0)[:, None], logits[np.minimum(first, total - 1)], logits)[source]

    def engine(off, noise=world.noise):
        return logits + rng.normal(0, max(off, 1e-12), logits.shape) + rng.normal(0, noise, logits.shape)

    sampling = engine(world.engine_off)
    share, times = world.tail
    far = rng.random(total) < share
    sampling[far] = logits[far] + times * (sampling[far] - logits[far])
    used = log_softmax(sampling / (world.temperature * world.sampled_at))
    if world.top_k:
        least = np.partition(used, -world.top_k, axis=-1)[:, -world.top_k][:, None]
        used = log_softmax(np.where(used >= least, used, -1e9))
    tokens = draw(used, rng)[source]
    claimed = log_softmax(sampling / (1.0 if world.untempered else world.temperature))
    shared = rng.normal(0, world.noise, logits.shape)
    trainings = [
        log_softmax(
            (engine(off, 1e-12) + (shared if world.same_training else rng.normal(0, world.noise, logits.shape)))
            / world.temperature
        )
        for off in ((world.train_a_off, world.train_b_off) if a_is_sampler else (world.train_b_off, world.train_a_off))
    ]
    at = np.arange(total)
    ids = np.sort(rng.choice(2**62, world.rows, replace=False).astype(np.uint64))
    last = np.where(rng.random(world.rows) < world.cut, 50, STOP)
    last[(lengths == world.longest) & (rng.random(world.rows) < 0.3)] = 50
    rewards = rng.integers(0, 2, world.rows).astype(float)
    spelled = [tuple(tokens[start : start + length]) for start, length in zip(starts, lengths, strict=True)]
    named = {spelling: number for number, spelling in enumerate(dict.fromkeys(spelled))}
    groups = {
        "prompt_id": prompts.astype(np.uint64),
        "response_id": np.asarray([named[each] for each in spelled], np.uint64),
        "first_token": tokens[starts],
        "first_rollout": claimed[np.arange(total), tokens][starts].astype(np.float64),
        "stops_inside": (rng.random(world.rows) < world.stops_inside).astype(np.int32),
    }
    found = []
    for mode, training in zip(("ckpt", "rollout"), trainings, strict=True):
        log_probs = {ROLLOUT: claimed[at, tokens], TRAIN: training[at, tokens], REF: log_softmax(logits)[at, tokens]}
        found.append(
            evidence(
                mode,
                ids,
                lengths,
                {name: column.astype(np.float32) for name, column in log_probs.items()},
                global_step=global_step,
                entropies=-(np.exp(training) * training).sum(axis=-1),
                rows={"reward": rewards, "last_token": last, **groups},
                sampling={
                    "rollout_dtype": world.dtype,
                    "train_dtype": "float32",
                    "moe": False,
                    "temperature": world.temperature,
                    "top_p": 1.0,
                    "top_k": -1,
                    "stop_token_ids": [STOP],
                    "max_tokens": world.longest,
                },
            )
        )
    return tuple(found)


def evidence(mode, ids, lengths, log_probs, *, mask=None, entropies=None, global_step=1, rows=None, **more):
    """Evidence of one run, with sums of rows that fit its tokens."""
    lengths = np.asarray(lengths, np.int32)
    mask = np.ones(int(lengths.sum()), bool) if mask is None else np.asarray(mask, bool)
    at_row = np.repeat(np.arange(len(lengths)), lengths)

    def sums(values):
        return np.bincount(at_row, np.where(mask, values, 0.0), minlength=len(lengths))

    advantages = np.where(np.arange(len(lengths)) % 2, 1.0, -1.0)
    counts = sums(1.0)
    own = {
        "mask_tokens": counts.astype(np.int32),
        **{f"{name}_sum": sums(column) for name, column in log_probs.items() if len(column) == len(mask)},
        "reward": np.zeros(len(lengths)),
        "advantage_sum": advantages * counts,
        "advantage_abs_sum": counts,
        "last_token": np.full(len(lengths), STOP),
    }
    if entropies is not None:
        own["entropy_sum"] = sums(entropies)
    content = {
        "mode": mode,
        "run_id": mode,
        "global_step": global_step,
        "update_index": global_step - 1,
        "detail": Detail.TOKENS,
        "batch_rows": len(lengths),
        "row_ids": np.asarray(ids, np.uint64),
        "lengths": lengths,
        "rows": own | (rows or {}),
        "tokens": {**{name: np.asarray(column, np.float32) for name, column in log_probs.items()}, MASK: mask},
        "metrics": {"actor/grad_norm": 1.0, "actor/pg_loss": 0.01, "actor/lr": 1e-6, "reward_mean": 0.5},
        "sampling": {"rollout_dtype": "float32", "train_dtype": "float32", "moe": False},
        "weights": {"sent/x": "1", "held/x": "1"},
    }
    return StepEvidence(**(content | more))
