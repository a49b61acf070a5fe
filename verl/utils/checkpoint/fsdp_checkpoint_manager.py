# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Loads an exchanged FSDP checkpoint into main memory first, not onto the device that it was saved from."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from _verl_overlay import extend
from verl.crosscheck.exchange.layout import is_exchanged
from verl.utils.checkpoint import fsdp_checkpoint_manager__upstream as _upstream


class FSDPCheckpointManager(_upstream.FSDPCheckpointManager):
    """Upstream's manager. A run's own checkpoints are loaded exactly as upstream loads them."""

    def load_checkpoint(self, local_path: str | None, *args: Any, **kwargs: Any) -> None:
        if local_path is None or not is_exchanged(Path(local_path)):
            super().load_checkpoint(local_path, *args, **kwargs)
            return
        with loads_into_main_memory():
            super().load_checkpoint(local_path, *args, **kwargs)


@contextmanager
def loads_into_main_memory() -> Iterator[None]:
    """Within, `torch.load` leaves every tensor in main memory. Without a word on where to, it goes back to the device
    and the index that it was saved from, which this process may not have."""
    with patch.object(torch, "load", partial(torch.load, map_location="cpu")):
        yield


extend(__name__, _upstream)
