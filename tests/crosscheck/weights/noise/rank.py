# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A real training worker without Ray, one of several ranks: predicts noise, trains, and says what became of it.

python rank.py MODEL KIND FORMAT OUT [NAME=VALUE ...]     with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT

Writes into OUT what rank 0 knows: answers of the noise functions, and weights and moments after an update.
"""

import importlib
import sys
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from verl.crosscheck.weights.noise.on_worker import gradient_passes, log_prob_passes, place
from verl.crosscheck.weights.noise.rounding import Roundoff
from verl.protocol import DataProto
from verl.utils import tensordict_utils
from verl.workers.utils.padding import left_right_2_no_padding

KINDS = {
    "legacy": ("verl.workers.fsdp_workers", "AsyncActorRolloutRefWorker"),
    "new": ("verl.workers.engine_workers", "ActorRolloutRefWorker"),
}
ACTOR = "actor_rollout_ref.actor"
FORMATS = {
    "fp32": [],
    "autocast": [f"{ACTOR}.fsdp_config.dtype=bfloat16"],
    "bf16": [
        f"{ACTOR}.fsdp_config.dtype=bfloat16",
        f"{ACTOR}.fsdp_config.mixed_precision.param_dtype=bf16",
    ],
}
ROWS, PROMPT, RESPONSE = 16, 4, 12
TEMPERATURE = 1.0


def configure(model, overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(
            "ppo_cpu_trainer",
            overrides=[
                f"actor_rollout_ref.model.path={model}",
                f"{ACTOR}.optim.lr=1e-3",
                f"{ACTOR}.ppo_mini_batch_size={ROWS}",
                *overrides,
            ],
        ).actor_rollout_ref
    OmegaConf.resolve(config)
    return config


def rows_of(rank, vocabulary):
    """Rows of one rank; responses of unlike lengths, padded as upstream pads."""
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(3, vocabulary, (ROWS, PROMPT + RESPONSE), generator=generator)
    lengths = torch.randint(2, RESPONSE + 1, (ROWS,), generator=generator)
    mask = torch.arange(RESPONSE) < lengths[:, None]
    attention = torch.cat([torch.ones(ROWS, PROMPT, dtype=torch.long), mask.long()], 1)
    advantages = torch.randn(ROWS, 1, generator=generator) * mask
    return DataProto.from_dict(
        {
            "prompts": ids[:, :PROMPT],
            "responses": ids[:, PROMPT:],
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": torch.clip(attention.cumsum(1) - 1, min=0),
            "response_mask": mask.long(),
            "old_log_probs": torch.full((ROWS, RESPONSE), -1.0),
            "advantages": advantages,
        },
        meta_info={"temperature": TEMPERATURE},
    )


@dataclass
class Rank:
    kind: str
    config: object
    worker: object = field(init=False)

    def __post_init__(self):
        module, name = KINDS[self.kind]
        self.worker = getattr(importlib.import_module(module), name)(config=self.config, role="actor")
        self.worker.init_model()

    @property
    def module(self):
        return self.worker.actor_module_fsdp if self.kind == "legacy" else self.worker.actor.engine.module

    @property
    def optimizer(self):
        return self.worker.actor_optimizer if self.kind == "legacy" else self.worker.actor.engine.optimizer

    def update(self, rows):
        rows = DataProto(rows.batch.clone(), {}, dict(rows.meta_info))
        if self.kind == "legacy":
            rows.meta_info["global_token_num"] = [1] * ROWS
            self.worker.update_actor(rows)
            return
        data = left_right_2_no_padding(rows.to_tensordict())
        size = ROWS * dist.get_world_size()
        tensordict_utils.assign_non_tensor(
            data,
            calculate_entropy=False,
            global_batch_size=size,
            mini_batch_size=size,
            epochs=1,
            seed=42,
            dataloader_kwargs={"shuffle": False},
        )
        self.worker.update_actor(data)

    def state(self):
        """Weights and moments of this rank, by name; modes and gradients."""
        found = {}
        for name, parameter in self.module.named_parameters():
            found[name] = local(parameter)
            for key, value in self.optimizer.state.get(parameter, {}).items():
                found[f"{name}/{key}"] = local(value) if isinstance(value, torch.Tensor) else torch.tensor(value)
            found[f"{name}/grad"] = torch.tensor(parameter.grad is None)
        found["training"] = torch.tensor([module.training for module in self.module.modules()])
        found["random"] = torch.get_rng_state()
        return found


def local(tensor):
    return (tensor.to_local() if hasattr(tensor, "to_local") else tensor).detach().clone()


def main():
    model, kind, number_format, out, *options = sys.argv[1:]
    measures = "without" not in options
    torch.set_num_threads(1)
    overrides = [*FORMATS[number_format], *(option for option in options if "=" in option)]
    rank = Rank(kind, configure(model, overrides))
    here = place(rank.worker)
    rows = [rows_of(each, 37) for each in range(here.dp_size)]
    answers = []
    torch.manual_seed(5)
    for step in (1, 2, 3):
        if measures and step != 2:
            before = rank.state()
            first = [each[:4] for each in rows]
            passes = log_prob_passes(rank.worker, first, step, Roundoff(2.0**-9, 2.0**-9))
            sums = gradient_passes(rank.worker, first, step)
            after = rank.state()
            kept = {name: torch.equal(before[name], after[name]) for name in before}
            everyone = [None] * dist.get_world_size()
            dist.all_gather_object(everyone, (passes, sums, kept))
            answers.append(everyone)
        rank.update(rows[here.dp_rank])
    if dist.get_rank() == 0:
        torch.save({"answers": answers, "place": here, "state": rank.state()}, out)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    np.random.seed(0)
    main()
