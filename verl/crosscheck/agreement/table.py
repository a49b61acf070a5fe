# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which keys of two runs' configurations may differ, and why. All others must agree, unknown ones too.

A key may differ if two healthy runs that differ in it alone do the same arithmetic on the same rows, except for
rounding. Called by `compare`; data and matching, nothing else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

from verl.crosscheck.reasons import ReasonCode


class Scope(Enum):
    """When a rule holds."""

    ALWAYS = "always"
    OTHER_BACKEND = "the two runs train with different back ends"
    ONE_SIDED = "the two runs train with different back ends, and only one of them has the key"
    RESUMED = "one of the runs, or both, go on from a checkpoint"
    NO_CRITIC = "neither run trains a critic"
    SAME_MEAN = "the actor's loss is the same mean however its rows are split"


@dataclass(frozen=True)
class Rule:
    """Keys that may differ.

    Args:
        pattern: Dotted, one part for each part of a key. `*` stands for any characters of a part, `|` separates
            alternatives of a part, and `**` stands for any number of parts, also none.
        reason: Why a difference is harmless, or what compares it better; completes "may differ: ...".
        scope: When it holds.
    """

    pattern: str
    reason: ReasonCode
    scope: Scope = Scope.ALWAYS

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        return re.compile("".join(_part(part) for part in self.pattern.split(".")))

    def matches(self, key: str) -> bool:
        return self._regex.fullmatch(key + ".") is not None


def _part(part: str) -> str:
    if part == "**":
        return r"(?:[^.]+\.)*"
    alternatives = (re.escape(each).replace(r"\*", r"[^.]*") for each in part.split("|"))
    return f"(?:{'|'.join(alternatives)})\\."


@dataclass(frozen=True)
class Situation:
    """What is known of a pair of runs, for the scopes of rules."""

    other_backend: bool
    resumed: bool
    no_critic: bool
    same_mean: bool

    @classmethod
    def of(cls, own: Mapping[str, Any], other: Mapping[str, Any], *, resumed: bool) -> Situation:
        """Return the situation of two flat configurations."""
        return cls(
            other_backend=_backends(own) != _backends(other),
            resumed=resumed,
            no_critic=not (has_critic(own) or has_critic(other)),
            same_mean=splits_evenly(own) and splits_evenly(other),
        )

    def allows(self, scope: Scope, *, one_sided: bool) -> bool:
        return {
            Scope.ALWAYS: True,
            Scope.OTHER_BACKEND: self.other_backend,
            Scope.ONE_SIDED: self.other_backend and one_sided,
            Scope.RESUMED: self.resumed,
            Scope.NO_CRITIC: self.no_critic,
            Scope.SAME_MEAN: self.same_mean,
        }[scope]


def _backends(flat: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the training back ends of actor and critic; FSDP and FSDP2 are configured by the same keys."""
    names = (str(flat.get(key)) for key in ("actor_rollout_ref.actor.strategy", "critic.strategy"))
    return tuple("fsdp" if name == "fsdp2" else name for name in names)


def new_workers(flat: Mapping[str, Any]) -> bool:
    """Return whether upstream's new workers train."""
    return bool(flat.get("trainer.use_legacy_worker_impl") == "disable")


def splits_evenly(flat: Mapping[str, Any]) -> bool:
    """Return whether the actor's loss is the same however a mini-batch is split into micro-batches and over ranks.

    0.7.1's legacy actor takes the mean over the tokens of each micro-batch and then the mean of those, which weighs the
    tokens of a short one more. The new workers count the tokens of all micro-batches first.
    """
    return new_workers(flat) or flat.get("actor_rollout_ref.actor.loss_agg_mode", "token-mean") != "token-mean"


def has_critic(flat: Mapping[str, Any]) -> bool:
    """Return whether the run has a critic, as upstream decides it; true if in doubt."""
    enabled = flat.get("critic.enable")
    return flat.get("algorithm.adv_estimator", "gae") == "gae" if enabled is None else bool(enabled)


def allowing_rule(key: str, situation: Situation, *, one_sided: bool) -> Rule | None:
    """Return the first rule of the table by which `key` may differ; None if it must agree.

    Args:
        one_sided: Whether only one of the two runs has the key.
    """
    return next(
        (rule for rule in TABLE if situation.allows(rule.scope, one_sided=one_sided) and rule.matches(key)), None
    )


_ENGINE = "**.fsdp_config|megatron|torchtitan|veomni"
"""Sections that say how a model is laid out on devices for training."""
_MEGATRON_MODEL = "**.megatron.override_transformer_config"


def _may_differ(reason: ReasonCode, *patterns: str, scope: Scope = Scope.ALWAYS) -> Iterator[Rule]:
    return (Rule(pattern, reason, scope) for pattern in patterns)


TABLE: tuple[Rule, ...] = (
    # The cross-check itself, and what is at hand
    *_may_differ(ReasonCode.OWN_PART, "trainer.share_data*"),
    *_may_differ(ReasonCode.HARDWARE, "trainer.device"),
    *_may_differ(
        ReasonCode.DEVICE_COUNT,
        "trainer.nnodes|n_gpus_per_node",
        "**.rollout.nnodes|n_gpus_per_node",
        "**.reward_model.enable_resource_pool|nnodes|n_gpus_per_node",
    ),
    *_may_differ(
        ReasonCode.BACK_END,
        "model_engine",
        "actor_rollout_ref.actor|ref.strategy",
        "critic.strategy",
        f"{_ENGINE}.strategy",
        "trainer.use_legacy_worker_impl",
    ),
    *_may_differ(
        ReasonCode.RUN_LENGTH,
        "actor_rollout_ref.actor.optim.total_training_steps",
        "critic.optim.total_training_steps",
    ),
    *_may_differ(ReasonCode.CLASS_NAME, "**._target_"),
    # Layout: the same sums, on other devices or split differently
    *_may_differ(
        ReasonCode.PARALLEL_LAYOUT,
        "**.*parallel_size",
        f"{_ENGINE}.fsdp_size|*_parallel_replicate_size|*_parallel_shard_size",
        f"{_ENGINE}.sequence_parallel|use_distributed_optimizer|enable_full_shard|reshard_after_forward",
        f"{_ENGINE}.wrap_policy.**",
        f"{_ENGINE}.use_orig_params|forward_prefetch|init_device",
        "**.megatron.override_ddp_config.**",
        f"{_MEGATRON_MODEL}.*pipeline*|*parallel*|moe_token_dispatcher_type|*overlap*",
    ),
    *_may_differ(
        ReasonCode.UPDATE_PARTS,
        "actor_rollout_ref.actor.*micro_batch_size|*micro_batch_size_per_gpu|use_dynamic_bsz|*max_token_len_per_gpu",
        "critic.*micro_batch_size|*micro_batch_size_per_gpu|use_dynamic_bsz|*max_token_len_per_gpu",
        scope=Scope.SAME_MEAN,
    ),
    *_may_differ(
        ReasonCode.FORWARD_PARTS,
        "**.log_prob_*micro_batch_size*|log_prob_use_dynamic_bsz|log_prob_max_token_len_per_gpu",
        "**.forward_micro_batch_size*|forward_max_token_len_per_gpu|infer_micro_batch_size*|infer_max_token_len*",
        "**.model.tiled_mlp.**",
        "**.entropy_from_logits_with_chunking",
    ),
    *_may_differ(
        ReasonCode.MEMORY,
        f"{_ENGINE}.*_offload|offload_policy|activation_gpu_limit|enable_reentrant",
        "**.optim.override_optimizer_config.*offload*|overlap_*|*precision_aware*",
        "**.model.enable_gradient_checkpointing|enable_activation_offload",
        "**.entropy_checkpointing|sum_pi_squared_checkpointing",
        f"{_MEGATRON_MODEL}.recompute_*|swap_*",
        "actor_rollout_ref.rollout.layered_summon",
    ),
    # Kernels and number formats
    *_may_differ(
        ReasonCode.KERNELS,
        "**.use_torch_compile|use_remove_padding|use_fused_kernels|use_prefix_grouper",
        "**.model.use_liger",
        "**.model.fused_kernel_options.**",
        "**.model.external_lib",
        "**.model.override_config.**.attn_implementation",
        f"{_ENGINE}.attn_type|attn_implementation|moe_implementation|force_use_huggingface",
        f"{_ENGINE}.full_determinism",
        f"{_MEGATRON_MODEL}.attention_backend",
        f"{_MEGATRON_MODEL}.use_flash_attn|*fusion|*fused*|moe_grouped_gemm|moe_enable_deepep|persist_layer_norm",
        "**.megatron.use_mbridge|vanilla_mbridge",
    ),
    *_may_differ(
        ReasonCode.MINDSPEED,
        f"{_MEGATRON_MODEL}.position_embedding_type|normalization",
    ),
    *_may_differ(
        ReasonCode.NUMBER_FORMAT,
        f"{_ENGINE}.dtype|model_dtype|mixed_precision",
        f"{_ENGINE}.mixed_precision.**",
        f"{_MEGATRON_MODEL}.moe_router_dtype",
    ),
    # The rollout engine under test
    *_may_differ(
        ReasonCode.ROLLOUT_ENGINE,
        "**.rollout.name|dtype|quantization|quantization_config_file|load_format|scheduling_policy",
        "**.rollout.engine_kwargs",
        "**.rollout.engine_kwargs.**",
        "**.rollout.gpu_memory_utilization|enforce_eager|cudagraph_capture_sizes|free_cache_engine|multi_stage_wake_up",
        "**.rollout.max_num_batched_tokens|max_num_seqs|max_model_len|enable_chunked_prefill|enable_prefix_caching",
        "**.rollout.disable_log_stats|skip_tokenizer_init|enable_sleep_mode",
        "actor_rollout_ref.rollout.agent.custom_async_server.**",
        "actor_rollout_ref.rollout.agent.agent_loop_manager_class",
        "actor_rollout_ref.rollout.checkpoint_engine.**",
    ),
    *_may_differ(
        ReasonCode.SPECULATION,
        "**.mtp.enable_rollout|speculative_*|method|num_speculative_tokens",
    ),
    *_may_differ(
        ReasonCode.ROLLOUT_SKIP,
        "actor_rollout_ref.rollout.skip_rollout|skip_dump_dir|skip_index",
    ),
    # Paths, which differ between hosts; what lies there is compared
    *_may_differ(ReasonCode.DATA_PATH, "data.train_files|val_files"),
    *_may_differ(
        ReasonCode.MODEL_PATH,
        "actor_rollout_ref.model.path|hf_config_path",
    ),
    *_may_differ(
        ReasonCode.TOKENIZER_PATH,
        "data.tokenizer",
        "**.model.tokenizer_path",
    ),
    *_may_differ(
        ReasonCode.FILE_PATH,
        "critic.model.path",
        "actor_rollout_ref.model.lora_adapter_path",
        "reward.reward_model.model_path",
        "reward_model.model.path",
        "**.custom_reward_function.path",
        "reward.reward_manager.module.path",
        "reward_model.reward_loop_module_path",
        "data.custom_cls|datagen.path",
        "data.sampler.class_path",
        "data.tool_config_path",
        "actor_rollout_ref.rollout.multi_turn.tool_config_path|interaction_config_path",
        "actor_rollout_ref.rollout.agent.agent_loop_config_path",
    ),
    *_may_differ(
        ReasonCode.HOST_FILES,
        "data.use_shm|cache_dir",
        "**.model.use_shm",
        "**.router_replay.record_file|replay_file",
        "**.sandbox_fusion.url",
        f"{_ENGINE}.use_dist_checkpointing|dist_checkpointing_*|dist_ckpt_*|distrib_optim_*|ckpt_manager",
    ),
    *_may_differ(ReasonCode.REMOTE_CODE, "**.trust_remote_code"),
    # Processes
    *_may_differ(
        ReasonCode.PROCESSES,
        "data.dataloader_num_workers|filter_overlong_prompts_workers",
        "reward|reward_model.num_workers",
        "actor_rollout_ref.rollout.agent.num_workers",
        "**.sandbox_fusion.max_concurrent",
        "**.nccl_timeout",
        "trainer.ray_wait_register_center_timeout",
        "transfer_queue.**",
        "ray_kwargs.**",
    ),
    # What a run keeps and tells
    *_may_differ(
        ReasonCode.OWN_CHECKPOINTS,
        "**.checkpoint.**",
        "**.optim.use_checkpoint_opt_param_scheduler",
        "trainer.save_freq|esi_redundant_time|max_actor_ckpt_to_keep|max_critic_ckpt_to_keep",
        "trainer.resume_mode|resume_from_path|default_local_dir|default_hdfs_dir|del_local_ckpt_after_load",
    ),
    *_may_differ(
        ReasonCode.NAMES_AND_LOGS,
        "trainer.project_name|experiment_name|logger|log_val_generations|rollout_data_dir|validation_data_dir",
        "actor_rollout_ref.rollout.trace.**",
        "actor_rollout_ref.rollout.prometheus.**",
    ),
    *_may_differ(ReasonCode.PROFILING, "global_profiler.**", "**.profiler.**"),
    # What depends on the pair
    *_may_differ(
        ReasonCode.RESUMED,
        "trainer.val_before_train",
        scope=Scope.RESUMED,
    ),
    *_may_differ(ReasonCode.NOTHING_READS_IT, "critic.**", scope=Scope.NO_CRITIC),
    *_may_differ(
        ReasonCode.OPTIMISER_WORD,
        "**.optim.optimizer|optimizer_impl|name",
        scope=Scope.OTHER_BACKEND,
    ),
    *_may_differ(
        ReasonCode.OPTIMISER_KEY,
        "actor_rollout_ref.actor|ref.optim.**",
        "critic.optim.**",
        "actor_rollout_ref.actor.grad_clip",
        "critic.grad_clip",
        scope=Scope.ONE_SIDED,
    ),
    *_may_differ(
        ReasonCode.ONE_BACK_END,
        f"{_ENGINE}.**",
        "**.qat",
        "**.qat.**",
        "actor_rollout_ref.rollout.layer_name_map.**",
        "**.model.lora.**",
        "critic.model.lora_*|target_modules",
        scope=Scope.ONE_SIDED,
    ),
    *_may_differ(
        ReasonCode.SPELLED_OTHERWISE,
        "actor_rollout_ref.model.override_config.**",
        "critic.model.override_config.**",
        scope=Scope.ONE_SIDED,
    ),
)
"""The first rule that matches gives the reason."""

UNSET_MEANS: tuple[tuple[Rule, Any], ...] = tuple(
    (Rule(pattern, ReasonCode.UNSET), value)
    for pattern, value in (
        ("trainer.val_only", False),
        ("**.load_weight", True),
        ("**.qat.enable", False),
        ("**.calculate_sum_pi_squared", False),
        ("**.megatron.router_replay.mode", "disabled"),
        ("**.override_config.moe_config.freeze_moe_router", False),
        ("**.model.lora_rank", 0),
        ("**.model.lora.rank", 0),
    )
)
"""A run that lacks such a key is compared as if it had the value, since its absence says just that."""


def meaning_of_unset(key: str) -> tuple[Any, ...]:
    """Return the value, as the only item, that a run without `key` has; empty if not known."""
    return next(((value,) for rule, value in UNSET_MEANS if rule.matches(key)), ())
