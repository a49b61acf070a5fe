# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The comparison of each step of a pair: as it was logged, or made now from the evidence of both runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from verl.crosscheck.diagnosis.findings import StepComparison
from verl.crosscheck.diagnosis.findings_json import comparison_from_json
from verl.crosscheck.diagnosis.thresholds import Thresholds, limits_for, profile
from verl.crosscheck.errors import CrossCheckError, DamagedError
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.report.pairs import RecordedPair

MAX_COMPARISON_BYTES = 64 * 1024 * 1024
"""A model of a thousand tensors takes about 100 kB."""

MODES = ("ckpt", "rollout")
"""Of the sampler and of the taker."""


@dataclass(frozen=True)
class PairComparisons:
    """What there is of a pair's steps."""

    steps: tuple[StepComparison, ...]
    """In order of steps, assessed with whatever limits were at hand."""
    recomputed: int
    """How many of them were made now."""
    lacking: tuple[int, ...]
    """Steps that were recorded by one run alone, or whose files cannot be used."""


def compare_pair(pair: RecordedPair, *, recompute: bool) -> PairComparisons:
    """The comparisons of a pair; what cannot be used is told to the pair.

    Args:
        recompute: from the evidence, even where a comparison was logged.
    """
    steps: list[StepComparison] = []
    lacking: list[int] = []
    recomputed = 0
    for step in pair.steps:
        logged = None if recompute else _logged(pair, step)
        found = logged or _made(pair, step)
        if found is None:
            lacking.append(step)
            continue
        recomputed += logged is None
        steps.append(found)
    return PairComparisons(tuple(steps), recomputed, tuple(lacking))


def limits_of(pairs: Sequence[RecordedPair], compared: Sequence[PairComparisons]) -> Thresholds:
    """The limits that fit how all these runs sampled and trained; those that were logged if no evidence says."""
    samplings = [found for pair in pairs for mode in MODES if (found := _sampling(pair, mode)) is not None]
    if samplings:
        return limits_for(*samplings)
    logged = {
        f"{finding.aspect.value}/{finding.quantity}": finding.limit
        for each in compared
        for step in each.steps
        for finding in step.findings
        if finding.limit is not None
    }
    return replace(profile("dense_bf16"), own=MappingProxyType(logged))


def _logged(pair: RecordedPair, step: int) -> StepComparison | None:
    path = pair.comparisons.get(step)
    if path is None:
        return None
    try:
        return comparison_from_json(_read_json(path))
    except (CrossCheckError, OSError) as e:
        pair.tell_problem(path, e)
        return None


def _read_json(path: Path) -> Any:
    require_own_file(path)
    size_bytes = path.lstat().st_size
    if path.is_symlink() or size_bytes > MAX_COMPARISON_BYTES:
        raise DamagedError(f"{path} is a link, or larger than {MAX_COMPARISON_BYTES} bytes. It was not used")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as e:
        raise DamagedError(f"{path} is not JSON ({e}). It was not used") from None


def _made(pair: RecordedPair, step: int) -> StepComparison | None:
    """From evidence; None without that of both runs."""
    paths = [pair.evidence[mode].get(step) for mode in MODES]
    if None in paths:
        return None
    from verl.crosscheck.diagnosis.compare import compare_step

    sampler, taker = (load_evidence(pair, mode, step) for mode in MODES)
    if sampler is None or taker is None:
        return None
    try:
        return compare_step(sampler, taker, limits_for(sampler.sampling, taker.sampling))
    except (ValueError, TypeError, LookupError, ArithmeticError) as e:  # evidence that says what no run would
        pair.tell_problem(pair.evidence[MODES[0]][step], e)
        return None


def load_evidence(pair: RecordedPair, mode: str, step: int) -> Any:
    """A run's `StepEvidence` of a step; None if it is not there, or if it cannot be used, of which the pair is told."""
    path = pair.evidence[mode].get(step)
    if path is None:
        return None
    from verl.crosscheck.evidence.files import load

    try:
        require_own_file(path)
        return load(path)
    except (CrossCheckError, OSError) as e:
        pair.tell_problem(path, e)
        return None


def _sampling(pair: RecordedPair, mode: str) -> Mapping[str, Any] | None:
    """How a run sampled and trained, from its first evidence that can be read."""
    for step in sorted(pair.evidence[mode]):
        found = load_evidence(pair, mode, step)
        if found is not None:
            return dict(found.sampling)
    return None
