# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Chooses the form in which two runs exchange the actor: upstream's checkpoint, or weights for any layout of ranks.

Both runs choose from the same two cards by the same rules, so they choose the same without a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.agreement.table import new_workers
from verl.crosscheck.errors import MismatchError
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.settings import CkptFormat

KEY = "trainer.share_data_ckpt_format"
ACTOR = "actor_rollout_ref.actor"

SPLITS = (
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
)
"""Keys of Megatron's kinds of parallelism."""

DIVISION = "division of the optimizer"
OPTIMIZER_PARTS = {
    "fsdp": ("fsdp_config.use_orig_params", "fsdp_config.wrap_policy."),
    "megatron": ("megatron.use_mbridge", "megatron.use_distributed_optimizer", "megatron.vanilla_mbridge"),
}
"""By strategy: keys of the actor, or starts of such, that decide how a native checkpoint divides the optimizer."""

SUPPORTED = ("fsdp", "fsdp2", "megatron")
"""Values of `actor.strategy` whose weights can be written and read in the portable form."""


@dataclass(frozen=True)
class FormatChoice:
    """What two runs exchange, and why."""

    format: CkptFormat
    """`NATIVE` or `PORTABLE`."""
    reason: str


def choose(own: Card, other: Card) -> FormatChoice:
    """Return the form of the checkpoints of a pair; the same for both runs.

    Raises:
        MismatchError: the two ask for different forms, native ones would not load, or one of the two has no portable
            ones; says what to set.
    """
    asked = [asked_for(card) for card in (own, other)]
    explicit = {each for each in asked if each is not CkptFormat.AUTO}
    if len(explicit) > 1:
        raise MismatchError(
            f"this run has {KEY}={asked[0].value} and the other run, {other.identity}, has {asked[1].value}, so "
            f"neither could load the other's checkpoints. Give both the same; {KEY}=auto fits every pair"
        )
    different = differences(own, other)
    if CkptFormat.PORTABLE in explicit or (different and CkptFormat.NATIVE not in explicit):
        _require_portable(own, other, different)
        return FormatChoice(CkptFormat.PORTABLE, "; ".join(different) or f"{KEY}=portable")
    if different:
        raise MismatchError(
            f"this run and the other run, {other.identity}, could not load each other's checkpoints: "
            f"{'; '.join(different)}. Upstream's own load only on the same layout; exchange portable ones, with "
            f"{KEY}=auto on both runs"
        )
    return FormatChoice(CkptFormat.NATIVE, f"{KEY}=native" if explicit else "both runs are laid out alike")


def asked_for(card: Card) -> CkptFormat:
    """Return the form that a run's configuration asks for; `AUTO` if it names none."""
    trainer = card.config.get("trainer")
    value = trainer.get("share_data_ckpt_format") if isinstance(trainer, Mapping) else None
    return next((each for each in CkptFormat if each.value == value), CkptFormat.AUTO)


def differences(own: Card, other: Card) -> list[str]:
    """Return in which ways the two layouts differ; empty if native checkpoints of one load in the other."""
    ours, theirs = layout_of(own), layout_of(other)
    if ours["strategy"] != theirs["strategy"]:
        del ours[DIVISION]  # each back end has its own keys
    return [f"{name} {ours[name]} here, {theirs[name]} there" for name in ours if ours[name] != theirs[name]]


def layout_of(card: Card) -> dict[str, str]:
    """Return what a native checkpoint of this run depends on, by name."""
    flat = flatten(card.config)
    return {
        "device": card.device,
        "world size": str(card.world_size),
        "strategy": _strategy(flat, card.strategy),
        "sharding": sharding_of(flat, card.strategy, card.world_size),
        DIVISION: _division(flat, _strategy(flat, card.strategy)),
    }


def _strategy(flat: Mapping[str, Any], said: str) -> str:
    """Return the strategy that the workers use: the new FSDP workers read the engine's own key."""
    by_engine = new_workers(flat) and said in ("fsdp", "fsdp2")
    return str(flat.get(f"{ACTOR}.fsdp_config.strategy") or said) if by_engine else said


def _division(flat: Mapping[str, Any], strategy: str) -> str:
    starts = tuple(f"{ACTOR}.{key}" for key in OPTIMIZER_PARTS.get(strategy, ()))
    found = {key.removeprefix(f"{ACTOR}."): value for key, value in flat.items() if starts and key.startswith(starts)}
    return ", ".join(f"{key}={value}" for key, value in sorted(found.items())) or "as ever"


def sharding_of(flat: Mapping[str, Any], strategy: str, world_size: int) -> str:
    """Return how the ranks divide the model, from a flat configuration."""
    if strategy == "megatron":
        sizes = {split: flat.get(f"{ACTOR}.megatron.{split}") for split in SPLITS}
        return (
            ", ".join(f"{split}={size}" for split, size in sizes.items() if size not in (None, 1)) or "over all ranks"
        )
    size = flat.get(f"{ACTOR}.fsdp_config.fsdp_size")
    whole = not isinstance(size, int) or not 0 < size < world_size
    return "over all ranks" if whole else f"over {size} ranks, replicated"


def why_not_portable(flat: Mapping[str, Any]) -> str:
    """Return why a run of a flat configuration can neither write nor read portable checkpoints; empty if it can.

    What only the workers know is asked of them at start: `portable.transfer.support`.
    """
    strategy = str(flat.get(f"{ACTOR}.strategy"))
    if strategy not in SUPPORTED:
        return f"its training back end is {ACTOR}.strategy={strategy}; {', '.join(SUPPORTED)} have them"
    bridged = flat.get(f"{ACTOR}.megatron.use_mbridge")
    if strategy == "megatron" and bridged is not None and not bridged:
        return f"Megatron's weights get their Hugging Face names by a bridge. Type {ACTOR}.megatron.use_mbridge=True"
    if strategy == "megatron" and flat.get("actor_rollout_ref.model.lora_rank"):
        return "LoRA adapters of Megatron have none. Type actor_rollout_ref.model.lora_rank=0"
    if flat.get(f"{ACTOR}.qat.enable") or flat.get(f"{ACTOR}.fsdp_config.qat.enable"):
        return "it trains quantisation-aware, whose scales have no Hugging Face names"
    return ""


def _require_portable(own: Card, other: Card, different: list[str]) -> None:
    for who, card in (("this run", own), (f"the other run, {other.identity},", other)):
        if reason := why_not_portable(flatten(card.config)):
            needed = f" They are needed, since {'; '.join(different)}." if different else ""
            raise MismatchError(f"{who} has no portable checkpoints: {reason}.{needed}")
