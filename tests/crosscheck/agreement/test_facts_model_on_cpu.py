# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs that begin with other LoRA adapters are told so before the first step, which nobody then is accused for."""

from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from peft import LoraConfig, get_peft_model
from rollout_fixtures import make_config
from tiny_models import tiny_qwen2

from verl.crosscheck.agreement import facts_model
from verl.crosscheck.agreement.compare import Comparison, fact_differences, not_known
from verl.crosscheck.agreement.facts_model import adapter_facts, critic_adapter_facts, trains_adapters
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.reasons import ReasonCode, because, free_text
from verl.crosscheck.run import live
from verl.crosscheck.run.selection import hooks_for


@pytest.mark.parametrize(
    ("model", "trains"),
    [
        ({}, False),
        ({"lora_rank": 0, "lora": {"rank": 0}, "lora_adapter_path": None}, False),
        ({"lora_rank": 8}, True),
        ({"lora": {"rank": 8}}, True),
        ({"lora_rank": 0, "lora_adapter_path": "/adapter"}, True),
    ],
)
def test_which_runs_train_adapters(model, trains):
    assert trains_adapters(OmegaConf.create({"actor_rollout_ref": {"model": model}})) is trains


def actor(seed, dtype=torch.float32):
    model = tiny_qwen2()
    torch.manual_seed(seed)
    return SimpleNamespace(
        _is_actor=True, actor_module_fsdp=get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"])).to(dtype)
    )


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setattr(facts_model, "ask_all", lambda group, function, *args: [function(group, *args)])


def differing(one, other):
    wrong, unknown = fact_differences({"adapters": one}, {"adapters": other})
    return [each.key for each in wrong], unknown


def test_adapters_that_are_drawn_differ_and_their_zeros_do_not():
    own = adapter_facts(actor(1), 0)
    assert differing(own, adapter_facts(actor(1), 0)) == ([], [])
    names = [f"base_model.model.model.layers.{layer}.self_attn.q_proj.lora_A.weight" for layer in (0, 1)]
    assert differing(own, adapter_facts(actor(2), 0)) == ([f"adapters.float32.{name}" for name in names], [])
    assert own["tensors"] == len(own["float32"]) == 4


def test_a_run_whose_configuration_names_an_adapter_and_which_trains_none():
    """As upstream's new workers do without `lora_rank`."""
    own, other = (
        adapter_facts(actor(1), 0),
        adapter_facts(SimpleNamespace(_is_actor=True, actor_module_fsdp=tiny_qwen2()), 0),
    )
    assert other == {"tensors": 0}
    assert "adapters.tensors" in differing(own, other)[0]


def test_what_cannot_be_equal_is_not_compared():
    own = adapter_facts(actor(1), 0)
    for other in (adapter_facts(actor(1, torch.bfloat16), 0), adapter_facts(actor(1), 3)):
        wrong, unknown = differing(own, other)
        assert wrong == []
        assert unknown
    assert critic_adapter_facts(OmegaConf.create({"critic": {"model": {"lora_rank": 0}}})) == {}
    facts = critic_adapter_facts(OmegaConf.create({"critic": {"model": {"lora_rank": 8}}}))
    assert [each.key for each in fact_differences(facts, facts)[1]] == ["critic_adapters"]
    assert adapter_facts(actor(1), 3) == not_known(because(ReasonCode.GOES_ON, step=3))


def test_workers_that_cannot_say_it(monkeypatch):
    def fails(*_):
        raise CrossCheckError("rank 0: not possible with LoRA of Megatron")

    monkeypatch.setattr(facts_model, "ask_all", fails)
    assert adapter_facts(None, 0) == not_known(free_text("rank 0: not possible with LoRA of Megatron"))


def test_the_report_says_where_to_look():
    wrong, _ = fact_differences({"adapters": adapter_facts(actor(1), 0)}, {"adapters": adapter_facts(actor(2), 0)})
    report = Comparison(fact_differences=tuple(wrong)).report("A", "B")
    assert "come from actor_rollout_ref.model.lora_adapter_path, and from chance where it is null" in report


def test_the_report_shows_the_first_of_many():
    own, other = ({"adapters": {"float32": {f"w{i:03}": str(i + shift) for i in range(200)}}} for shift in (0, 1))
    report = Comparison(fact_differences=tuple(fact_differences(own, other)[0])).report("A", "B")
    assert "adapters.float32.w000" in report
    assert "and 188 facts more, up to adapters.float32.w199" in report
    assert len(report.splitlines()) < 20


@pytest.mark.parametrize("lora_rank", [0, 8])
def test_facts_are_told_once_the_workers_have_the_adapters(monkeypatch, tmp_path, lora_rank):
    told = []
    monkeypatch.setattr(live, "collect_facts", lambda trainer: {"model": {}})
    config = make_config(tmp_path, "ckpt")
    config.actor_rollout_ref.model = {"lora_rank": lora_rank}
    hook = hooks_for(config)
    monkeypatch.setattr(hook.run, "report_facts", told.append)
    monkeypatch.setattr(hook, "begin_training", lambda group: told.append("begin"))
    hook.constructed(SimpleNamespace())
    assert told == ([] if lora_rank else [{"model": {}}])
    hook.resumed(0, SimpleNamespace(actor_rollout_wg=actor(1)))
    expected = {"model": {}, **({"adapters": adapter_facts(actor(1), 0)} if lora_rank else {})}
    assert told == [expected, "begin"]
