# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A run's numbers, so small that anybody can compute what they must be: weights are a digest, and each step hashes.

Every number depends on all numbers before it, so one artefact that is lost, doubled, mixed up or half read changes all
that follow, and `sequence` says without any exchange what each artefact of an undisturbed session holds.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

TOKENS = 4
SHARDS = 2
SHARD_BYTES = 6000
FIRST_WEIGHTS = hashlib.blake2b(b"initial weights", digest_size=16).hexdigest()

Answers = list[list[int]]


def mix(*parts: object) -> str:
    """Digest of the parts, in order."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        text = str(part).encode()
        state.update(len(text).to_bytes(4, "little") + text)
    return state.hexdigest()


def questions(step: int, kind: str, rows: int) -> list[str]:
    """Texts of the prompts of a call."""
    return [f"{kind} question {row} of step {0 if kind == 'validation' else step}" for row in range(rows)]


def answers(weights: str, texts: Sequence[str]) -> Answers:
    """What the engine generates: `TOKENS` tokens a row, a function of weights and prompt."""
    rows = []
    for text in texts:
        content = mix("answer", weights, text)
        rows.append([int(content[4 * token : 4 * token + 4], 16) for token in range(TOKENS)])
    return rows


def train(weights: str, taken: Answers, step: int, training: str) -> str:
    """Weights after an update; `training` tells the healthy training phase from the suspect one."""
    return mix("update", weights, taken, step, training)


# ---------------------------------------------------------------- checkpoints


def shard_names() -> list[str]:
    ranks = [f"model_world_size_{SHARDS}_rank_{rank}.pt" for rank in range(SHARDS)]
    return [*ranks, "huggingface/config.json"]


def shard(weights: str, name: str) -> bytes:
    """Content of a file of a checkpoint, all of which depends on the weights."""
    if name.endswith(".json"):
        return json.dumps({"weights": weights}).encode()
    return hashlib.shake_128(f"{weights} {name}".encode()).digest(SHARD_BYTES)


def write_checkpoint(folder: Path, weights: str, point: Callable[[str, Path], object]) -> None:
    """As upstream's workers do: files one by one, no flush, no care.

    Args:
        point: called before each thing that is done.
    """
    for name in shard_names():
        path, content = folder / name, shard(weights, name)
        if not path.parent.is_dir():
            point("mkdir", path.parent)
            path.parent.mkdir()
        point("open", path)
        with path.open("wb", buffering=0) as file:
            half = len(content) // 2
            file.write(content[:half])
            point("second half", path)
            file.write(content[half:])


def read_checkpoint(folder: Path) -> str:
    """Weights of a checkpoint; an AssertionError if any byte of it is not as it was written."""
    weights: str = json.loads((folder / "huggingface/config.json").read_bytes())["weights"]
    for name in shard_names():
        assert (folder / name).read_bytes() == shard(weights, name), f"{folder / name} is not as it was written"
    return weights


# ---------------------------------------------------------------- what an undisturbed session holds


@dataclass(frozen=True)
class Course:
    """How long a run is and how often it does what; as upstream's `trainer` section."""

    steps: int
    rows: int = 2
    save_freq: int = 2
    test_freq: int = -1
    val_before_train: bool = True

    def saves(self, step: int) -> bool:
        return self.save_freq > 0 and (step == self.steps or step % self.save_freq == 0)

    def validates(self, step: int) -> bool:
        """As upstream's loop: 0 is before the first step."""
        if step == 0:
            return self.val_before_train and self.test_freq > 0
        return self.test_freq > 0 and (step == self.steps or step % self.test_freq == 0)


@dataclass(frozen=True)
class Rollout:
    """What the call of an index asks and answers."""

    kind: str
    step: int
    answers: Answers


@dataclass(frozen=True)
class Artefacts:
    """All artefacts of a session, by index, and the weights at its end."""

    rollouts: list[Rollout]
    checkpoints: list[str]

    @property
    def weights(self) -> str:
        return self.checkpoints[-1]


def sequence(course: Course) -> Artefacts:
    """What two undisturbed runs of a course exchange."""
    weights = FIRST_WEIGHTS
    rollouts: list[Rollout] = []
    checkpoints: list[str] = []
    for kind, step in _calls(course):
        made = Rollout(kind, step, answers(weights, questions(step, kind, course.rows)))
        rollouts.append(made)
        if kind == "training":
            weights = train(weights, made.answers, step, "healthy")
            checkpoints.append(weights)
    return Artefacts(rollouts, checkpoints)


def _calls(course: Course) -> Iterator[tuple[str, int]]:
    for step in range(course.steps + 1):
        if step:
            yield "training", step
        if course.validates(step):
            yield "validation", step


def nonce() -> str:
    """Something no two generations share, as sampling on real hardware: tells a rollout from its repetition."""
    return os.urandom(8).hex()
