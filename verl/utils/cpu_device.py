# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What upstream's GPU code asks of a device, answered for a machine that has none.

The fork's `verl.utils.device` imports it, and nothing else does: on every machine, to ask `machine_has_accelerator`;
the rest is used only where neither CUDA nor NPU is there. So it imports nothing that a GPU machine may lack. It holds
no numerics: only the names, numbers and settings by which upstream's workers find their way on a CPU.
"""

from __future__ import annotations

import logging
import resource
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from omegaconf import OmegaConf, open_dict

from verl.crosscheck.settings import DEVICE_KEY

logger = logging.getLogger(__name__)

_ACCELERATOR_NODES = ("nvidia[0-9]*", "nvidiactl", "kfd", "davinci[0-9]*", "davinci_manager")
"""Below /dev: NVIDIA, AMD, Ascend."""

_BYTES_PER_RU_MAXRSS = 1024
"""Linux reports the peak resident set in KiB."""


def machine_has_accelerator(dev: Path = Path("/dev")) -> bool:
    """Whether the machine has an accelerator, though this process may see none.

    On a GPU machine Ray hides the GPUs from every process that did not ask for one, upstream's main task among them.
    Such a process must go on as upstream has it.
    """
    return any(next(dev.glob(pattern), None) is not None for pattern in _ACCELERATOR_NODES)


class CpuDevice(ModuleType):
    """`torch.cpu`, with the functions that `torch.cuda` has and `torch.cpu` lacks. Sizes are in bytes.

    "Device memory" is main memory: allocated and reserved are what this process has resident.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.cpu, name)

    def memory_allocated(self, device: object = None) -> int:
        import psutil  # needed on a CPU alone

        return psutil.Process().memory_info().rss

    def memory_reserved(self, device: object = None) -> int:
        return self.memory_allocated()

    def max_memory_allocated(self, device: object = None) -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_RU_MAXRSS

    def max_memory_reserved(self, device: object = None) -> int:
        return self.max_memory_allocated()

    def mem_get_info(self, device: object = None) -> tuple[int, int]:
        """Free and total."""
        import psutil  # needed on a CPU alone

        memory = psutil.virtual_memory()
        return memory.available, memory.total

    def get_device_name(self, device: object = None) -> str:
        return "cpu"

    def empty_cache(self) -> None:
        """There is no cache."""

    def ipc_collect(self) -> None:
        """There is no shared device memory."""

    def reset_peak_memory_stats(self, device: object = None) -> None:
        """The kernel's peak cannot be reset."""


CPU = CpuDevice("verl.utils.cpu_device.CPU", CpuDevice.__doc__)


def prepare_config(config: Any) -> None:
    """Translate and check a configuration that says `trainer.device=cpu`, in place; leave any other alone.

    Called once, at the start of the main program. Upstream's resource pools know two words, `cuda` and `npu`, and ask
    Ray for resources of that kind; on a CPU Ray hands out declared "GPUs" instead, so `cpu` becomes the word that asks
    for those. A main program may also run on a machine without an accelerator and train on others that have one: that
    is a configuration with another device, and none of our business.

    Raises:
        ValueError: A setting that cannot work on a CPU; names the key and what to write.
    """
    trainer: Any = getattr(config, "trainer", None)
    if getattr(trainer, "device", None) != "cpu":
        return
    trainer.device = "cuda"
    with open_dict(trainer):
        trainer[DEVICE_KEY] = "cpu"
    if config.get("actor_rollout_ref") is not None:
        _check_fsdp2(config)
        _check_padding(config)
        if OmegaConf.select(config, "actor_rollout_ref.rollout.name") == "vllm":
            from verl.workers.rollout.vllm_cpu.startup import fill_in, require_usable  # needed on a CPU alone

            require_usable(config)
            fill_in(config)


def _check_fsdp2(config: Any) -> None:
    strategy = config.actor_rollout_ref.actor.get("strategy")
    if strategy != "fsdp2":
        raise ValueError(
            f"actor_rollout_ref.actor.strategy={strategy} does not run on this machine: it has neither CUDA nor NPU, "
            "and only FSDP2 shards parameters that live on a CPU. "
            "Use --config-name=ppo_cpu_trainer, or set actor_rollout_ref.actor.strategy=fsdp2."
        )


def _check_padding(config: Any) -> None:
    new_workers = config.trainer.get("use_legacy_worker_impl") == "disable"
    if new_workers and not config.actor_rollout_ref.model.get("use_remove_padding", True):
        logger.warning(
            "actor_rollout_ref.model.use_remove_padding=False with trainer.use_legacy_worker_impl=disable trains on "
            "wrong numbers: VeRL 0.7.1 then cuts every sequence longer than data.max_response_length "
            "(https://github.com/volcengine/verl/pull/6345). Set actor_rollout_ref.model.use_remove_padding=True."
        )
