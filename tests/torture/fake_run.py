# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One run with a fake trainer: upstream's order of events, real files, the real exchange, and no Ray.

`torture.points` starts one by hand.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict

from torture import toy
from torture.toy import Course
from verl.crosscheck.clock import Clock
from verl.crosscheck.run import participation, resuming
from verl.crosscheck.run.checkpoints import actor_about
from verl.crosscheck.run.startup import prepare
from verl.protocol import DataProto
from verl.utils.share_data import ShareDataTest

TRACKER = "latest_checkpointed_iteration.txt"
STATE = "state.json"
OUTCOME = "outcome.json"
"""In a run's own folder: how it ended."""


class Disturbance:
    """What happens to a run besides its work; this one does nothing. `torture.points` has more."""

    def at(self, step: int) -> None:
        """The trainer begins a step."""

    def point(self, phase: str, operation: str, path: Path) -> None:
        """The trainer is about to do something on a disk that the exchange does not see."""

    def doing(self, what: str, step: int) -> None:
        """The trainer begins a part of a step: `generate`, `train`, `save`, `load`, `validate`."""


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Args:
        root: the exchange directory.
        own: folder of the run's own checkpoints.
        settings: further entries of the `trainer` section.
    """

    mode: str
    root: Path
    own: Path
    course: Course
    settings: dict[str, Any] = field(default_factory=dict)

    def config(self) -> Any:
        """The parts of a run's configuration that the exchange reads."""
        course = self.course
        trainer = {
            "experiment_name": "torture",
            "project_name": "torture",
            "share_data": self.mode,
            "share_data_dir": str(self.root),
            "share_data_timeout_s": 7200,
            "default_local_dir": str(self.own),
            "resume_mode": "auto",
            "total_training_steps": course.steps,
            "save_freq": course.save_freq,
            "test_freq": course.test_freq,
            "val_before_train": course.val_before_train and course.test_freq > 0,
            "device": "cpu",
            "nnodes": 1,
            "n_gpus_per_node": toy.SHARDS,
            **self.settings,
        }
        actor = {"strategy": "fsdp2", "checkpoint": {"save_contents": ["model"], "load_contents": ["model"]}}
        return OmegaConf.create(
            {"trainer": trainer, "data": {"train_batch_size": 2}, "actor_rollout_ref": {"actor": actor}}
        )


@dataclass
class TrainerState:
    """What a run knows, all of it in its own checkpoint.

    Args:
        took: digest over all rollouts that were trained on, each with what makes it unlike a repetition of itself.
    """

    step: int = 0
    weights: str = toy.FIRST_WEIGHTS
    took: str = ""


class FakeEngine:
    """A rollout manager: answers with the weights that were pushed to it."""

    def __init__(self, weights: str, disturbance: Disturbance) -> None:
        self.weights, self._disturbance = weights, disturbance

    def generate_sequences(self, prompts: DataProto) -> DataProto:
        self._disturbance.doing("generate", prompts.meta_info["global_steps"])
        texts = [row[0]["content"] for row in prompts.non_tensor_batch["raw_prompt"]]
        responses = torch.tensor(toy.answers(self.weights, texts), dtype=torch.int64)
        nonces = column([toy.nonce() for _ in texts])
        return DataProto(
            batch=TensorDict({"responses": responses}, batch_size=[len(texts)]),
            non_tensor_batch={"nonce": nonces},
            meta_info={"timing": {}},
        )


class FakeTrainer:
    """Upstream's loop, step by step: generate, train, exchange, save, push, validate."""

    def __init__(self, plan: RunPlan, config: Any, share: ShareDataTest, disturbance: Disturbance) -> None:
        self._plan, self._config, self._share, self._disturbance = plan, config, share, disturbance
        self.state = TrainerState()
        share.tell_facts({"model": {"shards": toy.SHARDS}, "course": asdict(plan.course)})
        self._engine = FakeEngine(self.state.weights, disturbance)
        share.wrap_generate_sequences(plan.mode, self._engine)

    def fit(self) -> TrainerState:
        course = self._plan.course
        self._resume()
        self._share.begin_at(self.state.step)
        self._engine.weights = self.state.weights
        if course.val_before_train and course.test_freq > 0:
            self._generate("validation")
        for step in range(self.state.step + 1, course.steps + 1):
            self.state.step = step
            self._disturbance.at(step)
            self._step(step)
        return self.state

    def _step(self, step: int) -> None:
        course, state = self._plan.course, self.state
        batch = self._generate("training")
        state.took = toy.mix(state.took, batch.non_tensor_batch["nonce"].tolist())
        training = "healthy" if self._plan.mode == "rollout" else "suspect"
        self._disturbance.doing("train", step)
        state.weights = toy.train(state.weights, batch.batch["responses"].tolist(), step, training)
        about = actor_about(self._config, batch, step)
        self._share.after_update_policy(self._plan.mode, self._load, self._save, about)
        if course.saves(step):
            self._save_own(step)
        self._engine.weights = state.weights
        if course.validates(step):
            self._generate("validation")

    def _generate(self, kind: str) -> DataProto:
        """One call; the answer must be what the own engine says, since both runs have the same weights."""
        if kind == "validation":
            self._disturbance.doing("validate", self.state.step)
        texts = toy.questions(self.state.step, kind, self._plan.course.rows)
        output = self._engine.generate_sequences(prompts(texts, self.state.step, kind))
        expected = toy.answers(self._engine.weights, texts)
        assert output.batch["responses"].tolist() == expected, f"step {self.state.step}: the {kind} is another one"
        return output

    # ---------------------------------------------------------------- checkpoints

    def _save(self, path: str) -> None:
        self._disturbance.doing("save", self.state.step)
        toy.write_checkpoint(Path(path), self.state.weights, self._point("fill ckpt"))

    def _load(self, path: str) -> None:
        self._disturbance.doing("load", self.state.step)
        self.state.weights = toy.read_checkpoint(Path(path))

    def _save_own(self, step: int) -> None:
        """The mark comes first: a kill in between must not leave a checkpoint that is tracked and has none."""
        folder, point = resuming.own_checkpoint(self._config, step), self._point("own checkpoint")
        self._share.mark_checkpoint(folder)
        point("write", folder / STATE)
        (folder / STATE).write_text(json.dumps(asdict(self.state)))
        point("track", self._plan.own / TRACKER)
        stage = self._plan.own / f"{TRACKER}.new"
        stage.write_text(str(step))
        stage.replace(self._plan.own / TRACKER)  # upstream's is torn by a kill at this moment, which is no news
        point("done", folder)

    def _resume(self) -> None:
        try:
            step = int((self._plan.own / TRACKER).read_text())
        except FileNotFoundError:
            return
        self.state = TrainerState(**json.loads((self._plan.own / f"global_step_{step}" / STATE).read_text()))

    def _point(self, phase: str) -> Callable[[str, Path], None]:
        return lambda operation, path: self._disturbance.point(phase, operation, path)


def prompts(texts: list[str], step: int, kind: str) -> DataProto:
    """A batch as the trainer gives it to `generate_sequences`: B rows of chat prompts."""
    rows = column([[{"role": "user", "content": text}] for text in texts])
    meta_info: dict[str, Any] = {"global_steps": step}
    if kind == "validation":
        meta_info |= {"validate": True, "do_sample": False}
    return DataProto(batch=None, non_tensor_batch={"raw_prompt": rows}, meta_info=meta_info)


def column(values: list[Any]) -> npt.NDArray[np.object_]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def run(plan: RunPlan, disturbance: Disturbance | None = None, clock: Clock | None = None) -> TrainerState:
    """A whole run, from its configuration to its end, as `main_ppo` and the trainer make it.

    Args:
        clock: the time that waits go by; without one the main program takes part, as in a real run, and with one the
            trainer does all of it.
    """
    disturbance = disturbance or Disturbance()
    plan.own.mkdir(parents=True, exist_ok=True)
    config = plan.config()
    if clock is None:
        with participation.registered_run(config, prepare(config)):
            return _train(plan, config, ShareDataTest(config), disturbance)
    return _train(plan, config, ShareDataTest(config, clock), disturbance)


def _train(plan: RunPlan, config: Any, share: ShareDataTest, disturbance: Disturbance) -> TrainerState:
    """As upstream's trainer with this fork's hooks: the first word on the end is the trainer's."""
    trainer = FakeTrainer(plan, config, share, disturbance)
    try:
        state = trainer.fit()
    except BaseException as e:
        share.end(e)
        raise
    share.end(None)
    return state
