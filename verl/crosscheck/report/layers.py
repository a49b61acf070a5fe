# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Weight changes of the step in which they are furthest apart, gathered by layer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from verl.crosscheck.diagnosis.findings import Aspect, State, StepComparison

_NUMBERED = re.compile(r"(?:^|[.])(?:layers|h|blocks|block|layer)[.](\d+)[.]")
"""The layer's number in a tensor's name, in transformers, Megatron and older models alike."""


@dataclass(frozen=True)
class LayerChanges:
    """Relative difference of two runs' changes in one step."""

    global_step: int
    accused: bool
    """Whether the change of the weights differs in this step."""
    by_layer: Mapping[str, float]
    """Largest of each layer's tensors: embeddings, the layers by number, the rest."""
    by_tensor: Mapping[str, float]
    limit: float | None
    """Beyond which a tensor's difference counts; None if no finding says."""


def layer_changes(steps: Iterable[StepComparison]) -> LayerChanges | None:
    """Those of the first step in which they differ, else of the step with the largest; None if none were measured."""
    measured = [step for step in steps if step.changes]
    if not measured:
        return None
    largest = max(measured, key=lambda step: max(map(_size, step.changes.values())))
    accused = next((step for step in measured if _is_accused(step)), None)
    shown = accused or largest
    by_layer: dict[str, float] = {}
    for name, value in shown.changes.items():
        layer = layer_of(name)
        by_layer[layer] = max(by_layer.get(layer, 0.0), value, key=_size)
    ordered = sorted(by_layer.items(), key=lambda each: _order(each[0]))
    return LayerChanges(shown.global_step, accused is not None, dict(ordered), dict(shown.changes), _limit(shown))


def layer_of(tensor: str) -> str:
    """`12` for a tensor of layer 12; for others the part of the name that tells them apart, such as `embed_tokens`."""
    match = _NUMBERED.search(tensor)
    if match:
        return match.group(1)
    parts = [part for part in tensor.split(".") if part not in ("model", "module", "weight", "bias", "decoder")]
    return parts[-1] if parts else tensor


def _order(layer: str) -> tuple[int, int, str]:
    """Embeddings, then layers by number, then the rest."""
    if layer.isdigit():
        return 1, int(layer), ""
    return (0 if layer.startswith(("embed", "word_embed", "wte", "wpe")) else 2), 0, layer


def _size(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _is_accused(step: StepComparison) -> bool:
    return any(_is_of_changes(each.aspect, each.quantity) and each.state is State.DIFFER for each in step.findings)


def _is_of_changes(aspect: Aspect, quantity: str) -> bool:
    return aspect is Aspect.UPDATE and quantity.startswith("change_rel_diff")


def _limit(step: StepComparison) -> float | None:
    """That of a single tensor."""
    return next((each.limit for each in step.findings if each.quantity == "change_rel_diff_max"), None)
