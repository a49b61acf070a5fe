# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's padding functions; on a CPU its own pure-torch ones take the place of flash-attn's, which needs CUDA."""

from verl.utils.device import is_cpu_backend

if is_cpu_backend:
    from verl.utils.npu_flash_attn_utils import index_first_axis, pad_input, rearrange, unpad_input
else:
    from verl.utils.attention_utils__upstream import index_first_axis, pad_input, rearrange, unpad_input

__all__ = ["index_first_axis", "pad_input", "rearrange", "unpad_input"]
