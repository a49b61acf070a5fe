# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Cross-check of two RL runs: which phase is at fault, rollout or training.

People use it through `trainer.share_data` or `verl.utils.share_data.ShareDataTest`; these are the names they then meet.
"""

from verl.crosscheck.errors import (
    CrossCheckError,
    DamagedError,
    DirectoryError,
    EncodingError,
    MismatchError,
    PublishError,
    SettingsError,
    WaitTimeoutError,
)
from verl.crosscheck.settings import ShareMode

__all__ = [
    "CrossCheckError",
    "DamagedError",
    "DirectoryError",
    "EncodingError",
    "MismatchError",
    "PublishError",
    "SettingsError",
    "ShareMode",
    "WaitTimeoutError",
]
