# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts of a run as plain JSON that two runs can compare: model, tokenizer, data, files, and what settings mean that
back ends name differently.

Called once in the trainer's process, before the first exchange. A fact that cannot be had is `{"not_known": reason}`.
Compared by `verl.crosscheck.agreement.compare.fact_differences`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from verl.crosscheck.agreement.compare import NOT_KNOWN, flatten, not_known
from verl.crosscheck.agreement.facts_data import data_facts
from verl.crosscheck.agreement.facts_model import config_of_folder, model_facts, tokenizer_facts
from verl.crosscheck.agreement.table import has_critic
from verl.crosscheck.reasons import ReasonCode, because, free_text

FILE_KEYS = (
    "critic.model.path",
    "actor_rollout_ref.model.lora_adapter_path",
    "reward.reward_model.model_path",
    "reward.custom_reward_function.path",
    "reward.reward_manager.module.path",
    "data.custom_cls.path",
    "data.datagen.path",
    "data.sampler.class_path",
    "data.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.tool_config_path",
    "actor_rollout_ref.rollout.multi_turn.interaction_config_path",
    "actor_rollout_ref.rollout.agent.agent_loop_config_path",
)
"""Keys that name a file or folder whose content takes part in a step."""

_ADAMW = frozenset({"adam", "adamw"})
"""Names of Adam with decoupled weight decay: Megatron's, and that of the others."""


def collect_facts(trainer: Any) -> dict[str, Any]:
    """Return all facts of a trainer that has its data loaders, such as upstream's `RayPPOTrainer` before `fit`.

    Never raises. Changes neither the order of the rows to come nor any random state.
    """
    config = _known(lambda: _plain(trainer.config))
    if NOT_KNOWN in config:
        config = {}
    flat = flatten(config)
    model = "actor_rollout_ref.model"
    return {
        "model": _known(lambda: model_facts(flat[f"{model}.path"], _section(config, f"{model}.override_config"))),
        "tokenizer": _known(lambda: tokenizer_facts(trainer.tokenizer)),
        "data": _known(
            lambda: data_facts(
                trainer.train_dataset,
                trainer.val_dataset,
                trainer.train_dataloader.sampler,
                trainer.train_dataloader.batch_size,
            )
        ),
        "sampling": _known(lambda: sampling_facts(config)),
        "optimiser": _known(lambda: optimiser_facts(config)),
        "files": _known(lambda: file_facts(config)),
    }


def sampling_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what 0.7.1's agent loop asks of the engine under a resolved configuration, in training and validation."""
    flat = flatten(config)
    rollout = "actor_rollout_ref.rollout"
    engine = flat[f"{rollout}.name"]
    longest = flat[f"{rollout}.prompt_length"] + flat[f"{rollout}.response_length"]
    limit = flat.get(f"{rollout}.engine_kwargs.{engine}.max_model_len", flat.get(f"{rollout}.max_model_len"))
    return {
        "training": {name: flat[f"{rollout}.{name}"] for name in ("temperature", "top_p", "top_k", "n")},
        "validation": {
            name: flat[f"{rollout}.val_kwargs.{name}"] for name in ("temperature", "top_p", "top_k", "n", "do_sample")
        },
        "max_response_tokens": flat[f"{rollout}.response_length"],
        "max_sequence_tokens": longest if limit is None else min(limit, longest),
        "ignore_eos": flat[f"{rollout}.ignore_eos"],
        "logprobs": flat[f"{rollout}.calculate_log_probs"],
        "logprobs_mode": _logprobs_mode(flat, rollout, engine),
    }


def _logprobs_mode(flat: Mapping[str, Any], rollout: str, engine: str) -> Any:
    if engine != "vllm":
        return not_known(because(ReasonCode.NO_SUCH_SETTING, engine=engine))
    return flat.get(f"{rollout}.engine_kwargs.vllm.logprobs_mode", flat[f"{rollout}.logprobs_mode"])


def optimiser_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return optimiser, schedule and gradient clipping of actor and critic, which each back end names differently."""
    flat = flatten(config)
    sections = {"actor": "actor_rollout_ref.actor", **({"critic": "critic"} if has_critic(flat) else {})}
    return {name: _optimiser(flat, section) for name, section in sections.items()}


def _optimiser(flat: Mapping[str, Any], section: str) -> dict[str, Any]:
    backend = str(flat[f"{section}.strategy"]).removesuffix("2")
    optim = {key.rpartition(".")[2]: value for key, value in flat.items() if key.startswith(f"{section}.optim.")}
    algorithm = str(optim.get("optimizer") or optim.get("name")).lower()
    # Only the old FSDP workers, which `auto` means as well, have a key of their own for it.
    old_fsdp = backend == "fsdp" and flat.get("trainer.use_legacy_worker_impl") != "disable"
    clip = flat[f"{section}.grad_clip"] if old_fsdp else optim.get("grad_clip") or optim["clip_grad"]
    return {
        "algorithm": "adamw" if algorithm in _ADAMW else algorithm,
        "gradient_clip": clip,
        **_schedule(backend, optim),
    }


def _schedule(backend: str, optim: Mapping[str, Any]) -> dict[str, Any]:
    """Return the shape of the learning rate over the run, and the last rate unless the shape is constant."""
    if backend == "fsdp":
        shape, floor = (
            optim.get("warmup_style") or optim["lr_scheduler_type"],
            optim["lr"] * (optim["min_lr_ratio"] or 0),
        )
    elif backend == "megatron":
        shape, floor = optim["lr_decay_style"], optim["min_lr"]
    elif backend == "veomni":
        shape, floor = optim["lr_scheduler_type"], optim["lr_min"]
    else:
        return {"schedule": not_known(because(ReasonCode.SCHEDULE_UNKNOWN, backend=str(backend)))}
    return {"schedule": shape, "last_lr": None if shape == "constant" else floor}


def file_facts(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of the files that `FILE_KEYS` name, by key: a digest of a file, the configuration of a folder.

    Only the file itself is read, not what it imports.
    """
    flat = flatten(config)
    keys = [key for key in FILE_KEYS if key in flat and (has_critic(flat) or not key.startswith("critic."))]
    return {key: _known(lambda key=key: _content(flat[key])) for key in keys}  # type: ignore[misc]


def _content(named: str | None) -> Any:
    if named is None or named.startswith("pkg://"):
        return named
    path = Path(named.removeprefix("file://")).expanduser()
    if path.is_dir():
        return config_of_folder(path)
    if not path.is_file():
        return not_known(because(ReasonCode.NO_FILE, path=named))
    return hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()


def _plain(config: Any) -> dict[str, Any]:
    """Return a configuration, OmegaConf's or a mapping, as nested dicts with everything resolved."""
    from omegaconf import OmegaConf

    plain = OmegaConf.to_container(config, resolve=True) if OmegaConf.is_config(config) else config
    return dict(plain)


def _section(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the section at a dotted key; empty if there is none."""
    for name in key.split("."):
        found = config.get(name)
        config = found if isinstance(found, Mapping) else {}
    return config


def _known(look: Callable[[], Any]) -> Any:
    """Return what `look` finds, or why it finds nothing."""
    try:
        return look()
    except Exception as e:
        return not_known(free_text(f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"))
