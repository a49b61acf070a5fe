# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Batches as a trainer holds them after an update, for tests of what is recorded of a step."""

import torch
from tensordict import TensorDict

from verl.crosscheck.run.hooks import ActorUpdate
from verl.protocol import DataProto


def make_batch(prompts, responses, /, *, ref=False, **columns):
    """B rows of token ids, padded as upstream does: prompts on the left, responses on the right, with 0.

    Log-probs are -0.1, -0.2 ... along each response by the rollout engine and 0.01 less by training; the reward is the
    number of response tokens, the advantage that less 2.

    Args:
        columns: tensors that replace these; None leaves one out.
    """
    P, T = max(map(len, prompts)), max(map(len, responses))
    prompts_BP = torch.tensor([[0] * (P - len(row)) + row for row in prompts])
    responses_BT = torch.tensor([row + [0] * (T - len(row)) for row in responses])
    mask_BT = torch.tensor([[1] * len(row) + [0] * (T - len(row)) for row in responses])
    prompt_mask_BP = torch.tensor([[0] * (P - len(row)) + [1] * len(row) for row in prompts])
    lengths = mask_BT.sum(1, keepdim=True).float()
    rollout_BT = -0.1 * torch.arange(1, T + 1, dtype=torch.float32).repeat(len(responses), 1)
    scores_BT = torch.zeros(len(responses), T)
    scores_BT[:, 0] = lengths[:, 0]
    batch = {
        "prompts": prompts_BP,
        "responses": responses_BT,
        "attention_mask": torch.cat([prompt_mask_BP, mask_BT], 1),
        "response_mask": mask_BT,
        "rollout_log_probs": rollout_BT,
        "old_log_probs": rollout_BT - 0.01,
        "token_level_scores": scores_BT,
        "advantages": (lengths - 2) * mask_BT,
        **({"ref_log_prob": rollout_BT - 0.5} if ref else {}),
        **columns,
    }
    kept = {name: column for name, column in batch.items() if column is not None}
    return DataProto(TensorDict(kept, batch_size=[len(responses)]), {}, {})


def make_update(batch=None, *, step=1, metrics=None, entropies=0.25, **changes):
    """An update of the actor; entropies are equal everywhere, None leaves them out."""
    batch = make_batch([[1, 2], [3]], [[7, 8, 9], [7]]) if batch is None else batch
    shape = batch.batch["responses"].shape
    return ActorUpdate(
        batch,
        {"actor/grad_norm": 1.5, "actor/pg_loss": [0.25, 0.75]} if metrics is None else metrics,
        step,
        None if entropies is None else torch.full(shape, entropies),
        **changes,
    )
