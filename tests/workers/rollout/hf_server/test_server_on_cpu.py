# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The server without Ray: concurrent callers on one event loop, weights, aborts and refusals."""

import asyncio
import random

import pytest
import torch
from tiny_models import tiny_qwen2

from verl.workers.rollout.hf_server.weights import buckets

SAMPLING = {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "repetition_penalty": 1.0, "logprobs": True}


def prompt(row):
    return [5 + row // 4, 6, 7, 8][: 2 + row // 4 % 3]


async def call(server, rows, jitter=None, seeded=True, **sampling):
    """Responses of `rows`, by row; with `jitter`, each request waits a random number of turns of the loop first."""
    rng = random.Random(jitter)

    async def one(row):
        for _ in range(rng.randrange(40) if jitter is not None else 0):
            await asyncio.sleep(0)
        own = {"seed": 1000 + row} if seeded else {}
        return await server.generate(f"r{rng.random()}", prompt(row), {**SAMPLING, **sampling, **own})

    order = list(rows)
    rng.shuffle(order)
    outputs = await asyncio.gather(*(one(row) for row in order))
    return {row: (out.token_ids, out.log_probs, out.stop_reason) for row, out in zip(order, outputs, strict=True)}


def test_seeded_requests_repeat_to_the_last_bit_whatever_the_jitter(make_server):
    expected = asyncio.run(call(make_server(), range(32)))
    assert len({tuple(tokens) for tokens, _, _ in expected.values()}) > 20
    for trial in range(10):
        assert asyncio.run(call(make_server(), range(32), jitter=trial)) == expected


def test_two_replicas_share_a_call_without_a_trace(make_server):
    expected = asyncio.run(call(make_server(), range(32)))

    async def split():
        one, two = make_server(), make_server()
        halves = await asyncio.gather(call(one, range(0, 32, 3), 1), call(two, [r for r in range(32) if r % 3], 2))
        return {**halves[0], **halves[1]}

    assert asyncio.run(split()) == expected


def test_unseeded_requests_repeat_as_a_set(make_server):
    first, second = (asyncio.run(call(make_server(), range(4), jitter=j, seeded=False)) for j in (1, 2))
    assert sorted(map(str, first.values())) == sorted(map(str, second.values()))
    assert len({str(tokens) for tokens, _, _ in first.values()}) > 1


@pytest.mark.parametrize(("asked", "come"), [(True, True), (0, True), (1, True), (False, False), (None, False)])
def test_log_probs_come_if_asked_for(make_server, asked, come):
    """Upstream's agent loops say True or False; vLLM's 0 means those of the sampled tokens and no further ones."""
    ((token_ids, log_probs, _),) = asyncio.run(call(make_server(), [0], logprobs=asked)).values()
    assert (log_probs is not None) is come
    assert not come or len(log_probs) == len(token_ids)


def test_ends_and_lengths(make_server):
    async def lengths():
        server = make_server(ignore_eos=True)
        long = await server.generate("a", [5, 6], {**SAMPLING, "seed": 1})
        short = await server.generate("b", [5, 6], {**SAMPLING, "seed": 1, "max_tokens": 3})
        return long.token_ids, short.token_ids

    long, short = asyncio.run(lengths())
    assert (len(long), len(short)) == (16, 3) and long[:3] == short


def test_abort_hands_out_what_there_is_and_holds_new_requests(make_server):
    async def scenario():
        server = make_server(ignore_eos=True, response_length=16, max_num_seqs=1)
        first = asyncio.create_task(server.generate("first", [5, 6], {**SAMPLING, "seed": 1}))
        second = asyncio.create_task(server.generate("second", [5, 6], {**SAMPLING, "seed": 2}))
        for _ in range(6):
            await asyncio.sleep(0)
        told = await server.abort_all_requests()
        aborted = await first, await second
        third = asyncio.create_task(server.generate("third", [5, 6], {**SAMPLING, "seed": 1}))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not third.done()
        await server.resume_generation()
        return told, aborted, await third

    told, (first, second), third = asyncio.run(scenario())
    assert told["aborted_count"] == 2 and sorted(told["request_ids"]) == ["first", "second"]
    assert first.stop_reason == second.stop_reason == "aborted" and second.token_ids == []
    assert third.token_ids[: len(first.token_ids)] == first.token_ids and len(third.token_ids) == 16


def test_weights_change_what_is_served_and_keep_the_servers_dtype(make_server):
    async def scenario():
        server = make_server()
        before = await call(server, range(4))
        for bucket in buckets(tiny_qwen2(vocab_size=99, seed=1).bfloat16().state_dict().items(), 4096):
            await server.load_weights(bucket)
        await server.finish_weights(1)
        return server, before, await call(server, range(4))

    server, before, after = asyncio.run(scenario())
    assert before != after
    assert {p.dtype for p in server.engine.model.parameters()} == {torch.float32}


async def update(server, step, without="nothing", seed=0):
    """Send a model's weights, but for the tensors with `without` in their name."""
    weights = tiny_qwen2(vocab_size=99, seed=seed).state_dict()
    for bucket in buckets(((name, tensor) for name, tensor in weights.items() if without not in name), 1 << 20):
        await server.load_weights(bucket)
    await server.finish_weights(step)


@pytest.mark.parametrize("load_format", ["dummy", "auto"])
@pytest.mark.parametrize("whole_ones_before", [0, 1, 2])
def test_an_update_that_lacks_tensors_is_refused_by_their_names(make_server, load_format, whole_ones_before):
    async def scenario():
        server = make_server(load_format=load_format)
        for step in range(whole_ones_before):
            await update(server, step)
        with pytest.raises(RuntimeError, match=r"\(global step 7\) lacks 3 of .*layers.1.mlp.down_proj.weight"):
            await update(server, 7, without="layers.1.mlp")
        await update(server, 8)

    asyncio.run(scenario())


def test_refuses_weights_of_another_model(make_server):
    server = make_server()
    (wide,) = buckets([("lm_head.weight", torch.zeros(3, 3))], 1 << 20)
    (unknown,) = buckets([("lm_head.wait", torch.zeros(3))], 1 << 20)
    with pytest.raises(ValueError, match="lm_head.weight"):
        asyncio.run(server.load_weights(wide))
    with pytest.raises(KeyError, match="lm_head.wait"):
        asyncio.run(server.load_weights(unknown))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"image_data": [object()]}, "text only"),
        ({"sampling_params": {"guided_json": "{}"}}, "guided_json"),
        ({"prompt_ids": []}, "do not fit"),
        ({"prompt_ids": [5] * 99}, "do not fit"),
    ],
)
def test_refuses_what_it_cannot_serve(make_server, kwargs, message):
    server = make_server()
    with pytest.raises(ValueError, match=message):
        asyncio.run(server.generate(**{"request_id": "r", "prompt_ids": [5], "sampling_params": {}, **kwargs}))


def test_an_engine_that_fails_tells_every_waiter(make_server, monkeypatch):
    server = make_server()
    monkeypatch.setattr(server.engine, "_forward", lambda _: 1 / 0)

    async def scenario():
        calls = (server.generate(str(i), [5, 6], {"ignore_eos": True}) for i in range(3))
        return await asyncio.gather(*calls, return_exceptions=True)

    assert [type(error) for error in asyncio.run(scenario())] == [ZeroDivisionError] * 3


async def answers(*calls):
    """What each call returned or raised; one that waits for ever is the fault looked for here."""
    return await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), timeout=60)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_diverged_model_fails_every_request_and_serves_again_after_the_next_update(make_server, temperature):
    def calls(server):
        return (server.generate(str(i), prompt(i), {**SAMPLING, "seed": i}) for i in range(24))

    async def scenario():
        server = make_server()
        await update(server, 1)
        expected = await answers(*calls(server))
        with torch.no_grad():
            server.engine.model.lm_head.weight.fill_(float("nan"))
        await server.clear_kv_cache()
        sampling = {**SAMPLING, "temperature": temperature, "seed": 1}
        errors = await answers(*(server.generate(str(i), prompt(i), sampling) for i in range(24)))
        assert [type(error) for error in errors] == [FloatingPointError] * 24
        assert "the rollout's logits are not finite" in str(errors[0])
        await update(server, 2)
        assert await answers(*calls(server)) == expected

    asyncio.run(scenario())


@pytest.mark.parametrize("ended_at", [1, 2], ids=["at its prefill", "at its first decoding step"])
def test_a_request_that_ended_in_the_step_that_fails_hears_of_it(make_server, monkeypatch, ended_at):
    server = make_server(ignore_eos=True)
    forward = server.engine._forward

    def last_row_broken(token_S):
        logits_SV = forward(token_S)
        logits_SV[max(server.engine.running)] = torch.nan
        return logits_SV

    monkeypatch.setattr(server.engine, "_forward", last_row_broken)

    async def scenario():
        short = server.generate("short", [5, 6], {**SAMPLING, "max_tokens": ended_at})
        return await answers(short, *(server.generate(str(i), [5, 6], SAMPLING) for i in range(2)))

    assert [type(error) for error in asyncio.run(scenario())] == [FloatingPointError] * 3
