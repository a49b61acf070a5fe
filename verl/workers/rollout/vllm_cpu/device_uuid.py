# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The name of a rank's device: upstream names the socket by it over which that rank's weights reach vLLM.

A GPU has a UUID. A CPU has none, and several ranks of several runs share it. So the name is made of the Ray node, which
is another one for each cluster and host, the Ray job, another one for each run in a cluster, and the "GPU" that
Ray handed out to the rank. The training worker and the server actor ask Ray for it; vLLM's own processes, which know
nothing of Ray, inherit the first two in an environment variable and find the third where upstream puts it.
"""

from __future__ import annotations

import os

import ray

from verl.utils.device import get_resource_name, get_visible_devices_keyword

VARIABLE = "VERL_CROSSCHECK_VLLM_RUN"
"""Environment variable that names node and job to vLLM's processes."""

_NODE_DIGITS = 16
"""Of the node's 56: a socket's path has 107 bytes at most."""


def of_training_worker() -> str:
    """The name of this Ray worker's device."""
    return _name(_run(), ray.get_runtime_context().get_accelerator_ids()[get_resource_name()][0])


def hand_down() -> None:
    """Let processes that this one starts know the run. Does nothing outside Ray, as in vLLM's own."""
    if ray.is_initialized():
        os.environ[VARIABLE] = _run()


def of_vllm_worker(local_rank: int) -> str | None:
    """The name of the device of vLLM's worker `local_rank`, below the tensor parallel size; None outside a run."""
    run = os.environ.get(VARIABLE)
    if run is None:
        return None
    return _name(run, os.environ[get_visible_devices_keyword()].split(",")[local_rank])


def _run() -> str:
    context = ray.get_runtime_context()
    return f"{context.get_node_id()[:_NODE_DIGITS]}-{context.get_job_id()}"


def _name(run: str, device: str) -> str:
    return f"CPU-{run}-{device}"
