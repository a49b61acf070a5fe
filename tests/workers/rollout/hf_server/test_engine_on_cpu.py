# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The engine: right against a model that is run the simple way, and the same whatever happens around a request."""

import random

import pytest
import torch
from tiny_models import tiny_qwen2
from transformers import MistralConfig, MistralForCausalLM

from verl.workers.rollout.hf_server.engine import Engine, Request
from verl.workers.rollout.hf_server.sampling import SamplingParams

LENGTH = 32


@pytest.fixture(autouse=True)
def one_thread():
    """As the server runs it: threads share a step's work out by slot."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def model():
    return tiny_qwen2()


def request(index, max_tokens=12, **kwargs):
    rng = random.Random(index // 3)  # three requests share a prompt
    prompt = [rng.randrange(2, 37) for _ in range(rng.randint(1, 9))]
    return Request(prompt, SamplingParams(max_tokens=max_tokens, stop_token_ids=frozenset({1}), **kwargs), seed=index)


def drain(engine, requests, every=None):
    """Run `requests` to their ends; with `every`, let one in every so many steps, in the order given."""
    left = list(requests)
    while left or engine.busy:
        for _ in range(len(left) if every is None else min(1, len(left))):
            engine.add(left.pop(0))
        for _ in range(every or 1):
            engine.step()
    return requests


def outcome(requests):
    """To the last bit."""
    return {r.seed: (r.token_ids, r.log_probs, r.stop_reason) for r in requests}


@torch.no_grad()
def simply(model, prompt, max_tokens):
    """Greedy tokens, and the log-probs [V] behind each, by running the whole row again for every token."""
    row, rows = list(prompt), []
    for _ in range(max_tokens):
        rows.append(torch.log_softmax(model(torch.tensor([row])).logits[0, -1].float(), -1))
        row.append(int(rows[-1].argmax()))
        if row[-1] == 1:
            break
    return row[len(prompt) :], rows


def test_greedy_tokens_are_those_of_the_plain_model(model):
    requests = drain(Engine(model, slots=4, length=LENGTH), [request(i, temperature=0.0) for i in range(0, 30, 3)])
    for r in requests:
        tokens, rows = simply(model, r.prompt_ids, r.params.max_tokens)
        assert r.token_ids == tokens
        expected = [float(row[token]) for row, token in zip(rows, tokens, strict=True)]
        assert r.log_probs == pytest.approx(expected, abs=2e-5)


@torch.no_grad()
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.5])
def test_log_probs_are_those_of_one_training_pass(model, temperature):
    requests = drain(Engine(model, slots=8, length=LENGTH), [request(i, temperature=temperature) for i in range(24)])
    for r in requests:
        logits = model(torch.tensor([r.prompt_ids + r.token_ids])).logits[0].float() / temperature
        rows = torch.log_softmax(logits, -1)[len(r.prompt_ids) - 1 : -1]
        expected = rows.gather(1, torch.tensor(r.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(r.log_probs), expected, atol=2e-5, rtol=0)


def test_arrival_changes_nothing(model):
    """Orders, gaps, and how many come at once: forty ways, one result to the last bit."""
    expected = outcome(drain(Engine(model, slots=8, length=LENGTH), [request(i) for i in range(24)]))
    assert len({tuple(tokens) for tokens, _, _ in expected.values()}) > 12  # the samples of a prompt differ
    for trial in range(40):
        requests = [request(i) for i in range(24)]
        random.Random(trial).shuffle(requests)
        engine = Engine(model, slots=8, length=LENGTH)
        assert outcome(drain(engine, requests, every=trial % 4 or None)) == expected


def test_a_request_alone_has_the_numbers_it_has_in_company(model):
    expected = outcome(drain(Engine(model, slots=8, length=LENGTH), [request(i) for i in range(24)]))
    for i in range(24):
        assert outcome(drain(Engine(model, slots=8, length=LENGTH), [request(i)]))[i] == expected[i]


def test_what_an_engine_served_before_changes_nothing(model):
    engine = Engine(model, slots=4, length=LENGTH)
    first = outcome(drain(engine, [request(i) for i in range(12)]))
    drain(engine, [request(i) for i in range(100, 130)])
    engine.forget_prefixes()
    assert outcome(drain(engine, [request(i) for i in range(12)])) == first


def test_sharing_prefixes_changes_nothing(model):
    shared, apart = (
        outcome(drain(Engine(model, slots=4, length=LENGTH, share_prefixes=share), [request(i) for i in range(12)]))
        for share in (True, False)
    )
    assert shared == apart


def test_every_slot_computes_the_same_bits(model):
    for slots in (1, 2, 3, 8, 13, 64):
        engine = Engine(model, slots=slots, length=LENGTH)
        assert engine.slots_agree()
        assert outcome(drain(engine, [request(0)])) == outcome(drain(Engine(model, slots, LENGTH), [request(0)]))


def test_a_slot_that_computes_other_bits_is_noticed(model, monkeypatch):
    engine = Engine(model, slots=4, length=LENGTH)
    forward = engine._forward
    monkeypatch.setattr(engine, "_forward", lambda token_S: forward(token_S) + torch.eye(8)[:, :1])
    assert not engine.slots_agree()


def test_slots_are_not_compared_under_a_running_request(model):
    engine = Engine(model, slots=4, length=LENGTH)
    engine.add(request(0))
    with pytest.raises(RuntimeError, match="no request runs"):
        engine.slots_agree()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("steps_before", [0, 1], ids=["diverged at a prefill", "diverged at a decoding step"])
def test_a_diverged_model_is_named_and_leaves_nothing_behind(temperature, steps_before):
    model = tiny_qwen2()
    engine = Engine(model, slots=2, length=LENGTH)
    expected = outcome(drain(engine, [request(i) for i in range(12)]))
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    requests = [request(i, temperature=temperature) for i in range(12)]
    engine.forget_prefixes()
    for r in requests:
        engine.add(r)
    for _ in range(steps_before):
        engine.step()
    with torch.no_grad():
        model.model.layers[0].self_attn.v_proj.weight.fill_(float("nan"))
    engine.forget_prefixes()
    with pytest.raises(FloatingPointError, match="rollout's logits are not finite: 37 of 37.*actor/grad_norm"):
        engine.step()
    assert set(engine.abort()) == {r for r in requests if r.stop_reason != "completed"}
    assert not engine.busy
    model.load_state_dict(kept)
    engine.forget_prefixes()
    assert outcome(drain(engine, [request(i) for i in range(12)])) == expected


def test_a_token_without_probability_is_no_divergence():
    """A vocabulary that is padded to a round size may have minus infinity at its end."""
    r = Request([2], SamplingParams(4), seed=0)
    r.take(torch.tensor([0.0, 1.0, -torch.inf]))
    assert r.token_ids[0] in (0, 1)
    with pytest.raises(FloatingPointError, match="1 of 3 .*, after a prompt of 1 tokens and 1 generated ones"):
        r.take(torch.tensor([0.0, 1.0, torch.inf]))


def test_stops_at_its_tokens_and_its_length(model):
    short, *_ = drain(Engine(model, slots=1, length=LENGTH), [request(0, max_tokens=1)])
    assert len(short.token_ids) == 1 and short.stop_reason == "completed"
    first = drain(Engine(model, slots=1, length=LENGTH), [request(0, temperature=0.0)])[0].token_ids
    stopper = Request(request(0).prompt_ids, SamplingParams(12, 0.0, stop_token_ids=frozenset({first[2]})), seed=0)
    drain(Engine(model, slots=1, length=LENGTH), [stopper])
    assert stopper.token_ids == first[: first.index(first[2]) + 1]


def test_penalty_leaves_no_token_twice(model):
    (r,) = drain(Engine(model, slots=1, length=LENGTH), [request(0, temperature=0.0, repetition_penalty=1e6)])
    assert len(set(r.token_ids)) == len(r.token_ids)


def test_abort_ends_running_and_waiting_requests_where_they_stand(model):
    engine = Engine(model, slots=1, length=LENGTH)
    requests = [request(i, max_tokens=20) for i in range(4)]
    for r in requests:
        r.params = SamplingParams(20)
        engine.add(r)
    engine.step()
    assert engine.abort([requests[0], requests[3]]) == [requests[0], requests[3]]
    assert [r.stop_reason for r in requests] == ["aborted", None, None, "aborted"]
    drain(engine, [])
    assert [len(r.token_ids) for r in requests] == [2, 20, 20, 0]
    assert engine.abort() == []


@pytest.mark.parametrize(("prompt", "max_tokens"), [([], 4), ([2] * 30, 4), ([2], LENGTH)])
def test_refuses_what_does_not_fit(model, prompt, max_tokens):
    with pytest.raises(ValueError, match="do not fit"):
        Engine(model, slots=1, length=LENGTH).add(Request(prompt, SamplingParams(max_tokens), seed=0))


def test_a_row_may_fill_its_slot(model):
    r = Request([2] * 4, SamplingParams(LENGTH - 4), seed=0)
    drain(Engine(model, slots=1, length=LENGTH), [r])
    assert len(r.token_ids) == LENGTH - 4


def test_refuses_models_with_other_attention():
    model = tiny_qwen2(use_sliding_window=True, sliding_window=8, max_window_layers=0)
    with pytest.raises(ValueError, match="sliding_attention"):
        Engine(model, slots=1, length=LENGTH)


def tiny_mistral(sliding_window):
    """A kind of model whose configuration lists no layers."""
    size = {"vocab_size": 37, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
    torch.manual_seed(0)
    return MistralForCausalLM(MistralConfig(**size, **heads, sliding_window=sliding_window)).eval()


def test_refuses_a_sliding_window_in_all_layers_and_says_what_goes_instead():
    with pytest.raises(ValueError, match=r"MistralForCausalLM has sliding_window=4 .*sliding_window=null"):
        Engine(tiny_mistral(4), slots=1, length=LENGTH)
    model = tiny_mistral(None)
    (r,) = drain(Engine(model, slots=1, length=LENGTH), [request(0, temperature=0.0)])
    assert r.token_ids == simply(model, r.prompt_ids, r.params.max_tokens)[0]


def test_serves_a_model_whose_configuration_keeps_a_window_that_no_layer_uses():
    model = tiny_qwen2()
    model.config.sliding_window = 8
    assert set(model.config.layer_types) == {"full_attention"}
    Engine(model, slots=1, length=LENGTH)
