# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts, before an update of the actor, how far rounding moves log-probs, gradients and the change of the weights.

The workers round at random (`weights.noise`); here their answers become the numbers of `StepEvidence.noise`. Never
stops a run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import ray
import torch

from verl.crosscheck.diagnosis.distances import Accumulator, SampleColumn
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.weights.calls import ask_all, one_line, run_on_all
from verl.crosscheck.weights.noise.gradient import GradientSums
from verl.crosscheck.weights.noise.on_worker import LogProbPasses, gradient_passes, log_prob_passes, place
from verl.crosscheck.weights.noise.rounding import engine_roundoff
from verl.protocol import DataProto

Noise = tuple[dict[str, float], dict[str, Reason]]
"""Predictions by name, and what is missing of them and why: `StepEvidence.noise` and `missing`."""

MOST_TOKENS = 16_384
"""Tokens, with prompts, that each data-parallel rank measures at most; one row in any case."""
SHARE_OF_ROWS = 4
"""Each rank measures at most one of so many of its rows. All passes together then cost about half of the training part
of a step."""
COLUMNS = (
    "prompts",
    "responses",
    "input_ids",
    "attention_mask",
    "position_ids",
    "response_mask",
    "old_log_probs",
    "advantages",
    "ref_log_prob",
    "rollout_is_weights",
    "rollout_log_probs",
)
"""What upstream's updates may read of a batch."""
OBJECT_COLUMNS = ("multi_modal_inputs", "uid")

NOT_ASKED = because(ReasonCode.NOISE_NOT_ASKED)


class NoiseProbe:
    """Asks the training workers for predictions.

    The first error ends the measuring; each later step has the same reason.

    Args:
        worker_group: upstream's worker group that holds the actor.
        every: steps between two measurements, of which the first is made in the first step; 0 makes none.
        sampling: `StepEvidence.sampling` of the run.
    """

    def __init__(self, worker_group: Any, every: int, sampling: Mapping[str, Any]) -> None:
        self._group, self._every, self._sampling = worker_group, every, sampling
        self._reason = because(ReasonCode.NOISE_OFF) if every == 0 else None
        self._next_step: int | None = None
        self._latest: Noise = {}, {"noise": NOT_ASKED}

    def measure(self, batch: DataProto, global_step: int) -> None:
        """Measure, if it is the step's turn. All workers are idle, and the batch is about to be trained on."""
        if self._reason is None and (self._next_step is None or global_step >= self._next_step):
            self._next_step = global_step + self._every
            self._latest = self._measured(batch, global_step)
        else:
            reason = self._reason or because(ReasonCode.NOISE_OTHER_STEP, every=self._every)
            self._latest = {}, {"noise": reason}

    def take(self) -> Noise:
        """Return the predictions for the update that was made last."""
        latest, self._latest = self._latest, ({}, {"noise": NOT_ASKED})
        return latest

    def _measured(self, batch: DataProto, global_step: int) -> Noise:
        start_s = time.perf_counter()
        try:
            noise, missing = self._predictions(batch, global_step)
        except Exception as e:  # a failed measurement must not end a run
            self._reason = because(ReasonCode.CHANGE_ERROR, error=one_line(e))
            return {}, {"noise": self._reason}
        if noise:
            noise["seconds"] = time.perf_counter() - start_s
        return {name: float(f"{value:.5g}") for name, value in noise.items()}, missing

    def _predictions(self, batch: DataProto, global_step: int) -> Noise:
        places = run_on_all(self._group, place)
        self._reason = next((each.why_not for each in places if each.why_not is not None), None)
        if self._reason is not None:
            return {}, {"noise": self._reason}
        rows = rows_of_ranks(batch, places[0].dp_size, self._sampling.get("temperature"))
        parts = [ray.put(each) for each in rows]
        dtype, quantization = str(self._sampling.get("rollout_dtype")), self._sampling.get("quantization")
        engine = engine_roundoff(dtype, quantization)
        answers = dict(ask_all(self._group, log_prob_passes, parts, global_step, engine))
        noise = log_prob_noise([each for each in answers.values() if each is not None])
        noise["rows_share"] = sum(map(len, rows)) / len(batch)
        missing = {}
        if engine is None:
            missing["noise/engine"] = because(ReasonCode.NOISE_FORMAT, dtype=dtype, quantization=str(quantization))
        sums = total_by_tensor(ask_all(self._group, gradient_passes, parts, global_step))
        noise.update(gradient_noise(sums))
        if "train/change_rel_diff" not in noise:
            missing["noise/change"] = because(ReasonCode.NOISE_NO_CHANGE)
        return {name: value for name, value in noise.items() if math.isfinite(value)}, missing


def rows_of_ranks(batch: DataProto, dp_size: int, temperature: Any) -> list[DataProto]:
    """Return the first rows of each data-parallel rank's share of a batch, equally many of each.

    Args:
        temperature: of the log-probs that upstream trains on.

    Raises:
        ValueError: fewer rows than ranks.
    """
    share = len(batch) // dp_size
    if share == 0:
        raise ValueError(f"{len(batch)} rows for {dp_size} data-parallel ranks")
    lengths = batch.batch["attention_mask"].sum(dim=1)[: share * dp_size].reshape(dp_size, share)
    within = int((lengths.cumsum(dim=1) <= MOST_TOKENS).sum(dim=1).min())
    count = max(1, min(within, share // SHARE_OF_ROWS))
    chosen = batch.select(
        [name for name in COLUMNS if name in batch.batch],
        [name for name in OBJECT_COLUMNS if name in batch.non_tensor_batch],
        [],
    )
    starts = range(0, share * dp_size, share)
    rows = [chosen.select_idxs(torch.arange(start, start + count)) for start in starts]
    for each in rows:
        each.meta_info = {"temperature": temperature, "multi_turn": batch.meta_info.get("multi_turn", False)}
    return rows


def log_prob_noise(passes: Sequence[LogProbPasses]) -> dict[str, float]:
    """Return the distances of noisy from plain log-probs, by `{whose}/{quantity}` with the quantities of
    `diagnosis.distances`; and the 99.9 % point of the absolute difference, that of entropies, and the tokens."""
    noise: dict[str, float] = {}
    for whose in dict.fromkeys(name for each in passes for name in each.noisy):
        distances, entropy_diffs, diffs = Accumulator(), [], []
        for each in passes:
            plain, noisy = each.plain, each.noisy[whose]
            distances.add(SampleColumn(plain.log_probs), SampleColumn(noisy.log_probs), each.row_tokens)
            diffs.append(np.abs(noisy.log_probs - plain.log_probs))
            if plain.entropies is not None and noisy.entropies is not None:
                entropy_diffs.append(np.abs(noisy.entropies - plain.entropies))
        result = distances.result()
        found = dict(result.values)
        if result.tokens:
            found["logprob_abs_diff_q999"] = float(np.quantile(np.concatenate(diffs), 0.999))
            found["tokens"] = float(result.tokens)
        if sum(each.size for each in entropy_diffs):
            found["entropy_abs_diff_mean"] = float(np.concatenate(entropy_diffs).mean())
        noise.update({f"{whose}/{name}": value for name, value in found.items()})
    return noise


def total_by_tensor(ranks: Iterable[Mapping[str, GradientSums]]) -> dict[str, GradientSums]:
    """Return the sums of all ranks' shards."""
    total: dict[str, GradientSums] = {}
    for rank in ranks:
        for name, sums in rank.items():
            total[name] = total[name] + sums if name in total else sums
    return total


def gradient_noise(sums: Mapping[str, GradientSums]) -> dict[str, float]:
    """Return relative differences of the gradient and of Adam's change: as vectors (`grad_rel_diff`,
    `change_rel_diff`) and of their norms (`grad_norm_rel_diff`, `change_norm_rel_diff`), of all tensors; as vectors of
    each tensor too, by `train/grad_rel_diff/{tensor}`. A tensor whose gradient is 0 has none."""
    noise: dict[str, float] = {}
    if not sums:
        return noise
    everything, *others = sums.values()
    for each in others:
        everything = everything + each
    for name, each in [("", everything), *sums.items()]:
        pairs = {"grad": (each.plain, each.noisy, each.apart)}
        if each.change is not None and each.noisy_change is not None and each.change_apart is not None:
            pairs["change"] = (each.change, each.noisy_change, each.change_apart)
        for what, (plain, noisy, apart) in pairs.items():
            if plain > 0:
                noise[f"train/{what}_rel_diff{'/' * bool(name)}{name}"] = math.sqrt(apart / plain)
                if not name:
                    noise[f"train/{what}_norm_rel_diff"] = abs(math.sqrt(noisy / plain) - 1)
    return noise
