# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Read directories and judge them: everything that a report shows, as `model.Report`. Renders nothing.

A step is compared as it was logged, or anew from the evidence of both runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from verl.crosscheck.diagnosis.assess import reassess
from verl.crosscheck.diagnosis.findings import StepComparison
from verl.crosscheck.diagnosis.findings_json import comparison_from_json
from verl.crosscheck.diagnosis.reference import reference_of
from verl.crosscheck.diagnosis.thresholds import Thresholds, limits_for, profile, read_limits
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.exchange.documents import read_json
from verl.crosscheck.report.model import Control, Report, Scenario, TokenRow
from verl.crosscheck.report.recorded_pair import RecordedPair, find_pair, load_evidence, runs_of, settings_of
from verl.crosscheck.report.worst_rows import Decode
from verl.crosscheck.settings import MODES, ShareMode


@dataclass(frozen=True)
class ReportRequest:
    """What a report is to be about.

    Args:
        scenarios: directory by number of the scenario, see `model`.
        control: directory of two healthy runs.
        limits: file that replaces limits.
        recompute: compare from the evidence, even where a comparison was logged.
        decode: from token ids to text; None shows ids.
        with_rows: whether to read the worst responses.
    """

    scenarios: dict[int, Path]
    control: Path | None = None
    limits: Path | None = None
    recompute: bool = False
    decode: Decode | None = None
    with_rows: bool = True


def load_report(request: ReportRequest) -> Report:
    """Read everything, and judge it.

    Raises:
        DirectoryError, DamagedError: a directory has no session, or one that cannot be read.
        SettingsError: the file of limits will not do.
        OSError: the file system's own.
    """
    numbers = sorted(request.scenarios)
    pairs = {number: find_pair(request.scenarios[number]) for number in numbers}
    control_pair = None if request.control is None else find_pair(request.control)
    every = [*pairs.values(), *([control_pair] if control_pair else [])]
    compared = [compare_pair(pair, recompute=request.recompute) for pair in every]
    made_with = [[_made_with(pair, mode) for mode in MODES] for pair in every]
    base = limits_of(made_with, compared)
    limits = base if request.limits is None else read_limits(request.limits, base)
    control = compared[-1].steps if control_pair else ()
    steps = {number: each.steps for number, each in zip(numbers, compared, strict=False)}
    alike = control_pair is None or is_alike(made_with[:-1], made_with[-1])
    verdict = judge(
        scenario_1=steps.get(1, ()),
        scenario_2=steps.get(2, ()),
        control=control,
        limits=limits,
        control_alike=alike,
    )
    _, final = reference_of(control, steps.get(2, ()), limits, control_alike=alike)  # as `judge` has them
    scenarios = tuple(
        _scenario(number, pairs[number], each, final) for number, each in zip(numbers, compared, strict=False)
    )
    rows: tuple[TokenRow, ...] = ()
    if request.with_rows:
        from verl.crosscheck.report.worst_rows import rows_to_show

        rows = rows_to_show(
            [(each.number, pairs[each.number], each.steps) for each in scenarios], verdict, request.decode
        )
    return Report(
        verdict=verdict,
        scenarios=tuple(replace(each, problems=dict(pairs[each.number].problems)) for each in scenarios),
        rows=rows,
        control=None if request.control is None else Control(request.control, _assessed(control, final), alike),
        limits="" if request.limits is None else str(request.limits),
        versions=_own_version(),
    )


def _scenario(number: int, pair: RecordedPair, compared: PairComparisons, limits: Thresholds) -> Scenario:
    settings, not_compared = settings_of(pair, number)
    return Scenario(
        number=number,
        directory=pair.root,
        session=pair.session.number,
        runs=runs_of(pair, number),
        steps=_assessed(compared.steps, limits),
        recomputed=compared.recomputed,
        lacking=compared.lacking,
        settings=settings,
        settings_not_compared=not_compared,
    )


def _assessed(steps: Sequence[StepComparison], limits: Thresholds) -> tuple[StepComparison, ...]:
    return tuple(reassess(step, limits) for step in steps)


def _own_version() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return {"verl-crosscheck": version("verl-crosscheck")}
    except PackageNotFoundError:
        return {"verl-crosscheck": "from source"}


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


@dataclass(frozen=True)
class MadeWith:
    """What a run was made with, as far as it is recorded."""

    device: str | None
    sampling: Mapping[str, Any] | None
    """How it sampled and trained."""

    @property
    def noise(self) -> tuple[Any, ...]:
        """What the noise of its numbers depends on: device, engine and number formats."""
        names = ("engine", "rollout_dtype", "train_dtype", "quantization")
        return (self.device, *((self.sampling or {}).get(name) for name in names))


def _made_with(pair: RecordedPair, mode: ShareMode) -> MadeWith:
    card = pair.cards.get(mode)
    return MadeWith(None if card is None else card.device, _sampling(pair, mode))


def limits_of(pairs: Sequence[Sequence[MadeWith]], compared: Sequence[PairComparisons]) -> Thresholds:
    """The limits that fit how all these runs sampled and trained; those that were logged if no evidence says."""
    samplings = [run.sampling for pair in pairs for run in pair if run.sampling is not None]
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


def is_alike(pairs: Sequence[Sequence[MadeWith]], control: Sequence[MadeWith]) -> bool:
    """Return whether devices, engines and number formats of all runs are among those of the control.

    Noise is that of hardware, engine and format: a control of other ones does not tell how much of it is healthy here.
    """
    known = {run.noise for run in control}
    return all(run.noise in known for pair in pairs for run in pair)


def _logged(pair: RecordedPair, step: int) -> StepComparison | None:
    path = pair.comparisons.get(step)
    if path is None:
        return None
    try:
        return comparison_from_json(read_json(path))
    except (CrossCheckError, OSError) as e:
        pair.tell_problem(path, e)
        return None


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


def _sampling(pair: RecordedPair, mode: ShareMode) -> Mapping[str, Any] | None:
    """How a run sampled and trained, from its first evidence that can be read."""
    for step in sorted(pair.evidence[mode]):
        found = load_evidence(pair, mode, step)
        if found is not None:
            return dict(found.sampling)
    return None
