# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What the NPU scripts have in common. Sourced, not run. The set_env.sh of CANN's toolkit and of nnal come before.

# Runs that repeat: fixed order of sums in matrix products and in collectives
export CLOSE_MATMUL_K_SHIFT=1 ATB_MATMUL_SHUFFLE_K_ENABLE=0 HCCL_DETERMINISTIC=true VLLM_ENABLE_V1_MULTIPROCESSING=0
# Weights keep their layout, so that those sent by training arrive where the engine reads them
export VLLM_ASCEND_ENABLE_NZ="${VLLM_ASCEND_ENABLE_NZ:-0}"

OVERRIDES+=(
    trainer.device=npu
    actor_rollout_ref.actor.use_torch_compile=False
    actor_rollout_ref.ref.use_torch_compile=False
)
