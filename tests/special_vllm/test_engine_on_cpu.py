# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the shims say of vLLM, asked of vLLM itself."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed; scripts/test-vllm has it"),
]

PLATFORM = """
import ray
from vllm.platforms import current_platform
from verl.workers.rollout.vllm_cpu.platform import CrosscheckCpuPlatform
assert type(current_platform) is CrosscheckCpuPlatform, current_platform
assert current_platform.is_cpu()
"""

WORKER = """
from vllm.v1.worker.cpu_worker import CPUWorker
from verl.workers.rollout.vllm_cpu import platform, worker
assert f"{CPUWorker.__module__}.{CPUWorker.__qualname__}" == platform.VLLM_WORKER
assert f"{worker.CrosscheckCpuWorker.__module__}.CrosscheckCpuWorker" == platform.WORKER
"""

HEAD_SIZES = """
from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend
from verl.workers.rollout.vllm_cpu.startup import HEAD_SIZES
assert tuple(CPUAttentionBackend.get_supported_head_sizes()) == HEAD_SIZES["0.12.0"]
"""

IMPORTS = """
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica
from verl.third_party.vllm import vllm_version
assert vllm_version.startswith("0.12.0")
"""


@pytest.mark.parametrize(
    "code", [PLATFORM, WORKER, HEAD_SIZES, IMPORTS], ids=["platform", "worker", "heads", "upstream"]
)
def test_vllm_agrees(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
