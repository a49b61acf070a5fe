# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Sampling as pure functions: which tokens can come, how often, and with which log-prob."""

import pytest
import torch

from verl.workers.rollout.hf_server.sampling import SamplingParams, log_probs, penalise, pick

LOGITS = torch.tensor([2.0, 1.0, 0.0, -1.0, -2.0])


def params(**kwargs):
    return SamplingParams(max_tokens=4, **kwargs)


def kept(**kwargs):
    return log_probs(LOGITS, params(**kwargs)).isfinite().nonzero().flatten().tolist()


@pytest.mark.parametrize(
    ("kwargs", "expected"),
    [
        ({}, [0, 1, 2, 3, 4]),
        ({"top_k": -1}, [0, 1, 2, 3, 4]),
        ({"top_k": 0}, [0, 1, 2, 3, 4]),
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 1}, [0]),
        ({"top_k": 99}, [0, 1, 2, 3, 4]),
        ({"top_p": 1.0}, [0, 1, 2, 3, 4]),
        ({"top_p": 0.8}, [0, 1]),
        ({"top_p": 0.5}, [0]),
        ({"top_p": 1e-9}, [0]),
        ({"top_k": 3, "top_p": 0.95}, [0, 1, 2]),
        ({"top_k": 3, "top_p": 0.9}, [0, 1]),
    ],
)
def test_cuts_off_what_top_k_and_top_p_say(kwargs, expected):
    assert kept(**kwargs) == expected


@pytest.mark.parametrize(
    "kwargs", [{}, {"temperature": 0.5}, {"top_k": 3}, {"top_p": 0.8}, {"temperature": 2.0, "top_p": 0.9}]
)
def test_log_probs_are_those_of_a_distribution(kwargs):
    assert log_probs(LOGITS, params(**kwargs)).exp().sum() == pytest.approx(1.0, abs=1e-6)


def test_temperature_divides_the_logits():
    expected = torch.log_softmax(LOGITS / 0.7, -1)
    torch.testing.assert_close(log_probs(LOGITS, params(temperature=0.7)), expected)


def test_temperature_zero_takes_the_most_likely_token_and_reports_it_at_temperature_one():
    greedy = params(temperature=0.0, top_k=1, top_p=0.1)
    lp = log_probs(LOGITS, greedy)
    assert [pick(lp, greedy, u) for u in (0.0, 0.5, 0.999)] == [0, 0, 0]
    torch.testing.assert_close(lp, torch.log_softmax(LOGITS, -1))


def test_tokens_come_as_often_as_their_log_probs_say():
    lp = log_probs(LOGITS, params(temperature=1.3, top_k=4))
    grid = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    drawn = torch.tensor([pick(lp, params(), float(u)) for u in grid])
    shares = torch.bincount(drawn, minlength=5) / len(grid)
    torch.testing.assert_close(shares, lp.exp(), atol=2e-4, rtol=0)


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53])
def test_never_takes_a_token_that_was_cut_off(uniform):
    logits = torch.tensor([0.0, 5.0, 1.0, 4.0, 0.0])
    nucleus = params(top_k=2)
    assert pick(log_probs(logits, nucleus), nucleus, uniform) in (1, 3)


def test_penalty_makes_seen_tokens_less_likely_whatever_their_sign():
    out = penalise(LOGITS, torch.tensor([0, 4, 4]), 2.0)
    assert out.tolist() == [1.0, 1.0, 0.0, -1.0, -4.0]
    assert torch.equal(penalise(LOGITS, torch.tensor([0]), 1.0), LOGITS)


def test_reads_what_the_agent_loop_sends():
    sent = {"temperature": 0.5, "top_p": 0.9, "top_k": 7, "repetition_penalty": 1.1, "logprobs": True, "seed": 3}
    read = SamplingParams.from_request(sent, max_tokens=16, eos_token_ids=frozenset({1}))
    assert read == SamplingParams(16, 0.5, 7, 0.9, 1.1, frozenset({1}), 3)


@pytest.mark.parametrize(
    ("sent", "max_tokens", "stop"),
    [
        ({}, 16, {1}),
        ({"max_tokens": 3}, 3, {1}),
        ({"max_new_tokens": 5}, 5, {1}),
        ({"max_tokens": 99}, 16, {1}),
        ({"max_tokens": None}, 16, {1}),
        ({"stop_token_ids": [7, 8]}, 16, {1, 7, 8}),
        ({"stop_token_ids": [7], "ignore_eos": True}, 16, {7}),
        ({"ignore_eos": True}, 16, set()),
    ],
)
def test_reads_where_a_response_ends(sent, max_tokens, stop):
    read = SamplingParams.from_request(sent, max_tokens=16, eos_token_ids=frozenset({1}))
    assert (read.max_tokens, set(read.stop_token_ids)) == (max_tokens, stop)


@pytest.mark.parametrize(
    "sent", [{"temperature": -1}, {"top_p": 0}, {"top_p": 1.1}, {"max_tokens": -2}, {"repetition_penalty": 0}]
)
def test_refuses_values_out_of_range_by_name(sent):
    ((name, value),) = sent.items()
    with pytest.raises(ValueError, match=f"{name}={value} is out of range: it must be"):
        SamplingParams.from_request(sent, max_tokens=16, eos_token_ids=frozenset())


@pytest.mark.parametrize("name", ["max_tokens", "max_new_tokens"])
def test_no_tokens_at_all_is_an_error_as_in_vllm(name):
    with pytest.raises(ValueError, match="max_tokens=0 is out of range: it must be at least 1"):
        SamplingParams.from_request({name: 0}, max_tokens=16, eos_token_ids=frozenset())


@pytest.mark.parametrize("kwargs", [{}, {"top_k": 2}, {"top_k": 2, "top_p": 0.5}, {"temperature": 0.0}])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_one_broken_logit_shows_in_every_log_prob(kwargs, value):
    """Whatever is cut off: the caller may look at any of them."""
    logits = LOGITS.clone()
    logits[3] = value
    assert log_probs(logits, params(**kwargs)).isnan().all()


def test_refuses_what_it_does_not_honour():
    with pytest.raises(ValueError, match="min_p"):
        SamplingParams.from_request({"min_p": 0.1}, max_tokens=16, eos_token_ids=frozenset())
