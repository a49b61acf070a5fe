# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.workers.fsdp_workers`."""

from typing import Any

from verl.single_controller.base import Worker

class ActorRolloutRefWorker(Worker):
    def __init__(self, config: Any, role: str, **kwargs: Any) -> None: ...

class AsyncActorRolloutRefWorker(ActorRolloutRefWorker): ...

class CriticWorker(Worker):
    def __init__(self, config: Any) -> None: ...
