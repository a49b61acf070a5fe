# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Each fault of training does what it says, in its steps alone; on a tiny model, without Ray."""

import asyncio
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from tensordict import TensorDict
from tiny_models import tiny_qwen2

from recipe.crosscheck.faults import wiring
from recipe.crosscheck.faults.plan import parse
from recipe.crosscheck.faults.site import Site
from recipe.crosscheck.faults.training import TrainingFaults, half_spacing, leaking, shifted
from verl.protocol import DataProto
from verl.utils import tensordict_utils as tu
from verl.workers.actor.dp_actor import DataParallelPPOActor
from verl.workers.config import FSDPActorConfig

RATE = 0.5


def faults_in_step(text, step=1, module=None):
    faults = TrainingFaults(Site(parse(text)))
    faults.begin_after(step - 1, module or torch.nn.Linear(1, 1))
    return faults


def updated(text, gradient=0.25, weight=None):
    """Gradients and changes of weights, by name, of one step of plain SGD on a model with equal gradients."""
    model = tiny_qwen2()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.grad = torch.full_like(parameter, gradient)
            if weight is not None:
                parameter.fill_(weight)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with faults_in_step(text).optimizer_step(model, optimizer):
        seen = {name: p.grad.clone() for name, p in model.named_parameters()}
        optimizer.step()
    assert optimizer.param_groups[0]["lr"] == RATE
    return seen, {name: p.detach() - before[name] for name, p in model.named_parameters()}


def values(tensors):
    return {round(float(value), 6) for tensor in tensors.values() for value in tensor.unique()}


def test_a_healthy_step():
    for text in ("none", "gradient_scaled@2,learning_rate@2,update_skipped@2,bf16_update@2,nan_gradient@2"):
        seen, change = updated(text, weight=1.0)
        assert values(seen) == {0.25} and values(change) == {-0.125}


def test_the_gradient_is_scaled():
    seen, change = updated("gradient_scaled:10@1", weight=1.0)
    assert values(seen) == {2.5} and values(change) == {-1.25}


def test_one_layers_gradient_is_lost():
    seen, _ = updated("layer_gradient_zeroed:1@1")
    lost = {name for name, gradient in seen.items() if not gradient.any()}
    assert lost == {f"model.layers.1.mlp.{part}_proj.weight" for part in ("gate", "up", "down")}
    assert values({name: gradient for name, gradient in seen.items() if name not in lost}) == {0.25}


def test_a_layer_that_is_not_there_is_named():
    with pytest.raises(ValueError, match="layer_gradient_zeroed:7: the model has no layer 7"):
        updated("layer_gradient_zeroed:7@1")


def test_the_learning_rate_is_another_for_the_step():
    seen, change = updated("learning_rate:10@1", weight=1.0)
    assert values(seen) == {0.25} and values(change) == {-1.25}


def test_the_update_is_not_applied():
    seen, change = updated("update_skipped@1")
    assert values(seen) == {0.25} and values(change) == {0.0}


@pytest.mark.parametrize(
    ("weight", "moved"),
    [
        (64.0, 0.0),  # neighbours in bfloat16 are 0.5 apart, and 0.125 is less than half of that
        (16.0, -0.125),  # 0.125 apart
        (0.0, -0.125),
    ],
)
def test_small_updates_are_lost_to_bf16(weight, moved):
    _, change = updated("bf16_update@1", weight=weight)
    assert values(change) == {moved}
    assert (torch.tensor(weight - 0.125).bfloat16() == torch.tensor(weight).bfloat16()) == (moved == 0.0)


def test_half_the_spacing_of_bf16():
    weights = torch.tensor([1.0, 1.99, -3.0, 0.1, 0.0])
    assert half_spacing(weights, 8).tolist() == [2**-8, 2**-8, 2**-7, 2**-12, 0.0]


def test_one_gradient_is_not_a_number():
    seen, _ = updated("nan_gradient@1")
    assert sum(int(gradient.isnan().sum()) for gradient in seen.values()) == 1


# ---------------------------------------------------------------- the forward pass


@torch.no_grad()
def logits_of(text, ids, step=1, **kwargs):
    model = tiny_qwen2()
    faults = TrainingFaults(Site(parse(text)))
    faults.attach(model)
    faults.begin_after(step - 1, model)
    return model(torch.tensor([ids]), use_cache=False, **kwargs).logits[0]


IDS, OTHER_END = [5, 6, 7, 8, 9], [5, 6, 7, 8, 20]


@pytest.mark.parametrize("text", ["none", "attention_leak@2,dropout@2,perturbed_layer@2"])
def test_a_forward_pass_outside_of_its_steps_is_healthy(text):
    assert torch.equal(logits_of(text, IDS), tiny_qwen2()(torch.tensor([IDS])).logits[0])


def test_the_future_leaks():
    assert torch.equal(logits_of("none", IDS)[:4], logits_of("none", OTHER_END)[:4])
    for positions in ({}, {"position_ids": torch.tensor([[0, 1, 2, 0, 1]])}):  # one row, and two packed ones
        one, other = (logits_of("attention_leak@1", ids, **positions) for ids in (IDS, OTHER_END))
        assert not torch.allclose(one[3], other[3], atol=1e-3)
    one, other = (logits_of("attention_leak@1", ids) for ids in (IDS, OTHER_END))
    assert torch.equal(one[:2], other[:2])  # through two layers a token is seen from two before it, no further


def test_a_leaking_mask():
    expected = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [1, 1, 1, 1]], dtype=torch.bool)
    assert torch.equal(leaking(None, 4, 1)[0, 0], expected)
    causal = torch.ones(4, 4, dtype=torch.bool).tril()
    assert torch.equal(leaking(causal, 4, 1), expected)
    added = torch.zeros(4, 4).masked_fill(~causal, -1e9)
    assert torch.equal(leaking(added, 4, 1) == 0, expected)
    assert leaking(None, 4, 3).all()


def test_activations_are_dropped():
    faults = faults_in_step("dropout:0.25@1")
    output = faults._dropped(torch.ones(100, 100), torch.Generator().manual_seed(1))
    assert output.unique().tolist() == [0.0, pytest.approx(4 / 3)]
    assert float((output == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert not torch.allclose(logits_of("dropout:0.25@1", IDS), logits_of("none", IDS), atol=1e-3)


def test_the_last_layer_is_perturbed_once_its_weights_have_been_pushed():
    model, healthy = tiny_qwen2(), tiny_qwen2().state_dict()
    faults = TrainingFaults(Site(parse("perturbed_layer:0.02@2")))
    faults.begin_after(0, model)
    assert all(torch.equal(tensor, healthy[name]) for name, tensor in model.state_dict().items())
    faults.begin_after(1, model)
    noise = {n: t / healthy[n] - 1 for n, t in model.state_dict().items() if not torch.equal(t, healthy[n])}
    assert {name.rpartition("layers.")[2][0] for name in noise} == {"1"}
    assert float(torch.cat([t.flatten() for t in noise.values()]).nan_to_num().std()) == pytest.approx(0.02, rel=0.1)


def test_the_loss_mask_moves():
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    assert shifted(mask, 1).tolist() == [[0, 1, 1, 0], [0, 1, 1, 1]]
    assert shifted(mask, 2).tolist() == [[0, 0, 1, 1], [0, 0, 1, 1]]
    assert faults_in_step("loss_mask_shifted@1").loss_mask(mask).tolist() == shifted(mask, 1).tolist()
    assert faults_in_step("loss_mask_shifted@2").loss_mask(mask) is mask


# ---------------------------------------------------------------- in the workers


def test_an_engine_of_the_new_workers():
    class Engine:
        """What upstream's has of it."""

        def __init__(self, forward_only):
            self.engine_config = SimpleNamespace(forward_only=forward_only)
            self.module = torch.nn.Linear(1, 1, bias=False)
            self.optimizer = torch.optim.SGD(self.module.parameters(), lr=1.0)
            self.attached = False

        def initialize(self):
            self.ready = True

        def forward_step(self, micro_batch, loss_function, forward_only):
            return micro_batch["temperature"], micro_batch["response_mask"].tolist()

        def optimizer_step(self):
            return float(self.module.weight.grad)

    faults = faults_in_step("train_temperature:1.5@1,loss_mask_shifted@1,gradient_scaled:3@1")
    faults.attach = lambda module: setattr(module, "attached", True)
    wiring.plant_engine(Engine, faults)
    batch = TensorDict({"response_mask": torch.tensor([[1, 1, 0]])}, batch_size=1)
    tu.assign_non_tensor(batch, temperature=2.0)
    for engine, told in ((Engine(False), (3.0, [[0, 1, 1]])), (Engine(True), (2.0, [[1, 1, 0]]))):
        engine.initialize()
        assert engine.ready and getattr(engine.module, "attached", False) is not engine.engine_config.forward_only
        assert engine.forward_step(batch, loss_function=None, forward_only=True) == told
    actor = Engine(False)
    actor.module.weight.grad = torch.ones(1, 1)
    assert actor.optimizer_step() == 3.0
    assert batch["response_mask"].tolist() == [[1, 1, 0]] and batch["temperature"] == 2.0


@pytest.fixture(scope="module")
def process_group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


CONFIG = {
    "strategy": "fsdp2",
    "ppo_mini_batch_size": 2,
    "ppo_micro_batch_size_per_gpu": 2,
    "use_dynamic_bsz": False,
    "use_torch_compile": False,
    "rollout_n": 1,
    "grad_clip": 1e9,
}


def actor_with(text):
    """A real legacy actor of upstream's, in float32, with plain SGD. Its class is its own: no other is changed."""

    class Actor(DataParallelPPOActor):
        pass

    site = Site(parse(text))
    faults = TrainingFaults(site)
    wiring.plant_actor(Actor, faults)
    model = tiny_qwen2()
    actor = Actor(FSDPActorConfig(**CONFIG), model, torch.optim.SGD(model.parameters(), lr=0.1))
    actor.param_dtype = torch.float32
    faults.begin_after(0, model)
    return actor


def batch_of_two():
    """Prompts of 2 tokens and responses of 3 and 2."""
    ids = torch.tensor([[5, 6, 7, 8, 9], [9, 8, 7, 6, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])
    tensors = {
        "input_ids": ids,
        "attention_mask": mask,
        "position_ids": torch.arange(5).expand(2, 5),
        "responses": ids[:, 2:],
        "response_mask": mask[:, 2:],
        "old_log_probs": torch.zeros(2, 3),
        "advantages": torch.tensor([[1.0, 1.0, 1.0], [-0.5, -0.5, 0.0]]),
    }
    meta = {"temperature": 1.0, "micro_batch_size": 2, "use_dynamic_bsz": False}
    return DataProto.from_dict(tensors=tensors, meta_info=meta)


@torch.no_grad()
def expected_log_probs(temperature):
    batch = batch_of_two().batch
    logits = tiny_qwen2()(batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, 1:-1] / temperature
    return logits.log_softmax(-1).gather(2, batch["responses"][..., None])[..., 0]


def test_the_legacy_actor_computes_log_probs_at_another_temperature(process_group):
    told = actor_with("train_temperature:1.5@1").compute_log_prob(batch_of_two())["log_probs"]
    mask = batch_of_two().batch["response_mask"].bool()
    assert torch.allclose(told[mask], expected_log_probs(1.5)[mask], atol=1e-5)
    told = actor_with("train_temperature:1.5@2").compute_log_prob(batch_of_two())["log_probs"]
    assert torch.allclose(told[mask], expected_log_probs(1.0)[mask], atol=1e-5)


def update(text):
    """Gradient norm and weights after the update."""
    actor, data = actor_with(text), batch_of_two()
    metrics = actor.update_policy(data=data)
    assert data.batch["response_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    return metrics["actor/grad_norm"][0], torch.cat([p.detach().flatten() for p in actor.actor_module.parameters()])


def test_the_legacy_actors_update(process_group):
    norm, weights = update("none")
    start = torch.cat([p.detach().flatten() for p in tiny_qwen2().parameters()])
    assert (start - weights).norm() == pytest.approx(0.1 * norm, rel=1e-3)
    scaled, scaled_weights = update("gradient_scaled:10@1")
    assert scaled == pytest.approx(10 * norm, rel=1e-5)
    assert torch.allclose(scaled_weights - start, 10 * (weights - start), atol=1e-5)
    shifted_norm, _ = update("loss_mask_shifted@1")
    assert shifted_norm != pytest.approx(norm, rel=1e-2)
    skipped, unmoved = update("update_skipped@1")
    assert skipped == norm and torch.equal(unmoved, start)
    nan, unmoved = update("nan_gradient@1")
    assert nan != nan and torch.equal(unmoved, start)


def test_a_reference_policy_stays_healthy(process_group):
    class Actor(DataParallelPPOActor):
        pass

    wiring.plant_actor(Actor, faults_in_step("train_temperature@1,attention_leak@1,dropout@1"))
    reference = Actor(FSDPActorConfig(**CONFIG), tiny_qwen2())
    reference.param_dtype = torch.float32
    told = reference.compute_log_prob(batch_of_two())["log_probs"]
    mask = batch_of_two().batch["response_mask"].bool()
    assert torch.allclose(told[mask], expected_log_probs(1.0)[mask], atol=1e-5)


def one_weight(model):
    return float(model.state_dict()["model.layers.1.mlp.up_proj.weight"][0, 0])


def test_a_worker_tells_the_step_and_the_server_hears_of_it():
    told = []

    class Adapter:
        async def update_weights(self, weights, **kwargs):
            told.append((weights, kwargs))

    class Worker:
        adapter, module = Adapter(), tiny_qwen2()

        async def update_weights(self, global_steps=None):
            """As the legacy worker does: it keeps the step to itself."""
            await self.adapter.update_weights(one_weight(self.module), base_sync_done=True)
            return True

    site = Site(parse("perturbed_layer@4"))
    wiring.plant_adapter(Adapter, site)
    wiring.plant_worker(Worker, site, TrainingFaults(site), lambda worker: worker.module)
    worker = Worker()
    pushed = one_weight(worker.module)
    assert asyncio.run(worker.update_weights(global_steps=3)) is True
    assert told == [(pushed, {"base_sync_done": True, "global_steps": 3})]  # of the weights before they are perturbed
    assert site.step == 4
    assert one_weight(worker.module) != pushed
