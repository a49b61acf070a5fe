# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Comparisons and verdicts as JSON and back. Whoever reads may be of another version: unknown keys are ignored.

Numbers that JSON does not have stand as the strings `NaN`, `Infinity` and `-Infinity`. Row identities stand as
hexadecimal text, since JSON's readers elsewhere round integers beyond 2**53. A reason stands as English text, and
beside it as code with parameters; files of 0.1.0 have the text alone. The JSON Schemas are in docs/schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar, overload

import msgspec

from verl.crosscheck.diagnosis.findings import (
    Aspect,
    Confidence,
    Finding,
    Phase,
    State,
    StepComparison,
    Verdict,
    VerdictEvidence,
    WorstRow,
)
from verl.crosscheck.diagnosis.thresholds import current_name
from verl.crosscheck.errors import DamagedError
from verl.crosscheck.evidence.old_reasons import read_reason
from verl.crosscheck.exchange.documents import NOT_FINITE, Document, NotADocumentError, Number, plain, struct_of
from verl.crosscheck.reasons import Reason

_OLD_WORDS = {Confidence.MEDIUM: "fair"}
"""What 0.1.0 called a confidence, under the key `sureness`."""

F = TypeVar("F", bound=msgspec.Struct)


class FindingRecord(msgspec.Struct, frozen=True):
    """A finding as it stands in a file."""

    aspect: Aspect
    quantity: str
    state: State
    value: Number | None = None
    limit: Number | None = None
    above_is_bad: bool = True
    reason: str = ""
    reason_code: str | None = None
    reason_params: dict[str, Any] = msgspec.field(default_factory=dict)
    error: Number | None = None
    predicted: Number | None = None


class WorstRowRecord(msgspec.Struct, frozen=True):
    """A row that a person should look at, as it stands in a file."""

    row_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-fA-F]{1,16}$")]
    aspect: Aspect
    logprob_abs_diff_mean: Number
    logprob_abs_diff_max: Number


class ComparisonRecord(Document, frozen=True):
    """The comparison of a step as it stands in a file."""

    SCHEMA: ClassVar[str] = "verl-crosscheck/comparison"
    global_step: int
    update_index: int
    rows: int
    tokens: int
    findings: tuple[FindingRecord, ...]
    worst_rows: tuple[WorstRowRecord, ...]
    changes: dict[str, Number]
    outcomes: dict[str, tuple[Number | None, Number | None]]
    compare_s: Number
    kind: Literal["step_comparison"] = "step_comparison"


class VerdictEvidenceRecord(msgspec.Struct, frozen=True):
    """A finding that a verdict rests on, as it stands in a file."""

    scenario: int
    global_step: int
    finding: FindingRecord


class VerdictRecord(Document, frozen=True):
    """A verdict as it stands in a report for machines."""

    SCHEMA: ClassVar[str] = "verl-crosscheck/verdict"
    phase: Phase
    first_step: int | None
    steps: int
    because: tuple[str, ...]
    evidence: tuple[VerdictEvidenceRecord, ...]
    not_compared: dict[str, str]
    next_actions: tuple[str, ...]
    details: dict[str, Any]
    confidence: Confidence | None = None
    sureness: Literal["high", "fair", "low"] = "low"
    not_compared_reasons: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
    kind: Literal["verdict"] = "verdict"


@overload
def to_json(found: StepComparison) -> dict[str, Any]: ...
@overload
def to_json(found: Verdict) -> dict[str, Any]: ...
def to_json(found: StepComparison | Verdict) -> dict[str, Any]:
    """Return strict JSON: dicts, lists, text, numbers, null. Its key `kind` says what it is."""
    return plain(_comparison_record(found) if isinstance(found, StepComparison) else _verdict_record(found))


def from_json(data: Any) -> StepComparison | Verdict:
    """Return what `to_json` was given.

    Raises:
        DamagedError: it is not that; says which field.
    """
    kind = data.get("kind") if isinstance(data, Mapping) else type(data).__name__
    readers: dict[Any, Callable[[Any], StepComparison | Verdict]] = {
        "step_comparison": comparison_from_json,
        "verdict": verdict_from_json,
    }
    if kind not in readers:
        raise DamagedError(f"kind is {kind!r:.60}, expected {' or '.join(readers)}")
    return readers[kind](data)


def comparison_from_json(data: Any) -> StepComparison:
    """Return a comparison; raises as `from_json`."""
    found = _record(data, ComparisonRecord, "the comparison")
    return StepComparison(
        global_step=found.global_step,
        update_index=found.update_index,
        rows=found.rows,
        tokens=found.tokens,
        findings=tuple(map(_finding, found.findings)),
        worst_rows=tuple(
            WorstRow(int(each.row_id, 16), each.aspect, each.logprob_abs_diff_mean, each.logprob_abs_diff_max)
            for each in found.worst_rows
        ),
        changes=found.changes,
        outcomes=found.outcomes,
        compare_s=found.compare_s,
    )


def verdict_from_json(data: Any) -> Verdict:
    """Return a verdict; raises as `from_json`."""
    found = _record(data, VerdictRecord, "the verdict")
    old = Confidence.MEDIUM if found.sureness == "fair" else Confidence(found.sureness)
    return Verdict(
        phase=found.phase,
        confidence=found.confidence or old,
        first_step=found.first_step,
        steps=found.steps,
        because=found.because,
        evidence=tuple(
            VerdictEvidence(each.scenario, each.global_step, _finding(each.finding)) for each in found.evidence
        ),
        not_compared={
            name: _coded(text, found.not_compared_reasons.get(name)) for name, text in found.not_compared.items()
        },
        next_actions=found.next_actions,
        details=_finite_again(found.details),
    )


def _record(data: Any, kind: type[F], what: str) -> F:
    if not isinstance(data, Mapping):
        raise DamagedError(f"{what} is {type(data).__name__}, expected an object")
    try:
        return struct_of(data, kind)
    except NotADocumentError as e:
        raise DamagedError(f"{what} {e}") from None


def _finding(found: FindingRecord) -> Finding:
    coded = None if found.reason_code is None else {"code": found.reason_code, "params": found.reason_params}
    reason = _coded(found.reason, coded) if found.reason or coded else None
    quantity = current_name(found.quantity)
    return Finding(
        found.aspect,
        quantity,
        found.state,
        found.value,
        found.limit,
        found.above_is_bad,
        reason,
        predicted=found.predicted,
        error=found.error,
    )


def _coded(text: str, coded: Mapping[str, Any] | None) -> Reason:
    """Return the reason by its code if there is one, else by the text of 0.1.0."""
    try:
        return read_reason(text if coded is None else {**coded, "text": text})
    except ValueError as e:
        raise DamagedError(str(e)) from None


def _comparison_record(found: StepComparison) -> ComparisonRecord:
    return ComparisonRecord(
        global_step=found.global_step,
        update_index=found.update_index,
        rows=found.rows,
        tokens=found.tokens,
        findings=tuple(map(_finding_record, found.findings)),
        worst_rows=tuple(
            WorstRowRecord(f"{row.row_id:016x}", row.aspect, row.logprob_abs_diff_mean, row.logprob_abs_diff_max)
            for row in found.worst_rows
        ),
        changes=dict(found.changes),
        outcomes=dict(found.outcomes),
        compare_s=found.compare_s,
    )


def _verdict_record(found: Verdict) -> VerdictRecord:
    return VerdictRecord(
        phase=found.phase,
        first_step=found.first_step,
        steps=found.steps,
        because=found.because,
        evidence=tuple(
            VerdictEvidenceRecord(each.scenario, each.global_step, _finding_record(each.finding))
            for each in found.evidence
        ),
        not_compared={name: str(why) for name, why in found.not_compared.items()},
        next_actions=found.next_actions,
        details=_with_old_words(found.details),
        confidence=found.confidence,
        sureness=_old_word(found.confidence),
        not_compared_reasons={name: _code(why) for name, why in found.not_compared.items()},
    )


def _old_word(confidence: Confidence) -> Any:
    return _OLD_WORDS.get(confidence, confidence.value)


def _with_old_words(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details of a verdict with `sureness` beside the confidence of each phase, for readers of 0.1.0."""
    if "phases" not in details:
        return dict(details)
    phases = {
        name: {**phase, "sureness": _old_word(Confidence(phase["confidence"]))} if "confidence" in phase else phase
        for name, phase in details["phases"].items()
    }
    return {**details, "phases": phases}


def _finding_record(found: Finding) -> FindingRecord:
    known = (found.aspect, found.quantity, found.state, found.value, found.limit, found.above_is_bad)
    if found.reason is None:
        return FindingRecord(*known, error=found.error, predicted=found.predicted)
    coded = _code(found.reason)
    reason = (str(found.reason), coded["code"], coded["params"])
    return FindingRecord(*known, *reason, error=found.error, predicted=found.predicted)


def _code(reason: Reason) -> dict[str, Any]:
    return {name: value for name, value in reason.to_json().items() if name != "text"}


def _finite_again(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite_again(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite_again(each) for each in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value
