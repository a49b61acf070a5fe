# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Each fault of the rollout does what it says, in its steps alone; on a tiny model, without Ray."""

import asyncio

import pytest
import torch
from omegaconf import OmegaConf
from tiny_models import tiny_qwen2

from recipe.crosscheck.faults import rollout
from recipe.crosscheck.faults.plan import parse
from recipe.crosscheck.faults.rollout import PlantedRequest, RolloutFaults, rounded
from recipe.crosscheck.faults.site import Site
from recipe.crosscheck.model import build_tokenizer
from verl.workers.config import RolloutConfig
from verl.workers.rollout.hf_server.engine import Engine, Request
from verl.workers.rollout.hf_server.sampling import SamplingParams
from verl.workers.rollout.hf_server.weights import buckets

STOP = 1
LOGITS_V = torch.tensor([2.0, 1.0, 0.5, -1.0])
PROMPT = [5, 6, 7]


def site_in_step(text, step=1):
    site = Site(parse(text))
    site.begin_after(step - 1)
    return site


def drawn(text, seed, **asked):
    """One draw from `LOGITS_V`: the token and the log-prob that is told with it."""
    request = Request([5], SamplingParams(max_tokens=4, **asked), seed)
    planted = PlantedRequest.of(request, site_in_step(text))
    planted.take(LOGITS_V)
    assert planted.params == request.params
    return planted.token_ids[0], planted.log_probs[0]


def expected_token(probability_V, seed):
    """By inversion, with the number that a request of this seed draws first."""
    uniform = torch.rand((), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return int((probability_V.double().cumsum(0) <= uniform).sum())


SEEDS = range(60)


def test_temperature_is_drawn_at_and_not_told_of():
    for seed in SEEDS:
        token, told = drawn("temperature:3@1", seed, temperature=0.5)
        assert token == expected_token((LOGITS_V / 1.5).softmax(0), seed)
        assert told == pytest.approx(float((LOGITS_V / 0.5).log_softmax(0)[token]), abs=1e-6)


def test_top_k_is_drawn_from_and_not_told_of():
    tokens = set()
    for seed in SEEDS:
        token, told = drawn("top_k@1", seed)
        tokens.add(token)
        assert told == pytest.approx(float(LOGITS_V.log_softmax(0)[token]), abs=1e-6)
    assert tokens == {0, 1}


def test_log_probs_are_told_at_temperature_1():
    for seed in SEEDS:
        token, told = drawn("untempered_log_probs@1", seed, temperature=2.0)
        assert token == expected_token((LOGITS_V / 2).softmax(0), seed)
        assert told == pytest.approx(float(LOGITS_V.log_softmax(0)[token]), abs=1e-6)


def test_a_repetition_penalty_is_part_of_what_is_told():
    """A penalty of 2 on token 0, which the prompt holds, halves its logit of 2."""
    request = Request([0], SamplingParams(max_tokens=4, repetition_penalty=2.0), seed=3)
    planted = PlantedRequest.of(request, site_in_step("temperature:2@1"))
    planted.take(LOGITS_V)
    penalised_V = torch.tensor([1.0, 1.0, 0.5, -1.0])
    assert planted.token_ids[0] == expected_token((penalised_V / 2).softmax(0), 3)
    assert planted.log_probs[0] == pytest.approx(float(penalised_V.log_softmax(0)[planted.token_ids[0]]), abs=1e-6)


@pytest.mark.parametrize("text", ["none", "top_k@2,temperature@2,untempered_log_probs@2,cut_responses@2"])
def test_a_sampler_outside_of_its_steps_is_healthy(text):
    for seed in SEEDS:
        token, told = drawn(text, seed, temperature=2.0)
        assert token == expected_token((LOGITS_V / 2).softmax(0), seed)
        assert told == pytest.approx(float((LOGITS_V / 2).log_softmax(0)[token]), abs=1e-6)


def ended(text, seed=1):
    """A response of token 0 and then the stop token."""
    params = SamplingParams(max_tokens=4, stop_token_ids=frozenset({STOP}))
    planted = PlantedRequest.of(Request([5], params, seed), site_in_step(text))
    for certain in (0, STOP):
        planted.take(torch.full((4,), -100.0).index_fill(0, torch.tensor(certain), 100.0))
    assert planted.stop_reason == "completed" and len(planted.token_ids) == len(planted.log_probs)
    return planted.token_ids


def test_responses_are_cut():
    assert ended("none") == [0, STOP]
    assert ended("cut_responses@1") == [0]
    cut = sum(ended("cut_responses:0.3@1", seed) == [0] for seed in range(400))
    assert 80 < cut < 160  # 120 expected, 4.4 standard deviations


def test_a_response_that_is_a_stop_token_alone_stays():
    params = SamplingParams(max_tokens=4, stop_token_ids=frozenset({0}))
    planted = PlantedRequest.of(Request([5], params, 1), site_in_step("cut_responses@1"))
    planted.take(torch.tensor([100.0, -100.0]))
    assert planted.token_ids == [0]


# ---------------------------------------------------------------- the engine


def engine_with(text):
    """An engine, its faults, and a healthy copy of its model."""
    engine = Engine(tiny_qwen2(), slots=8, length=24)
    return engine, RolloutFaults(Site(parse(text)), engine), tiny_qwen2()


def generate(engine, tokens=6):
    """Greedy tokens and their log-probs; what an engine computes, with no sampler in between."""
    request = Request(PROMPT, SamplingParams(max_tokens=tokens, temperature=0.0), seed=0)
    engine.forget_prefixes()
    engine.add(request)
    while engine.busy:
        engine.step()
    return request.token_ids, torch.tensor(request.log_probs)


@torch.inference_mode()
def told_by(model, tokens, position_ids=None):
    """Log-probs of `tokens` after the prompt in one healthy pass."""
    ids = torch.tensor([[*PROMPT, *tokens]])
    logits = model(ids, position_ids=position_ids).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1).gather(1, torch.tensor(tokens)[:, None])[:, 0]


def test_an_engine_outside_of_its_steps_is_healthy():
    engine, faults, healthy = engine_with("position_shift@2,kv_cache_rounded@2,rotary_base@2")
    faults.begin_after(0)
    tokens, told = generate(engine)
    assert torch.allclose(told, told_by(healthy, tokens), atol=1e-5)
    faults.begin_after(1)
    _, changed = generate(engine)
    faults.begin_after(2)
    _, again = generate(engine)
    assert torch.equal(again, told)
    assert not torch.allclose(changed, told, atol=1e-2)


def test_decoding_goes_on_at_shifted_positions():
    engine, faults, healthy = engine_with("position_shift:2@1")
    faults.begin_after(0)
    tokens, told = generate(engine)
    decoded = range(len(PROMPT) + 2, len(PROMPT) + 2 + len(tokens))
    expected = told_by(healthy, tokens, torch.tensor([[*range(len(PROMPT)), *decoded]]))
    assert torch.allclose(told, expected, atol=1e-5)
    assert not torch.allclose(told, told_by(healthy, tokens), atol=1e-2)


def test_the_rotary_base_is_another():
    engine, faults, healthy = engine_with("rotary_base:0.1@1")
    faults.begin_after(0)
    healthy.model.rotary_emb.inv_freq = torch.tensor([1000.0 ** (-i / 4) for i in range(4)])  # head size 8
    tokens, told = generate(engine)
    assert torch.allclose(told, told_by(healthy, tokens), atol=1e-5)


def test_the_cache_holds_short_floats():
    engine, faults, healthy = engine_with("kv_cache_rounded@1")
    faults.begin_after(0)
    tokens, told = generate(engine)
    layer = engine.cache.layers[0]
    assert layer.keys.abs().sum() > 0
    for store in (layer.keys, layer.values):
        assert torch.equal(store, rounded(store, 3))
    expected = told_by(healthy, tokens)
    assert told[0] == pytest.approx(float(expected[0]), abs=1e-5)  # a prompt's own prefill is exact
    assert (told[1:] - expected[1:]).abs().max() > 1e-3


def test_rounding_is_that_of_fp8():
    numbers = torch.cat(
        [torch.linspace(-400, 400, 801), torch.logspace(-1.8, 0, 50)]
    )  # what e4m3 has normal numbers for
    assert torch.equal(rounded(numbers, 3), numbers.to(torch.float8_e4m3fn).float())
    assert torch.equal(rounded(numbers, 7), numbers.bfloat16().float())


# ---------------------------------------------------------------- the weights


def push(engine, faults, step, value):
    """The weights that the update of `step` made: every number is `value`."""
    for tensor in engine.model.state_dict().values():
        tensor.fill_(value)
    faults.begin_after(step)


def held(engine):
    return {name: float(tensor.flatten()[0]) for name, tensor in engine.model.state_dict().items()}


def test_stale_weights_are_those_of_one_step_before():
    engine, faults, _ = engine_with("stale_weights@2-3")
    seen = []
    for step, value in enumerate((10.0, 11.0, 12.0, 13.0)):
        push(engine, faults, step, value)
        seen.append(set(held(engine).values()))
    assert seen == [{10.0}, {10.0}, {11.0}, {13.0}]  # in steps 1 to 4


def test_one_tensor_is_not_synced():
    engine, faults, _ = engine_with("tensor_not_synced@2")
    push(engine, faults, 0, 10.0)
    push(engine, faults, 1, 11.0)
    old = [name for name, value in held(engine).items() if value == 10.0]
    assert old == ["model.layers.1.mlp.down_proj.weight"]
    assert set(held(engine).values()) == {10.0, 11.0}
    push(engine, faults, 2, 12.0)
    assert set(held(engine).values()) == {12.0}


def test_a_server_with_faults_serves_and_takes_steps(tmp_path, monkeypatch):
    tokenizer = build_tokenizer()
    tiny_qwen2(vocab_size=len(tokenizer)).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    monkeypatch.setattr(rollout, "own_site", lambda: Site(parse("cut_responses@2,stale_weights@2")))
    threads = torch.get_num_threads()
    config = RolloutConfig(
        name="hf", dtype="float32", load_format="auto", prompt_length=8, response_length=8, max_num_seqs=8
    )
    model_config = OmegaConf.create({"path": str(tmp_path), "override_config": {"attn_implementation": "sdpa"}})
    server = rollout.PlantedServer(config, model_config, replica_rank=0)

    async def step(pushed, seed):
        weights = {n: torch.zeros_like(t) + seed for n, t in server.engine.model.state_dict().items()}
        for bucket in buckets(weights.items(), 1 << 20):
            await server.load_weights(bucket)
        await server.finish_weights(pushed)
        # Equal logits throughout: the stop token comes by chance, about once in a hundred draws.
        calls = [server.generate(f"{pushed}-{i}", [5, 6], {"seed": i, "logprobs": True}) for i in range(40)]
        return [out.token_ids for out in await asyncio.gather(*calls)]

    try:
        healthy = asyncio.run(step(0, 1.0))
        assert server._faults._site.step == 1
        cut = asyncio.run(step(1, 2.0))
    finally:
        torch.set_num_threads(threads)
    assert set(held(server.engine).values()) == {1.0}
    assert any(response[-1] == STOP for response in healthy)
    assert cut == [response[:-1] if response[-1] == STOP and len(response) > 1 else response for response in healthy]


def test_the_manager_starts_servers_with_faults():
    assert rollout.PlantedAgentLoopManager.rollout_replica_class.server_class is rollout.PlantedServer
