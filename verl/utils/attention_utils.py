# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's padding functions; on a CPU its own pure-torch ones take the place of flash-attn's, which needs CUDA."""

from _verl_overlay import extend
from verl.utils import attention_utils__upstream as _upstream
from verl.utils.device import is_cpu_backend

if is_cpu_backend:
    from verl.utils.npu_flash_attn_utils import index_first_axis, pad_input, rearrange, unpad_input  # noqa: F401

extend(__name__, _upstream)
