# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From directories to all that a report shows. Reads; renders nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from verl.crosscheck.diagnosis.assess import reassess
from verl.crosscheck.diagnosis.findings import StepComparison
from verl.crosscheck.diagnosis.reference import reference_of
from verl.crosscheck.diagnosis.thresholds import Thresholds, read_limits
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.report.comparisons import PairComparisons, compare_pair, limits_of
from verl.crosscheck.report.model import Control, Report, Scenario, TokenRow
from verl.crosscheck.report.pairs import RecordedPair, find_pair
from verl.crosscheck.report.row_texts import Decode
from verl.crosscheck.report.settings_of import runs_of, settings_of


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
    base = limits_of(every, compared)
    limits = base if request.limits is None else read_limits(request.limits, base)
    control = compared[-1].steps if control_pair else ()
    steps = {number: each.steps for number, each in zip(numbers, compared, strict=False)}
    verdict = judge(scenario_1=steps.get(1, ()), scenario_2=steps.get(2, ()), control=control, limits=limits)
    _, final = reference_of(control, steps.get(2, ()), limits)  # as `judge` has them
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
        control=None if request.control is None else Control(request.control, _assessed(control, final)),
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
