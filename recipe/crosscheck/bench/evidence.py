# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What it costs to record a step and to compare it with the other run's: seconds, bytes a token.

The batch is made up: log-probs of two engines that differ by rounding, a reference policy, entropies, advantages.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from rich.table import Table
from tensordict import TensorDict

from recipe.crosscheck.bench.harness import Benchmark, BenchResult, console, medians, scratch_folder
from verl.crosscheck.diagnosis.compare import compare_step
from verl.crosscheck.diagnosis.thresholds import limits_for
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.run.hooks import ActorUpdate
from verl.crosscheck.run.observe.gather import blank_evidence, evidence_of_batch
from verl.crosscheck.settings import Detail
from verl.protocol import DataProto
from verl.trainer.config import TrainerConfig

T = TypeVar("T")

PROMPT_TOKENS = 1024
NOISE = 0.01
"""Standard deviation of the difference of two engines' log-probs, as bfloat16 has it."""


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--tokens", type=int, default=4096, help="response tokens of the longest row (default: 4096)")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--all-tokens", action="store_true", help="keep every token (share_data_evidence_tokens=null)")


def _run(args: Namespace, result: BenchResult) -> int:
    rows, tokens, repeat = (32, 64, 1) if args.quick else (args.rows, args.tokens, args.repeat)
    limit = None if args.all_tokens else TrainerConfig().share_data_evidence_tokens
    batch = made_up(rows, tokens)
    other = nudged(batch)
    stopwatch = Stopwatch()
    with scratch_folder(args) as folder:
        path = folder / "step_1"
        for _ in range(repeat):
            own = stopwatch.take("gather", observe, batch, "ckpt", limit)
            size_bytes = stopwatch.take("save", files.save, path, own)
            files.save(path, observe(other, "rollout", limit))
            theirs = stopwatch.take("load the other run's", files.load, path)
            stopwatch.take("compare", compare, own, theirs)
    result.add(stopwatch.medians() | sizes(own, size_bytes))
    console().print(table(result.figures))
    return 0


def compare(own: StepEvidence, theirs: StepEvidence) -> object:
    return compare_step(own, theirs, limits_for(own.sampling, theirs.sampling))


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
    update = ActorUpdate(batch, {"actor/grad_norm": 1.0, "actor/pg_loss": 0.1}, 1, entropies_BT)
    return evidence_of_batch(update, blank_evidence(update, mode, mode, 0, Detail.TOKENS, sampling), limit)


class Stopwatch:
    """Elapsed and CPU seconds of calls, by what they do."""

    def __init__(self) -> None:
        self.elapsed_s: dict[str, list[float]] = {}
        self.cpu_s: dict[str, list[float]] = {}

    def take(self, name: str, call: Callable[..., T], *args: Any) -> T:
        start_s, start_cpu_s = time.perf_counter(), time.process_time()
        result = call(*args)
        self.elapsed_s.setdefault(name, []).append(time.perf_counter() - start_s)
        self.cpu_s.setdefault(name, []).append(time.process_time() - start_cpu_s)
        return result

    def medians(self) -> dict[str, dict[str, float]]:
        """And the sum of them: what a step of the run in mode `ckpt` takes longer."""
        found = {"elapsed_s": medians(self.elapsed_s), "cpu_s": medians(self.cpu_s)}
        return {key: {**values, "all of it": sum(values.values())} for key, values in found.items()}


def sizes(own: StepEvidence, size_bytes: int) -> dict[str, float]:
    tokens = int(own.lengths.sum())
    return {
        "rows": own.batch_rows,
        "rows_kept": len(own.row_ids),
        "tokens_kept": tokens,
        "file_bytes": size_bytes,
        "bytes_per_token": size_bytes / tokens,
    }


def table(figures: dict[str, Any]) -> Table:
    shown = Table(title="{rows} rows, {rows_kept} kept, {tokens_kept} tokens".format(**figures))
    for heading in ("median of", "elapsed", "CPU"):
        shown.add_column(heading, justify="left" if heading == "median of" else "right")
    for name, elapsed_s in figures["elapsed_s"].items():
        shown.add_row(name, f"{elapsed_s:.3f} s", f"{figures['cpu_s'][name]:.3f} s")
    shown.add_row("file", f"{figures['file_bytes'] / 1e6:.1f} MB", f"{figures['bytes_per_token']:.2f} B/token")
    return shown


BENCHMARK = Benchmark(_options, _run, lambda args: "evidence")
