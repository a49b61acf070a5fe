# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the two updates did to the weights: of all, by layer, by kind of tensor and by tensor."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

from verl.crosscheck.diagnosis.assess import broken, measured, missing
from verl.crosscheck.diagnosis.findings import Aspect, Finding
from verl.crosscheck.diagnosis.predictions import Predictions
from verl.crosscheck.diagnosis.thresholds import TENSOR_WEIGHT, UNMOVED, UNMOVED_EXPERTS
from verl.crosscheck.evidence.step import StepEvidence
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.text import listed

TINY = 1e-12
"""Changes of which the norm is smaller are none."""
MAX_RATIO = 1e6
"""Stands for the ratio of a change to none."""
LEAST_PREDICTED = 0.1
"""Below, a prediction does not make a tensor stand out among the others."""


@dataclass(frozen=True)
class Squares:
    """Squared norms of the sampler's change of some tensors, of the taker's, and of the difference of both."""

    own: float
    other: float
    apart: float

    def __add__(self, more: Squares) -> Squares:
        return Squares(self.own + more.own, self.other + more.other, self.apart + more.apart)

    @property
    def finite(self) -> bool:
        return math.isfinite(self.own + self.other + self.apart)

    @property
    def larger(self) -> float:
        """Of the two changes."""
        return max(self.own, self.other)

    @property
    def relative(self) -> float:
        """How far the changes are apart, relative to the taker's."""
        return _ratio(math.sqrt(self.apart), math.sqrt(self.other))


Tensors = Mapping[str, Squares]
"""By name."""


def change_findings(sampler: StepEvidence, taker: StepEvidence, predictions: Predictions) -> list[Finding]:
    """Change of all weights; of the tensor, the kind of tensor and the layer that are furthest apart, beside what is
    predicted of each; and how many tensors one run alone left as they were."""
    tensors = _tensors(sampler, taker)
    if not tensors:
        reason = sampler.missing.get("changes") or taker.missing.get("changes")
        return [missing(Aspect.UPDATE, "change_rel_diff", reason or because(ReasonCode.NO_CHANGES))]
    if bad := [name for name, each in tensors.items() if not each.finite]:
        return [broken(Aspect.UPDATE, "change_rel_diff", because(ReasonCode.CHANGES_NOT_FINITE, names=listed(bad)))]
    total = _sum(tensors.values())
    if max(total.larger, total.apart) <= TINY**2:
        return [missing(Aspect.UPDATE, "change_rel_diff", because(ReasonCode.NO_WEIGHT_MOVED))]
    own, other = math.sqrt(total.own), math.sqrt(total.other)
    found = [
        measured(Aspect.UPDATE, "change_rel_diff", total.relative),
        measured(Aspect.UPDATE, "change_norm_rel_diff", _ratio(abs(own - other), max(own, other))),
    ]
    for quantity, group_of in (
        ("change_rel_diff_max", str),
        ("change_rel_diff_kind_max", kind_of),
        ("change_rel_diff_layer_max", layer_of),
    ):
        worst = _worst(quantity, _grouped(tensors, group_of), TENSOR_WEIGHT * total.larger, predictions)
        found += [] if worst is None else [worst]
    return [*found, *_unmoved_findings(tensors, total.larger)]


def relative_changes(sampler: StepEvidence, taker: StepEvidence) -> dict[str, float]:
    """Relative difference of the two runs' changes by tensor, largest first; without those that are not finite."""
    found = {name: each.relative for name, each in _tensors(sampler, taker).items() if each.finite}
    return dict(sorted(found.items(), key=lambda each: (-each[1], each[0])))


_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")
"""A part of a tensor's name that counts layers or experts."""


def kind_of(name: str) -> str:
    """The name of a tensor with `*` for the number of its layer and expert: `layers.*.self_attn.q_proj.weight`."""
    return _NUMBER.sub("*", name)


def layer_of(name: str) -> str:
    """The name of a tensor up to the number of its layer: `model.layers.3`; all of the name without one."""
    found = _NUMBER.search(name)
    return name if found is None else name[: found.end()]


def _tensors(sampler: StepEvidence, taker: StepEvidence) -> dict[str, Squares]:
    """The tensors of which the changes of both runs are known.

    The sampler measures both where it loads the taker's weights over its own; else there are the norms of both, and of
    norms alone the difference is at least theirs.
    """
    found = {}
    for name, change in sampler.changes.items():
        theirs = taker.changes.get(name)
        other = change.other if change.other is not None else theirs.own if theirs is not None else None
        if other is not None:
            apart = change.apart if change.apart is not None else abs(change.own - other)
            found[name] = Squares(change.own**2, other**2, apart**2)
    return found


def _sum(squares: Iterable[Squares]) -> Squares:
    return reduce(add, squares, Squares(0.0, 0.0, 0.0))


def _grouped(tensors: Tensors, group_of: Callable[[str], str]) -> dict[str, dict[str, Squares]]:
    """The tensors of each group."""
    found: dict[str, dict[str, Squares]] = {}
    for name, each in tensors.items():
        found.setdefault(group_of(name), {})[name] = each
    return found


def _worst(quantity: str, groups: Mapping[str, Tensors], least: float, predictions: Predictions) -> Finding | None:
    """The group that is furthest apart beside what is predicted of it; None if none carries weight.

    Args:
        least: squared norm of either run's change from which a group is judged. How far the two are apart does not
            count: of a tensor without a true gradient that is more than the change itself.
    """
    worst: tuple[float, Finding] | None = None
    for name, members in groups.items():
        together = _sum(members.values())
        if together.larger <= least:
            continue
        predicted = predictions.of_tensors({each: squares.other for each, squares in members.items()})
        far = together.relative / max(predicted or 0.0, LEAST_PREDICTED)
        if worst is None or far > worst[0]:
            finding = measured(Aspect.UPDATE, quantity, together.relative, because(ReasonCode.NAME, name=name))
            worst = far, replace(finding, predicted=predicted)
    return None if worst is None else worst[1]


def _unmoved_findings(tensors: Tensors, total: float) -> list[Finding]:
    """How many tensors one run left exactly as they were and the other moved.

    Few tensors that hardly move do not count: rounding may keep all of a tensor in 16 bits where it is, and an expert
    that one token reaches may get none in the other run.

    Args:
        total: squared norm of the change.
    """
    unmoved = {
        "sampler": {name: each.other for name, each in tensors.items() if each.own == 0.0 < each.other},
        "taker": {name: each.own for name, each in tensors.items() if each.other == 0.0 < each.own},
    }
    found = []
    for side, squares in unmoved.items():
        experts = {name: square for name, square in squares.items() if ".experts." in name}
        others = {name: square for name, square in squares.items() if name not in experts}
        counted = [
            *(others if sum(others.values()) > UNMOVED * total else ()),
            *(experts if sum(experts.values()) > UNMOVED_EXPERTS * total else ()),
        ]
        kinds = sorted(set(map(kind_of, counted)))
        which = because(ReasonCode.OF_TENSORS, count=len(tensors), names=listed(kinds)) if counted else None
        found.append(measured(Aspect.UPDATE, f"{side}_unmoved_tensors", len(counted), which))
    return found


def _ratio(apart: float, base: float) -> float:
    if apart <= TINY:
        return 0.0
    return min(apart / base, MAX_RATIO) if base > TINY else MAX_RATIO
