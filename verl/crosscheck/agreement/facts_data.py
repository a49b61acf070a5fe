# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts of the data: how many rows, and which come first. Called by `verl.crosscheck.agreement.facts`.

The order is drawn from a copy of the sampler with a copy of its random state, so that the run's own order stays as it
is. Of a sampler that cannot be copied, the order is not known. Rows are read by column from the table behind the
dataset, without images, and before the dataset's own processing.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import islice
from typing import Any

from verl.crosscheck.agreement.compare import not_known
from verl.crosscheck.identity import Prompts, digest
from verl.crosscheck.reasons import Reason, ReasonCode, because

BATCHES = 2
"""Batches whose rows are looked at."""
VALIDATION_ROWS = 256
"""Rows of the validation data that are looked at, in the order of the table."""


def data_facts(train_dataset: Any, val_dataset: Any, sampler: Any, batch_size: int) -> dict[str, Any]:
    """Return the numbers of rows of both datasets, and digests of those that come first.

    Args:
        train_dataset, val_dataset: Datasets with a `dataframe`, as upstream's `RLHFDataset` has.
        sampler: The training data loader's.
        batch_size: Rows in a batch of the training data loader.
    """
    val_rows = min(len(val_dataset), VALIDATION_ROWS)
    return {
        "train": {"rows": len(train_dataset), **_first_batches(train_dataset, sampler, batch_size)},
        "val": {"rows": len(val_dataset), **_content(val_dataset, range(val_rows), val_rows)},
    }


def _first_batches(dataset: Any, sampler: Any, batch_size: int) -> dict[str, Any]:
    """Return how rows are drawn, and the content of the first `BATCHES` of a run from the start."""
    copied, kind = _copied(sampler)
    if isinstance(kind, Reason):
        return {"order": not_known(kind)}
    return {"sampler": kind, **_content(dataset, list(islice(iter(copied), BATCHES * batch_size)), batch_size)}


def _copied(sampler: Any) -> tuple[Any, str | Reason]:
    """Return a sampler that draws what `sampler` will draw, and its kind; or None, and why there is none."""
    import torch
    from torch.utils import data
    from torchdata.stateful_dataloader.sampler import RandomSampler

    if type(sampler) is data.SequentialSampler:
        return sampler, "one after the other"
    if type(sampler) not in (RandomSampler, data.RandomSampler):
        return None, because(ReasonCode.SAMPLER_NOT_REPEATABLE, sampler=type(sampler).__name__)
    if sampler.generator is None:
        return None, because(ReasonCode.GLOBAL_RANDOM_STATE)
    generator = torch.Generator(device=sampler.generator.device)
    generator.set_state(sampler.generator.get_state())
    copied = copy.copy(sampler)
    copied.generator = generator
    default_seed = torch.Generator().initial_seed()
    seed = sampler.generator.initial_seed()
    return copied, "shuffled, " + ("no seed set: PyTorch's default one" if seed == default_seed else f"seed {seed}")


def _content(dataset: Any, rows: Sequence[int], batch_size: int) -> dict[str, Any]:
    """Return digests of the `rows`: prompts batch by batch, the same without order, and what rewards depend on."""
    table: Any = getattr(dataset, "dataframe", None)
    prompt_key = getattr(dataset, "prompt_key", None)
    if not hasattr(table, "select_columns") or prompt_key is None:
        return {"content": not_known(because(ReasonCode.NO_TABLE, kind=type(dataset).__name__))}
    answer_keys = [key for key in ("data_source", "reward_model") if key in table.column_names]
    columns = table.select_columns([prompt_key, *answer_keys])[list(rows)]
    prompts = Prompts.of({"raw_prompt": columns[prompt_key]}, len(rows))
    batches = [prompts.digests[start : start + batch_size] for start in range(0, len(rows), max(batch_size, 1))]
    return {
        "batches": [digest(batch) for batch in batches],
        "rows_in_any_order": digest(sorted(prompts.digests)),
        "answers": digest([columns[key] for key in answer_keys]),
        "first_prompt": prompts.preview(0) if rows else None,
    }
