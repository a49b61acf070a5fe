# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How a run samples and trains, as far as its evidence cannot be read without it: thresholds depend on precision, the
test of the sampling on the temperature, the test of the ends of responses on the tokens that end one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from verl.crosscheck.agreement.batch_split import batch_split_of
from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.agreement.facts_model import configuration_of
from verl.crosscheck.agreement.table import new_workers
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.utils.torch_dtypes import PrecisionType

ROLLOUT, ACTOR = "actor_rollout_ref.rollout", "actor_rollout_ref.actor"

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""Keys under which model configurations keep their number of experts."""


def sampling_of(config: Any, tokenizer: Any = None) -> tuple[dict[str, Any], dict[str, Reason]]:
    """Return what `StepEvidence.sampling` holds, and what of it is missing and why. Never raises.

    Args:
        config: the run's whole configuration.
        tokenizer: of the trainer.
    """
    flat = flatten(OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config)
    missing: dict[str, Reason] = {}
    found = {
        "engine": flat.get(f"{ROLLOUT}.name"),
        "n": flat.get(f"{ROLLOUT}.n"),
        "temperature": flat.get(f"{ROLLOUT}.temperature"),
        "top_p": flat.get(f"{ROLLOUT}.top_p"),
        "top_k": flat.get(f"{ROLLOUT}.top_k"),
        "max_tokens": flat.get(f"{ROLLOUT}.response_length"),
        "ignore_eos": bool(flat.get(f"{ROLLOUT}.ignore_eos")),
        "multi_turn": bool(flat.get(f"{ROLLOUT}.multi_turn.enable")),
        "rollout_dtype": _dtype(flat.get(f"{ROLLOUT}.dtype")),
        "quantization": flat.get(f"{ROLLOUT}.quantization"),
        "train_dtype": _dtype(flat.get(f"{ACTOR}.fsdp_config.dtype") or flat.get(f"{ACTOR}.megatron.dtype")),
        "loss_agg_mode": flat.get(f"{ACTOR}.loss_agg_mode"),
        "critic": _has_critic(flat),
        "workers": _workers(flat),
        "portions": batch_split_of(flat).to_json(),
    }
    try:
        model = configuration_of(str(flat["actor_rollout_ref.model.path"]))
    except Exception as e:
        model = {}
        missing["sampling/moe"] = because(ReasonCode.MODEL_CONFIG_UNREADABLE, error=type(e).__name__)
    found["moe"] = _has_experts(model)
    if why := _no_room(flat):
        found["max_tokens"], missing["sampling/max_tokens"] = None, why
    certain, possible = _stop_token_ids(flat, tokenizer, model)
    found["stop_token_ids"] = sorted(possible)
    found["certain_stop_token_ids"] = [] if found["ignore_eos"] or found["multi_turn"] else sorted(certain)
    if not found["stop_token_ids"]:
        missing["sampling/stop_token_ids"] = because(ReasonCode.NO_END_MARK)
    return found, missing


def _workers(flat: Mapping[str, Any]) -> str:
    """Return which of upstream's workers train, such as `legacy fsdp`: they do not log all metrics alike."""
    kind = "new" if new_workers(flat) else "legacy"
    return f"{kind} {str(flat.get(f'{ACTOR}.strategy')).replace('fsdp2', 'fsdp')}"


def _has_critic(flat: Mapping[str, Any]) -> bool:
    """Return whether a critic is trained: as upstream decides, by `critic.enable`, or by the advantage estimator."""
    enabled = flat.get("critic.enable")
    return bool(enabled) if enabled is not None else flat.get("algorithm.adv_estimator") == "gae"


def _no_room(flat: Mapping[str, Any]) -> Reason | None:
    """Return why long prompts may leave responses less room than their length limit; None if there is enough."""
    names = (f"{ROLLOUT}.max_model_len", f"{ROLLOUT}.prompt_length", f"{ROLLOUT}.response_length")
    room, prompt, response = (flat.get(name) for name in names)
    if not (isinstance(room, int) and isinstance(prompt, int) and isinstance(response, int)):
        return None
    if room >= prompt + response:
        return None
    return because(ReasonCode.NO_ROOM, key=names[0], room=room, prompt=prompt, response=response)


def _dtype(value: Any) -> str:
    """Return torch's name of a precision; upstream's default where none is set."""
    try:
        return str(PrecisionType.to_dtype(value or "bfloat16")).removeprefix("torch.")
    except (RuntimeError, ValueError, TypeError):
        return str(value)


def _has_experts(model: Mapping[str, Any]) -> bool:
    """Return whether a model's configuration, or a part of it, has several experts."""
    for key, value in model.items():
        if key in EXPERTS and isinstance(value, int) and value > 1:
            return True
        if isinstance(value, Mapping) and _has_experts(value):
            return True
    return False


def _stop_token_ids(flat: Mapping[str, Any], tokenizer: Any, model: Mapping[str, Any]) -> tuple[set[int], set[int]]:
    """Return the tokens that end a response in every engine, those of tokenizer and generation configuration, and
    those that may end one, that of the model's configuration too."""
    file = Path(str(flat.get("actor_rollout_ref.model.path"))).expanduser() / "generation_config.json"
    try:
        generation = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        generation = {}
    certain = _ids(getattr(tokenizer, "eos_token_id", None)) | _ids(generation.get("eos_token_id"))
    return certain, certain | _ids(model.get("eos_token_id"))


def _ids(named: Any) -> set[int]:
    return {each for each in (named if isinstance(named, list | tuple) else [named]) if isinstance(each, int)}
