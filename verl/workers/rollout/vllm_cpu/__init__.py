# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What upstream's vLLM rollout needs where vLLM is its CPU build and there is neither CUDA nor NPU.

    startup.py      before anything starts: can this run use vLLM at all? says what to install or set if not
    metadata.py     the version of vLLM, asked by upstream under a name that the CPU build does not have
    platform.py     vLLM's platform: names a device, and chooses the worker below
    worker.py       vLLM's worker, with a device
    device_uuid.py  the name of a rank's device, equal in the training worker and in vLLM's worker

Upstream's server, agent loop and weight transfer run as they are.
"""
