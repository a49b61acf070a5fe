# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.utils.distributed`."""

def initialize_global_process_group_ray(timeout_second: float | None = None, backend: str | None = None) -> None: ...
