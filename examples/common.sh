# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What every launch script of this folder has in common. Sourced, not run: it checks the variables and makes OVERRIDES,
# the Hydra overrides of one side of a cross-check: GRPO with a vLLM rollout.
#
#   MODE   ckpt (own rollout, the other run's weights) or rollout (the other run's rollouts, own training)
#   DIR    directory that both runs reach, the same on both sides, another one for each scenario
#   MODEL  folder of the model
#   DATA   folder with train.parquet and test.parquet, or name the two files with TRAIN and VAL
#   RANKS  devices of each node (8); NODES nodes (1); STEPS steps of the run (8)
#   WORKERS upstream's implementation of the workers: auto, enable (legacy) or disable (new)

: "${MODE:?ckpt or rollout}" "${DIR:?directory that both runs reach}" "${MODEL:?folder of the model}"
if [[ -z "${TRAIN:-}" || -z "${VAL:-}" ]]; then
    : "${DATA:?folder with train.parquet and test.parquet}"
fi

OVERRIDES=(
    "trainer.share_data=$MODE"
    "trainer.share_data_dir='$DIR'"
    algorithm.adv_estimator=grpo
    "data.train_files='${TRAIN:-${DATA:-}/train.parquet}'"
    "data.val_files='${VAL:-${DATA:-}/test.parquet}'"
    data.seed=1
    data.train_batch_size=64
    data.max_prompt_length=1024
    data.max_response_length=2048
    "actor_rollout_ref.model.path='$MODEL'"
    actor_rollout_ref.model.use_remove_padding=True
    actor_rollout_ref.actor.ppo_mini_batch_size=64
    actor_rollout_ref.actor.use_dynamic_bsz=True
    actor_rollout_ref.actor.optim.lr=1e-6
    actor_rollout_ref.rollout.name=vllm
    actor_rollout_ref.rollout.n=8
    actor_rollout_ref.rollout.tensor_model_parallel_size=1
    # A truncated distribution has log-probs that training never computes, see docs/en/upstream_faults.md
    actor_rollout_ref.rollout.top_p=1.0
    actor_rollout_ref.rollout.top_k=-1
    # Without these the verdict lacks the rollout engine's half
    actor_rollout_ref.rollout.calculate_log_probs=True
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True
    "trainer.n_gpus_per_node=${RANKS:-8}"
    "trainer.nnodes=${NODES:-1}"
    "trainer.total_training_steps=${STEPS:-8}"
    "trainer.use_legacy_worker_impl=${WORKERS:-auto}"
    trainer.val_before_train=False
    'trainer.logger=["console"]'
    "trainer.experiment_name=crosscheck-$MODE"
)
