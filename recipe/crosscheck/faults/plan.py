# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A plan says which faults act in which steps: `stale_weights`, `temperature:1.2@3`, `top_k@2-4,dropout:0.05@5-`.

Pure. `str` of a plan is a text that `parse` reads as the same plan.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from recipe.crosscheck.faults.catalogue import CATALOGUE, ROLLOUT_FAULTS, Fault

VARIABLE = "VERL_CROSSCHECK_FAULTS"
"""Environment variable that carries a plan into the processes of a run."""

FIRST_STEP = 2
"""Where a fault begins that is planted without steps: one healthy step comes before."""

VLLM_FAULTS = ("stale_weights", "tensor_not_synced", "temperature")
"""Rollout faults that vLLM can be given from outside."""

SYNTAX = "NAME[:AMOUNT][@STEP|@FIRST-|@FIRST-LAST], more of them after commas"

_ROOT = Path(__file__).resolve().parents[3]
_ITEM = re.compile(r"(?P<name>\w+)(:(?P<amount>[^@]+))?(@(?P<first>\d+)(?P<to>-(?P<last>\d+)?)?)?")


class PlanError(ValueError):
    """A text that is no plan; says which part, and what would be one."""


@dataclass(frozen=True)
class PlantedFault:
    """A fault, how much of it, and its steps."""

    fault: Fault
    amount: float
    """0 for a fault that has no amount."""
    first: int
    last: int | None
    """None: to the end."""

    def acts_in(self, step: int) -> bool:
        return self.first <= step and (self.last is None or step <= self.last)

    def __str__(self) -> str:
        amount = "" if self.fault.amount is None else f":{self.amount!r}"
        last = "" if self.last is None else self.last
        steps = f"{self.first}" if self.first == self.last else f"{self.first}-{last}"
        return f"{self.fault.name}{amount}@{steps}"

    @property
    def sentence(self) -> str:
        """For people: what acts, when, and how much of it."""
        limits = self.fault.amount
        amount = "" if limits is None else f" ({limits.meaning}: {self.amount:g})"
        if self.first == self.last:
            steps = f"in step {self.first}"
        else:
            steps = f"from step {self.first} " + ("on" if self.last is None else f"to {self.last}")
        return f"{self.fault.name}, {steps}: it {self.fault.sentence}{amount}"


@dataclass(frozen=True)
class FaultPlan:
    """What is planted in one run; nothing if empty."""

    faults: tuple[PlantedFault, ...] = ()

    def acting(self, step: int) -> dict[str, float]:
        """Names of the faults that act in a step, and how much of each."""
        return {each.fault.name: each.amount for each in self.faults if each.acts_in(step)}

    def __bool__(self) -> bool:
        return bool(self.faults)

    def __str__(self) -> str:
        return ",".join(map(str, self.faults))


def parse(text: str) -> FaultPlan:
    """Read a plan; `none` plants nothing.

    Raises:
        PlanError: it cannot be read, names an unknown fault, or asks for what a fault cannot do.
    """
    if text.strip() == "none":
        return FaultPlan()
    planted = tuple(_parse_item(item.strip()) for item in text.split(","))
    for number, one in enumerate(planted):
        for other in planted[:number]:
            if one.fault is other.fault and _overlap(one, other):
                raise PlanError(f"{one.fault.name} is planted twice in the same step: {other} and {one}")
    return FaultPlan(planted)


def _parse_item(item: str) -> PlantedFault:
    found = _ITEM.fullmatch(item)
    if found is None:
        raise PlanError(f"{item!r} is no fault to plant. Write {SYNTAX}")
    fault = CATALOGUE.get(found["name"])
    if fault is None:
        raise PlanError(f"there is no fault {found['name']!r}. There are: {', '.join(CATALOGUE)}; none plants nothing")
    first = int(found["first"]) if found["first"] else FIRST_STEP
    last = None if found["first"] is None or found["to"] else first
    if found["last"]:
        last = int(found["last"])
    if first < fault.first_step or (last is not None and last < first):
        raise PlanError(f"{item!r}: steps of {fault.name} go upwards from {fault.first_step}")
    return PlantedFault(fault, _amount(fault, found["amount"], item), first, last)


def _amount(fault: Fault, text: str | None, item: str) -> float:
    if fault.amount is None:
        if text is not None:
            raise PlanError(f"{item!r}: {fault.name} has no amount; write {fault.name}")
        return 0.0
    if text is None:
        return fault.amount.default
    try:
        return fault.amount.require(float(text))
    except ValueError as e:
        raise PlanError(f"{item!r}: {e}") from None


def _overlap(one: PlantedFault, other: PlantedFault) -> bool:
    early, late = sorted((one, other), key=lambda each: each.first)
    return early.acts_in(late.first)


def overrides(plan: FaultPlan, engine: str = "hf") -> list[str]:
    """Hydra overrides of the run that has the faults; none for an empty plan.

    Args:
        engine: the run's `actor_rollout_ref.rollout.name`.

    Raises:
        PlanError: the engine cannot be given one of them.
    """
    if not plan:
        return []
    package = __name__.rpartition(".")[0]
    chosen = [f"actor_rollout_ref.model.external_lib={package}.planted"]
    of_rollout = [planted.fault for planted in plan.faults if planted.fault in ROLLOUT_FAULTS]
    if of_rollout and engine == "vllm":
        for fault in of_rollout:
            if fault.name not in VLLM_FAULTS:
                raise PlanError(f"vLLM cannot be given {fault.name} from outside, only {', '.join(VLLM_FAULTS)}")
        extension = f"{package}.vllm_engine.PlantedExtension"
        chosen.append(f"+actor_rollout_ref.rollout.engine_kwargs.vllm.worker_extension_cls={extension}")
    elif of_rollout:
        manager = f"{package}.rollout.PlantedAgentLoopManager"
        chosen.append(f"actor_rollout_ref.rollout.agent.agent_loop_manager_class={manager}")
    return chosen


def environment(plan: FaultPlan) -> dict[str, str]:
    """Environment variables of the run that has the faults; none for an empty plan."""
    if not plan:
        return {}
    inherited = os.environ.get("PYTHONPATH")
    return {VARIABLE: str(plan), "PYTHONPATH": os.pathsep.join(filter(None, (str(_ROOT), inherited)))}


def settings(plan: FaultPlan) -> list[str]:
    """Hydra overrides that both runs need, so that the faults act."""
    return list(dict.fromkeys(setting for planted in plan.faults for setting in planted.fault.settings))
