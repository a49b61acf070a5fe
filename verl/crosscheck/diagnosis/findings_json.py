# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Comparisons and verdicts as plain JSON and back. Whoever reads may be of another version: unknown keys are ignored.

Numbers that JSON does not have stand as the strings `NaN`, `Infinity` and `-Infinity`. Row identities stand as
hexadecimal text, since JSON's readers elsewhere round integers beyond 2**53.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeVar, overload

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
from verl.crosscheck.reasons import Reason

NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

KINDS = {"step_comparison": StepComparison, "verdict": Verdict}
"""By the value of `kind`."""

_E = TypeVar("_E", bound=Enum)


@overload
def to_json(found: StepComparison) -> dict[str, Any]: ...
@overload
def to_json(found: Verdict) -> dict[str, Any]: ...
def to_json(found: StepComparison | Verdict) -> dict[str, Any]:
    """Strict JSON: dicts, lists, text, numbers, null. Its key `kind` says what it is."""
    kind = next(name for name, cls in KINDS.items() if isinstance(found, cls))
    content: dict[str, Any] = {"kind": kind, **_plain(found)}
    return content


def from_json(data: Any) -> StepComparison | Verdict:
    """What `to_json` was given.

    Raises:
        DamagedError: it is not that; says which field.
    """
    found = _object(data, "it")
    if found.get("kind") == "step_comparison":
        return comparison_from_json(found)
    if found.get("kind") == "verdict":
        return verdict_from_json(found)
    raise DamagedError(f"kind is {found.get('kind')!r:.60}, expected {' or '.join(KINDS)}")


def comparison_from_json(data: Any) -> StepComparison:
    """A comparison; raises as `from_json`."""
    found = _object(data, "the comparison")
    return StepComparison(
        global_step=_int(found, "global_step"),
        update_index=_int(found, "update_index"),
        rows=_int(found, "rows"),
        tokens=_int(found, "tokens"),
        findings=tuple(_finding(each) for each in _list(found, "findings")),
        worst_rows=tuple(_worst_row(each) for each in _list(found, "worst_rows")),
        changes={
            name: _float(value, f"changes.{name}") for name, value in _object(found.get("changes"), "changes").items()
        },
        outcomes={
            name: _two(value, f"outcomes.{name}") for name, value in _object(found.get("outcomes"), "outcomes").items()
        },
        compare_s=_float(found.get("compare_s"), "compare_s"),
    )


def verdict_from_json(data: Any) -> Verdict:
    """A verdict; raises as `from_json`."""
    found = _object(data, "the verdict")
    first_step = found.get("first_step")
    return Verdict(
        phase=_member(Phase, found.get("phase"), "phase"),
        confidence=_member(Confidence, _confidence(found), "confidence"),
        first_step=None if first_step is None else _int(found, "first_step"),
        steps=_int(found, "steps"),
        because=tuple(_text(each, "because") for each in _list(found, "because")),
        evidence=tuple(_evidence(each) for each in _list(found, "evidence")),
        not_compared=_not_compared(found),
        next_actions=tuple(_text(each, "next_actions") for each in _list(found, "next_actions")),
        details=_finite_again(_object(found.get("details"), "details")),
    )


def _plain(value: Any) -> Any:
    if isinstance(value, WorstRow):
        return {**_fields(value), "row_id": f"{value.row_id:016x}"}
    if isinstance(value, Finding):
        return {**_fields(value), **_reason_keys(value.reason)}
    if isinstance(value, Verdict):
        codes = {name: {"code": why.code.value, "params": _params(why)} for name, why in value.not_compared.items()}
        old_word = {"medium": "fair"}.get(value.confidence.value, value.confidence.value)
        return {**_fields(value), "sureness": old_word, "not_compared_reasons": codes}
    if isinstance(value, Reason):
        return str(value)
    if isinstance(value, StepComparison | VerdictEvidence):
        return _fields(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return next(
            text for text, number in NOT_FINITE.items() if number == value or (number != number and value != value)
        )
    return value


def _reason_keys(reason: Reason | None) -> dict[str, Any]:
    """Return `reason` as text for people and for readers of 0.1.0, and beside it the code with its parameters."""
    if reason is None:
        return {"reason": ""}
    return {"reason": str(reason), "reason_code": reason.code.value, "reason_params": _params(reason)}


def _params(reason: Reason) -> Any:
    return reason.to_json()["params"]


def _fields(value: Any) -> dict[str, Any]:
    return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}


def _finding(data: Any) -> Finding:
    found = _object(data, "a finding")
    above = found.get("above_is_bad", True)
    if not isinstance(above, bool):
        raise DamagedError(f"above_is_bad is {above!r:.60}, expected true or false")
    return Finding(
        aspect=_member(Aspect, found.get("aspect"), "aspect"),
        quantity=current_name(_text(found.get("quantity"), "quantity")),
        state=_member(State, found.get("state"), "state"),
        value=_maybe(found.get("value"), "value"),
        limit=_maybe(found.get("limit"), "limit"),
        above_is_bad=above,
        reason=_reason(found),
    )


def _reason(found: Mapping[str, Any]) -> Reason | None:
    """Return the code if it is there, else what the text of 0.1.0 says."""
    text = _text(found.get("reason", ""), "reason")
    if "reason_code" not in found:
        return read_reason(text) if text else None
    return _coded({"code": found["reason_code"], "params": found.get("reason_params", {}), "text": text}, "reason_code")


def _coded(value: Any, name: str) -> Reason:
    try:
        return read_reason(value)
    except ValueError as e:
        raise DamagedError(f"{name}: {e}") from None


def _not_compared(found: Mapping[str, Any]) -> dict[str, Reason]:
    codes = _object(found.get("not_compared_reasons", {}), "not_compared_reasons")
    texts = _object(found.get("not_compared"), "not_compared")
    return {
        name: _coded({"text": text, **_object(codes[name], name)}, name)
        if name in codes
        else read_reason(_text(text, f"not_compared.{name}"))
        for name, text in texts.items()
    }


def _confidence(found: Mapping[str, Any]) -> Any:
    """Return the word; 0.1.0 called it `sureness` and the middle one `fair`."""
    word = found.get("confidence", found.get("sureness"))
    return "medium" if word == "fair" else word


def _worst_row(data: Any) -> WorstRow:
    found = _object(data, "a row")
    text = _text(found.get("row_id"), "row_id")
    try:
        row_id = int(text, 16)
    except ValueError:
        raise DamagedError(f"row_id is {text!r:.60}, expected hexadecimal digits") from None
    return WorstRow(
        row_id=row_id,
        aspect=_member(Aspect, found.get("aspect"), "aspect"),
        logprob_abs_diff_mean=_float(found.get("logprob_abs_diff_mean"), "logprob_abs_diff_mean"),
        logprob_abs_diff_max=_float(found.get("logprob_abs_diff_max"), "logprob_abs_diff_max"),
    )


def _evidence(data: Any) -> VerdictEvidence:
    found = _object(data, "evidence")
    return VerdictEvidence(_int(found, "scenario"), _int(found, "global_step"), _finding(found.get("finding")))


def _two(value: Any, name: str) -> tuple[float | None, float | None]:
    if not isinstance(value, list) or len(value) != 2:
        raise DamagedError(f"{name} is {value!r:.60}, expected two numbers")
    return _maybe(value[0], name), _maybe(value[1], name)


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DamagedError(f"{name} is {type(value).__name__}, expected an object")
    return value


def _list(found: Mapping[str, Any], name: str) -> list[Any]:
    value = found.get(name)
    if not isinstance(value, list):
        raise DamagedError(f"{name} is {type(value).__name__}, expected a list")
    return value


def _int(found: Mapping[str, Any], name: str) -> int:
    value = found.get(name)
    if type(value) is not int:
        raise DamagedError(f"{name} is {value!r:.60}, expected an integer")
    return value


def _float(value: Any, name: str) -> float:
    if isinstance(value, str) and value in NOT_FINITE:
        return NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DamagedError(f"{name} is {value!r:.60}, expected a number")
    return float(value)


def _maybe(value: Any, name: str) -> float | None:
    return None if value is None else _float(value, name)


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise DamagedError(f"{name} is {value!r:.60}, expected text")
    return value


def _member(kind: type[_E], value: Any, name: str) -> _E:
    try:
        return kind(value)
    except ValueError:
        raise DamagedError(
            f"{name} is {value!r:.60}, expected one of {', '.join(each.value for each in kind)}"
        ) from None


def _finite_again(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite_again(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_finite_again(each) for each in value]
    return NOT_FINITE.get(value, value) if isinstance(value, str) else value
