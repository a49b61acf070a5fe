#!/usr/bin/env bash
# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
# One side of a cross-check on GPU: GRPO with Megatron and vLLM. Not run on hardware by its authors.
#
#   scenario 1   run A: MODE=ckpt    DIR=/mnt/shared/check-1 MODEL=... DATA=... examples/crosscheck_megatron_gpu.sh
#                run B: MODE=rollout DIR=/mnt/shared/check-1 MODEL=... DATA=... examples/crosscheck_megatron_gpu.sh
#   scenario 2   the other way round, in another directory
#
# common.sh explains the variables. Further overrides go to the end; give both sides the same, unless the difference is
# what you suspect.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

exec python -m verl.trainer.main_ppo --config-name=ppo_megatron_trainer "${OVERRIDES[@]}" \
    actor_rollout_ref.actor.megatron.tensor_model_parallel_size="${TP:-2}" \
    "$@"
