#!/usr/bin/env bash
# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
# One side of a cross-check: GRPO with FSDP and vLLM, on GPU or NPU. Not run on hardware by its authors.
#
#   MODE=ckpt    SHARE_DIR=/mnt/shared/check-1 MODEL=... TRAIN=... VAL=... examples/crosscheck_fsdp.sh   # run A, scenario 1
#   MODE=rollout SHARE_DIR=/mnt/shared/check-1 MODEL=... TRAIN=... VAL=... examples/crosscheck_fsdp.sh   # run B, scenario 1
#
# For scenario 2 swap the modes and name another empty directory. Further overrides go to the end; give both sides the
# same ones, unless the difference is what you suspect.
set -euo pipefail

: "${MODE:?rollout or ckpt}" "${SHARE_DIR:?directory that both runs reach}"
: "${MODEL:?folder of the model}" "${TRAIN:?training parquet}" "${VAL:?validation parquet}"

exec python -m verl.trainer.main_ppo \
    trainer.share_data="$MODE" \
    "trainer.share_data_dir='$SHARE_DIR'" \
    algorithm.adv_estimator=grpo \
    "data.train_files='$TRAIN'" \
    "data.val_files='$VAL'" \
    data.seed=1 \
    data.train_batch_size=64 \
    data.max_prompt_length=1024 \
    data.max_response_length=2048 \
    "actor_rollout_ref.model.path='$MODEL'" \
    actor_rollout_ref.model.use_remove_padding=True \
    actor_rollout_ref.actor.strategy=fsdp2 \
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \
    actor_rollout_ref.actor.use_dynamic_bsz=True \
    actor_rollout_ref.actor.optim.lr=1e-6 \
    actor_rollout_ref.rollout.name=vllm \
    actor_rollout_ref.rollout.n=8 \
    actor_rollout_ref.rollout.tensor_model_parallel_size=1 \
    actor_rollout_ref.rollout.log_prob_use_dynamic_bsz=True \
    actor_rollout_ref.rollout.calculate_log_probs=True \
    trainer.n_gpus_per_node="${RANKS:-8}" \
    trainer.total_training_steps="${STEPS:-20}" \
    trainer.val_before_train=False \
    trainer.logger='["console"]' \
    trainer.experiment_name="crosscheck-$MODE" \
    "$@"
