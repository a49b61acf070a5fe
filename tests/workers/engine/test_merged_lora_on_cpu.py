# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the CPU's engine sends to the rollout when LoRA adapters are to be merged: real FSDP2."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("merged_lora_ranks.py")
LIMIT_S = 300


@pytest.mark.parametrize("count", [1, 2])
def test_every_rank_sends_merged_weights_and_keeps_its_own(tmp_path, count):
    env = {**os.environ, "PYTHONPATH": str(SCRIPT.parents[2]), "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), str(count), tmp_path / "store"],
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        told = [rank.communicate(timeout=LIMIT_S)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0] * count, "\n".join(told)[-4000:]
