# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What it costs to record a step and to compare it with the other run's: seconds, bytes a token.

    python -m recipe.crosscheck.bench_evidence [--rows 2048] [--tokens 4096] [--repeat 5] [--all-tokens]

The batch is made up: log-probs of two engines that differ by rounding, a reference policy, entropies, advantages.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table
from tensordict import TensorDict

from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.run.observe.gather import EvidenceHeader, Observed, evidence_of_batch
from verl.crosscheck.settings import Detail
from verl.protocol import DataProto
from verl.trainer.config import TrainerConfig

T = TypeVar("T")

PROMPT_TOKENS = 1024
NOISE = 0.01
"""Standard deviation of the difference of two engines' log-probs, as bfloat16 has it."""


def main() -> None:
    args = parse()
    limit = None if args.all_tokens else TrainerConfig().share_data_evidence_tokens
    batch = made_up(args.rows, args.tokens)
    other = nudged(batch)
    seconds: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "step_1"
        for _ in range(args.repeat):
            own = timed(seconds, "gather", lambda: observe(batch, "ckpt", limit))
            size_bytes = timed(seconds, "save", lambda own=own: files.save(path, own))
            files.save(path, observe(other, "rollout", limit))
            theirs = timed(seconds, "load the other run's", lambda: files.load(path))
            timed(
                seconds,
                "compare",
                lambda own=own, theirs=theirs: compare_step(own, theirs, limits_for(own.sampling, theirs.sampling)),
            )
    show(seconds, own, size_bytes)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Cost of recording and comparing a step.")
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=4096, help="response tokens of the longest row (default: 4096)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--all-tokens", action="store_true", help="keep every token (share_data_evidence_tokens=null)")
    return parser.parse_args()


def made_up(rows: int, tokens: int) -> DataProto:
    """A batch of `rows` responses of up to `tokens` tokens, half of it padding, as trainers hold them."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(tokens // 8, tokens + 1, (rows, 1), generator=generator)
    mask_BT = (torch.arange(tokens) < lengths).long()
    train_BT = -torch.empty(rows, tokens).exponential_(1.0, generator=generator) * mask_BT
    noise_BT = torch.randn(rows, tokens, generator=generator) * NOISE * mask_BT
    scores_BT = torch.zeros(rows, tokens)
    scores_BT[:, 0] = torch.randint(0, 2, (rows,), generator=generator).float()
    columns = {
        "prompts": torch.randint(0, 150_000, (rows, PROMPT_TOKENS), generator=generator),
        "responses": torch.randint(0, 150_000, (rows, tokens), generator=generator) * mask_BT,
        "attention_mask": torch.cat([torch.ones(rows, PROMPT_TOKENS, dtype=torch.long), mask_BT], 1),
        "response_mask": mask_BT,
        "old_log_probs": train_BT,
        "rollout_log_probs": train_BT + noise_BT,
        "ref_log_prob": train_BT - 0.1,
        "token_level_scores": scores_BT,
        "advantages": torch.randn(rows, 1, generator=generator) * mask_BT,
    }
    return DataProto(TensorDict(columns, batch_size=[rows]), {}, {})


def nudged(batch: DataProto) -> DataProto:
    """The same rows in another order, with training's log-probs a little different: the other run's batch."""
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(1))
    columns = {name: tensor[order] for name, tensor in batch.batch.items()}
    columns["old_log_probs"] = columns["old_log_probs"] * (1 + 1e-6)
    return DataProto(TensorDict(columns, batch_size=[len(batch)]), {}, {})


def observe(batch: DataProto, mode: str, limit: int | None) -> StepEvidence:
    entropies_BT = torch.ones_like(batch.batch["old_log_probs"])
    sampling = {"temperature": 1.0, "rollout_dtype": "bfloat16", "train_dtype": "bfloat16"}
    observed = Observed(batch, {"actor/grad_norm": 1.0, "actor/pg_loss": 0.1}, 1, entropies_BT)
    return evidence_of_batch(observed, EvidenceHeader(mode, mode, 0, Detail.TOKENS, limit, sampling))


def timed(seconds: dict[str, list[tuple[float, float]]], name: str, run: Callable[[], T]) -> T:
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    result = run()
    seconds.setdefault(name, []).append((time.perf_counter() - start_s, time.process_time() - start_cpu_s))
    return result


def show(seconds: dict[str, list[tuple[float, float]]], own: StepEvidence, size_bytes: int) -> None:
    """Medians, and the sum of them: what a step of the run in mode `ckpt` takes longer."""
    kept = int(own.lengths.sum())
    table = Table(title=f"{own.batch_rows} rows, {len(own.row_ids)} kept, {kept} tokens")
    for heading in ("median of", "elapsed", "CPU"):
        table.add_column(heading, justify="left" if heading == "median of" else "right")
    medians = {name: [statistics.median(each) for each in zip(*pairs, strict=True)] for name, pairs in seconds.items()}
    medians["all of it"] = [sum(each) for each in zip(*medians.values(), strict=True)]
    for name, (elapsed_s, cpu_s) in medians.items():
        table.add_row(name, f"{elapsed_s:.3f} s", f"{cpu_s:.3f} s")
    table.add_row("file", f"{size_bytes / 1e6:.1f} MB", f"{size_bytes / kept:.2f} B/token")
    Console().print(table)


if __name__ == "__main__":
    main()
