# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the fork takes from upstream's `verl.utils.checkpoint.fsdp_checkpoint_manager`."""

from verl.utils.checkpoint.checkpoint_manager import BaseCheckpointManager

class FSDPCheckpointManager(BaseCheckpointManager):
    def load_checkpoint(
        self, local_path: str | None, hdfs_path: str | None = None, del_local_after_load: bool = False
    ) -> None: ...
