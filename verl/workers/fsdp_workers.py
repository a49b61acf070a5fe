# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Upstream's legacy FSDP workers; on a CPU they join a gloo process group before upstream asks for an impossible one.

On a machine with an accelerator every name here is upstream's.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from _verl_overlay import extend
from verl.utils.device import is_cpu_backend
from verl.utils.distributed import initialize_global_process_group_ray
from verl.workers import fsdp_workers__upstream as _upstream

_DEFAULT_TIMEOUT_S = 600.0


def _join_process_group(config: Any) -> None:
    """Join over gloo; upstream skips its own call in a process that is in a group already."""
    initialize_global_process_group_ray(config.get("nccl_timeout", _DEFAULT_TIMEOUT_S))


if is_cpu_backend:

    class ActorRolloutRefWorker(_upstream.ActorRolloutRefWorker):
        """Upstream's, over gloo."""

        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            _join_process_group(config)
            super().__init__(config, *args, **kwargs)

    class AsyncActorRolloutRefWorker(_upstream.AsyncActorRolloutRefWorker):
        """Upstream's, over gloo."""

        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            _join_process_group(config)
            super().__init__(config, *args, **kwargs)

    class CriticWorker(_upstream.CriticWorker):
        """Upstream's, over gloo and always sharded by FSDP2, the only kind that takes parameters on a CPU.

        One configuration then serves both worker implementations: 0.7.1's new critic wants `critic.strategy=fsdp`
        and takes the kind from `critic.model.fsdp_config.strategy`, its legacy one takes it from `critic.strategy`.
        """

        def __init__(self, config: Any, *args: Any, **kwargs: Any) -> None:
            _join_process_group(config)
            super().__init__(dataclasses.replace(config, strategy="fsdp2"), *args, **kwargs)


extend(__name__, _upstream)
