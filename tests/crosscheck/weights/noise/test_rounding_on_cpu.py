# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Random rounding: what it does to numbers, and whether it predicts how far two real implementations are apart."""

import copy
import time

import pytest
import torch
import torch.distributed as dist
from tiny_models import tiny_qwen2
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import AutoModelForCausalLM
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from recipe.crosscheck.data import MODEL_DIR
from verl.crosscheck.weights.noise.gradient import gradient_sums, local_gradients
from verl.crosscheck.weights.noise.rounding import (
    FP8_LINEAR,
    OWN,
    QUARTER_SPACING,
    Roundoff,
    engine_roundoff,
    rounded,
    rounding,
)
from verl.crosscheck.weights.tensors import local_parameters

FORMATS = [torch.float32, torch.float16, torch.bfloat16]
PROMPTS, TOKENS = 48, 24


@pytest.mark.parametrize("dtype", FORMATS)
def test_numbers_move_to_their_neighbours_by_the_roundoff_on_average(dtype):
    values = (torch.randn(200_000) * torch.tensor(10.0) ** torch.randint(-3, 3, (200_000,))).to(dtype)
    values = values[values.abs() > torch.finfo(dtype).tiny]
    unit = QUARTER_SPACING[str(dtype).removeprefix("torch.")]
    moved = rounded(values, unit, seed=3)
    difference = (moved.double() - values.double()).abs() / values.double().abs()
    assert moved.dtype == dtype and difference.max() <= torch.finfo(dtype).eps * (1 + 1e-3)
    assert difference.mean() == pytest.approx(unit / 2, rel=0.05)
    assert (moved.double() - values.double()).mean().abs() < difference.std()
    assert torch.equal(moved, rounded(values, unit, seed=3)) and not torch.equal(moved, rounded(values, unit, seed=4))


def test_coarse_noise_on_a_fine_format_and_special_numbers():
    values = torch.tensor([1.0, -2.0, 0.0, float("inf"), float("nan")])
    moved = rounded(values, FP8_LINEAR, seed=1)
    assert 0 < (moved[:2] / values[:2] - 1).abs().max() <= FP8_LINEAR
    assert moved[2] == 0 and moved[3].isinf() and moved[4].isnan()


def test_engines():
    assert engine_roundoff("bfloat16", None) == Roundoff(2**-9, 2**-9)
    assert engine_roundoff("float16", "fp8") == Roundoff(2**-4, 2**-12)
    assert engine_roundoff("bfloat16", "awq") is None and engine_roundoff("float8", None) is None


def model(attention="sdpa", dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(MODEL_DIR, attn_implementation=attention, dtype=dtype)


def log_probs(of, ids, autocast):
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = of(input_ids=ids, use_cache=False).logits[:, -TOKENS - 1 : -1].float()
    return torch.log_softmax(logits, -1).gather(-1, ids[:, -TOKENS:, None])[..., 0]


@pytest.fixture(scope="module")
def ids():
    """Rows that the model has sampled, of another seed in each run of the test."""
    seed = time.time_ns() % 2**31
    print("seed", seed)
    torch.manual_seed(seed)
    sampler = model()
    ids = torch.randint(3, sampler.config.vocab_size, (PROMPTS, 6))
    with torch.no_grad():
        for _ in range(TOKENS):
            chances = torch.softmax(sampler(input_ids=ids, use_cache=False).logits[:, -1], -1)
            ids = torch.cat([ids, torch.multinomial(chances, 1)], 1)
    return ids


def mean_difference(one, other):
    return float((one - other).abs().mean())


@pytest.mark.parametrize(
    ("dtype", "autocast"), [(torch.float32, False), (torch.float32, True), (torch.bfloat16, False)]
)
@torch.no_grad()
def test_predictions_are_near_what_real_implementations_are_apart(ids, dtype, autocast):
    """Within a factor of 3: eager against sdpa attention, and bfloat16 against float32."""
    plain = log_probs(sdpa := model(dtype=dtype), ids, autocast)
    with rounding(sdpa, OWN, seed=int(ids.sum())) as modules:
        predicted = mean_difference(log_probs(sdpa, ids, autocast), plain)
    assert modules == 21 and torch.equal(log_probs(sdpa, ids, autocast), plain)
    seen = [mean_difference(log_probs(model("eager", dtype), ids, autocast), plain)]
    if autocast or dtype is torch.bfloat16:
        seen.append(mean_difference(log_probs(model(), ids, False), plain))
    for each in seen:
        assert predicted / 3 < each < predicted * 3, (predicted, seen)


def backward(of, ids, advantages, autocast):
    of.zero_grad()
    new = log_probs(of, ids, autocast)
    (-(advantages[:, None] * torch.exp(new - new.detach())).mean()).backward()


@pytest.mark.parametrize(("dtype", "autocast"), [(torch.float32, True), (torch.bfloat16, False)])
def test_predicted_gradients_are_near_what_real_implementations_are_apart(ids, dtype, autocast):
    """Likewise, of the gradient and of the change that Adam makes first, as vectors of all tensors."""
    advantages = torch.randn(len(ids))

    def apart(of, plain, optimizer):
        sums = list(gradient_sums(of, optimizer, plain).values())
        relative = [(each.apart, each.plain, each.change_apart, each.change) for each in sums]
        totals = [sum(column) for column in zip(*relative, strict=True)]
        return (totals[0] / totals[1]) ** 0.5, (totals[2] / totals[3]) ** 0.5

    sdpa = model(dtype=dtype)
    optimizer = torch.optim.AdamW(sdpa.parameters(), lr=1e-3)
    backward(sdpa, ids, advantages, autocast)
    plain = {name: gradient.clone() for name, gradient in local_gradients(sdpa).items()}
    with rounding(sdpa, OWN, seed=int(ids.sum())):
        backward(sdpa, ids, advantages, autocast)
    predicted = apart(sdpa, plain, optimizer)
    eager = model("eager", dtype)
    backward(eager, ids, advantages, autocast)
    seen = apart(eager, plain, torch.optim.AdamW(eager.parameters(), lr=1e-3))
    for one, other in zip(predicted, seen, strict=True):
        assert one / 4 < other < one * 3, (predicted, seen)


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.parametrize("kind", ["fsdp1", "fsdp1-orig", "fsdp2"])
def test_wrappers_of_fsdp(group, kind):
    """Gradients go by the names that changes of the weights have, and each inner module is rounded once."""
    plain = tiny_qwen2()
    ids = torch.randint(3, 37, (2, 9))
    wrapped = copy.deepcopy(plain)
    if kind == "fsdp2":
        for layer in wrapped.model.layers:
            fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
        fully_shard(wrapped, mesh=init_device_mesh("cpu", (1,)))
    else:
        policy = ModuleWrapPolicy({Qwen2DecoderLayer})
        device = torch.device("cpu")
        wrapped = FullyShardedDataParallel(
            wrapped, auto_wrap_policy=policy, device_id=device, use_orig_params=kind == "fsdp1-orig"
        )
    outputs = []
    for each in (plain, wrapped):
        with rounding(each, Roundoff(2**-9, 2**-9), seed=2) as modules:
            logits = each(input_ids=ids, use_cache=False).logits
            logits.square().mean().backward()
        assert modules == 21
        outputs.append(logits.detach())
    assert torch.allclose(outputs[0], outputs[1], rtol=1e-4, atol=1e-4)
    gradients = local_gradients(wrapped)
    parts = local_parameters([wrapped])
    assert gradients.keys() == parts.keys()
    assert all(gradients[name].numel() == parts[name].local.numel() for name in parts)
    whole = sum(float(each.square().sum()) for each in gradients.values())
    assert whole == pytest.approx(sum(float(p.grad.square().sum()) for p in plain.parameters()), rel=1e-3)


def test_a_pass_with_checkpointing_has_the_same_gradient_as_without(ids):
    gradients = []
    for checkpointing in (False, True):
        trained = model()
        if checkpointing:
            trained.gradient_checkpointing_enable({"use_reentrant": False})
        with rounding(trained.train(), Roundoff(2**-9, 2**-9), seed=5):
            log_probs(trained, ids[:8], False).sum().backward()
        gradients.append(local_gradients(trained))
    plain, checkpointed = gradients
    assert all(torch.allclose(plain[name], checkpointed[name], rtol=1e-4, atol=1e-5) for name in plain)


@pytest.mark.parametrize("steps_before", [0, 3])
def test_the_change_is_adams(steps_before):
    """The predicted change is what the optimizer then does; the factor is 1 where gradients have their usual size."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(50, 40, bias=False)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.01, weight_decay=0.0)
    gradient = torch.randn(40, 50)
    for _ in range(steps_before):
        layer.weight.grad = gradient.clone()
        optimizer.step()
    plain, noisy = gradient, gradient + 0.1 * torch.randn(40, 50)
    layer.weight.grad = noisy.clone()
    sums = gradient_sums(layer, optimizer, {"weight": plain.flatten()})["weight"]
    before = layer.weight.detach().clone()
    optimizer.step()
    change = before - layer.weight.detach()
    assert sums.noisy_change == pytest.approx(float(change.square().sum()), rel=1e-3)
    assert sums.apart == pytest.approx(float((noisy - plain).square().sum()), rel=1e-4)
    assert 0 < sums.change_apart < sums.change


def test_another_optimizer_has_no_prediction_of_the_change():
    layer = torch.nn.Linear(2, 2, bias=False)
    layer.weight.grad = torch.ones(2, 2)
    sums = gradient_sums(layer, torch.optim.SGD(layer.parameters(), lr=1.0), {"weight": torch.ones(4)})["weight"]
    assert (sums.plain, sums.apart, sums.change) == (4.0, 0.0, None)
