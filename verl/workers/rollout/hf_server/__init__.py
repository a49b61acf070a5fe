# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The `hf` rollout: a Ray actor that serves a Transformers model on a CPU, and repeats exactly.

    sampling.py   from logits to tokens and log-probs; pure
    seeding.py    which seed a row of a call has; pure
    slots.py      the KV cache: a fixed number of slots of a fixed length
    engine.py     requests in, tokens out: admits, prefills and decodes; knows neither Ray nor asyncio
    weights.py    tensors to arrays that Ray shares without copying, and back
    digests.py    digests of tensors: what was sent, what is held
    server.py     the Ray actor around an engine
    replica.py    starts the actor (upstream's `RolloutReplica`)
    adapter.py    sends the weights of a training worker to it (upstream's `BaseRollout`)
    agent_loop.py gives each row of a call its own seed (upstream's `AgentLoopManager`)

Two things make a run repeat to the last digit whatever the order in which requests arrive. Each row draws from its own
generator, seeded by what the row is. And a row's numbers do not depend on its neighbours: a prompt is prefilled alone,
and a decoding step always has the same shape, however many slots are in use.
"""
