# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The LoRA adapters that training starts with, as a fact that two runs can compare.

Upstream draws them at random when no adapter is named, from a generator that nothing seeds for this purpose: two runs
on other devices, or with other numbers of ranks, start with other ones. Their first updates then differ, and nobody is
at fault.
"""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf

from verl.crosscheck.agreement.compare import not_known
from verl.crosscheck.reasons import ReasonCode, because, free_text
from verl.crosscheck.weights.calls import ask_all
from verl.crosscheck.weights.portable import on_worker
from verl.crosscheck.weights.portable.checksum import totals

MODEL = "actor_rollout_ref.model"


def trains_adapters(config: Any) -> bool:
    """Whether a run's whole configuration gives the actor LoRA adapters."""
    return any(OmegaConf.select(config, f"{MODEL}.{name}") for name in ("lora_rank", "lora.rank", "lora_adapter_path"))


def adapter_facts(actor: Any, global_step: int) -> dict[str, Any]:
    """How many adapter tensors there are, and their checksums, by number format and by PEFT's names; the same for every
    layout of ranks.

    Adapters in two number formats cannot be equal, so these have no common key and are not compared. Never raises.

    Args:
        actor: upstream's worker group that holds the actor.
        global_step: the steps that were done before. A run that goes on holds other adapters than it started with.
    """
    if global_step > 0:
        return not_known(because(ReasonCode.GOES_ON, step=global_step))
    try:
        ranks = ask_all(actor, on_worker.adapter_sums)
    except Exception as error:
        return not_known(free_text(str(error)))
    facts: dict[str, Any] = {}
    for dtype in sorted({name for rank in ranks for name in rank}):
        sums = totals(rank.get(dtype, []) for rank in ranks)
        facts[dtype] = {name: f"{replicas[min(replicas)].checksum:016x}" for name, replicas in sums.items()}
    return {"tensors": sum(map(len, facts.values())), **facts}


def critic_adapter_facts(config: Any) -> dict[str, Any]:
    """A fact of its own: that a critic's adapters, which are drawn likewise, are not looked at. Empty without any."""
    if not any(OmegaConf.select(config, f"critic.model.{name}") for name in ("lora_rank", "lora.rank")):
        return {}
    return {"critic_adapters": not_known(because(ReasonCode.CRITIC_ADAPTERS))}
