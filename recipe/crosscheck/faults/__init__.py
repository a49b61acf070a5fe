# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Faults to plant in one of two runs on a CPU, so that one can see the cross-check find them.

    catalogue.py   every fault: its phase, what shows it, what it does; pure
    plan.py        which of them act in which steps, as text and back; what a run needs to carry them; pure
    site.py        this process's plan and step
    rollout.py     those of the hf rollout, and the server that carries them
    vllm_engine.py those that vLLM can be given from outside
    training.py    those of a training engine: gradients, update, forward pass
    wiring.py      puts the latter around the FSDP workers of either implementation
    planted.py     does so when it is imported, as a run's configuration asks

Nothing here is part of an installation. A run has a fault only if its configuration names parts of this package
(`plan.overrides`) and its environment holds the plan (`plan.environment`): the latter alone does nothing, the former
alone stops the run.
"""
