# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which form of checkpoint a pair exchanges, and when there is none that both could load."""

import pytest
from msgspec.structs import replace

from verl.crosscheck.errors import MismatchError
from verl.crosscheck.exchange.session.run_files import Card, Start
from verl.crosscheck.run.ckpt_format import choose, sharding_of, why_not_portable
from verl.crosscheck.settings import CkptFormat

ACTOR = "actor_rollout_ref.actor"


def card(form="auto", device="cuda", world_size=8, strategy="fsdp2", mode="ckpt", **actor):
    config = {
        "trainer": {"share_data_ckpt_format": form},
        "actor_rollout_ref": {"actor": {"strategy": strategy, "fsdp_config": {"fsdp_size": -1}, **actor}},
    }
    return Card("r" * 16, "", mode, "host", {}, "now", {}, device, world_size, strategy, Start(), 0, config)


def test_runs_laid_out_alike_exchange_upstreams_own():
    choice = choose(card(), card(mode="rollout"))
    assert (choice.format, choice.reason) == (CkptFormat.NATIVE, "both runs are laid out alike")


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"device": "npu"}, "device cuda here, npu there"),
        ({"world_size": 16}, "world size 8 here, 16 there"),
        ({"strategy": "fsdp"}, "strategy fsdp2 here, fsdp there"),
        ({"fsdp_config": {"fsdp_size": 4}}, "sharding over all ranks here, over 4 ranks, replicated there"),
    ],
)
def test_any_other_layout_makes_them_portable_for_both(other, reason):
    one, two = card(), card(mode="rollout", **other)
    assert choose(one, two).format is choose(two, one).format is CkptFormat.PORTABLE
    assert choose(one, two).reason == reason


@pytest.mark.parametrize(
    ("strategy", "own", "other", "reason"),
    [
        (
            "fsdp",
            {"fsdp_config": {"use_orig_params": False}},
            {"fsdp_config": {"use_orig_params": True}},
            "division of the optimizer fsdp_config.use_orig_params=False here, fsdp_config.use_orig_params=True there",
        ),
        (
            "megatron",
            {"megatron": {"use_mbridge": True, "use_distributed_optimizer": True}},
            {"megatron": {"use_mbridge": True, "use_distributed_optimizer": False}},
            "division of the optimizer megatron.use_distributed_optimizer=True, megatron.use_mbridge=True here",
        ),
    ],
)
def test_native_checkpoints_that_divide_the_optimizer_otherwise_do_not_suit(strategy, own, other, reason):
    choice = choose(card(strategy=strategy, **own), card(strategy=strategy, mode="rollout", **other))
    assert choice.format is CkptFormat.PORTABLE
    assert choice.reason.startswith(reason)


def test_fsdp2_divides_by_tensors_alone():
    one, other = ({"fsdp_config": {"use_orig_params": value}} for value in (True, False))
    assert choose(card(**one), card(mode="rollout", **other)).format is CkptFormat.NATIVE


def test_the_new_workers_go_by_the_engines_word():
    pair = [card(fsdp_config={"strategy": strategy}) for strategy in ("fsdp2", "fsdp")]
    for each in pair:
        each.config["trainer"]["use_legacy_worker_impl"] = "disable"
    assert choose(*pair).reason == "strategy fsdp2 here, fsdp there"


def test_both_layouts_are_told_where_several_things_differ():
    assert choose(card(), card(device="npu", world_size=16)).reason == (
        "device cuda here, npu there; world size 8 here, 16 there"
    )


def test_a_word_of_one_run_counts_for_both():
    assert choose(card("portable"), card()).format is CkptFormat.PORTABLE
    assert choose(card(), card("native")).format is CkptFormat.NATIVE
    with pytest.raises(MismatchError, match="world size 8 here, 2 there.*share_data_ckpt_format=auto"):
        choose(card(), card("native", world_size=2))
    with pytest.raises(MismatchError, match="this run has .*=native and the other run, .*, has portable"):
        choose(card("native"), card("portable"))


def test_a_run_that_has_no_portable_ones_is_named():
    titan = card(strategy="torchtitan", mode="rollout")
    with pytest.raises(MismatchError, match="^the other run, .* has no portable checkpoints: .*torchtitan.*needed"):
        choose(card(), titan)
    with pytest.raises(MismatchError, match="^this run has no portable checkpoints"):
        choose(titan, card())
    assert choose(titan, replace(titan)).format is CkptFormat.NATIVE


def test_what_a_configuration_alone_tells():
    assert why_not_portable({f"{ACTOR}.strategy": "fsdp"}) == ""
    assert why_not_portable({f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.use_mbridge": True}) == ""
    assert "use_mbridge=True" in why_not_portable(
        {f"{ACTOR}.strategy": "megatron", f"{ACTOR}.megatron.use_mbridge": False}
    )
    assert "lora_rank=0" in why_not_portable({f"{ACTOR}.strategy": "megatron", "actor_rollout_ref.model.lora_rank": 8})
    assert "quantisation" in why_not_portable({f"{ACTOR}.strategy": "fsdp", f"{ACTOR}.fsdp_config.qat.enable": True})


def test_sharding_in_words():
    sizes = {f"{ACTOR}.megatron.tensor_model_parallel_size": 2, f"{ACTOR}.megatron.pipeline_model_parallel_size": 1}
    assert sharding_of(sizes, "megatron", 8) == "tensor_model_parallel_size=2"
    for size in (-1, 8, 16, None):
        assert sharding_of({f"{ACTOR}.fsdp_config.fsdp_size": size}, "fsdp2", 8) == "over all ranks"
