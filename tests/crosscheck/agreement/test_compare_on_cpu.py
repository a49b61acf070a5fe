# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two runs agree where they must, may differ where the table says so, and are told all differences at once."""

import shlex
from functools import cache

import pytest
from hydra import compose, initialize_config_module
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from verl.crosscheck.agreement.compare import (
    NOT_SET,
    VALUE_CHARS,
    Comparison,
    Difference,
    NotCompared,
    compare,
    fact_differences,
    flatten,
    require_agreement,
    setting_differences,
    without_length,
)
from verl.crosscheck.agreement.table import TABLE, UNSET_MEANS, Rule, Scope
from verl.crosscheck.errors import AgreementError
from verl.crosscheck.overrides import assignment
from verl.crosscheck.reasons import ReasonCode, because
from verl.crosscheck.redaction import LEFT_OUT


def differences(own, other, resumed=False):
    return setting_differences(own, other, resumed=resumed)[0]


def not_compared(own, other):
    return setting_differences(own, other)[1]


def allowed_differences(own, other):
    return setting_differences(own, other)[2]


SHIPPED = {
    "ppo_trainer": (),
    "ppo_megatron_trainer": (),
    "ppo_cpu_trainer": (),
    "ppo_trainer with torchtitan": ("model_engine=torchtitan",),
    "ppo_trainer with veomni": ("model_engine=veomni",),
}
NOT_SHIPPED = {
    # Free-form sections, empty as shipped, in which people set these keys with `+`
    "**.megatron.override_ddp_config.**",
    "**.megatron.override_transformer_config.*pipeline*|*parallel*|moe_token_dispatcher_type|*overlap*",
    "**.megatron.override_transformer_config.use_flash_attn|*fusion|*fused*|moe_grouped_gemm|moe_enable_deepep"
    "|persist_layer_norm",
    "**.megatron.override_transformer_config.position_embedding_type|normalization",
    "**.megatron.override_transformer_config.moe_router_dtype",
    "**.optim.override_optimizer_config.*offload*|overlap_*|*precision_aware*",
}

MUST_AGREE = """
    algorithm.adv_estimator algorithm.gamma algorithm.lam algorithm.kl_ctrl.kl_coef algorithm.use_kl_in_reward
    algorithm.norm_adv_by_std_in_grpo algorithm.rollout_correction.bypass_mode
    data.train_batch_size data.val_batch_size data.seed data.shuffle data.max_prompt_length data.max_response_length
    data.train_max_samples data.truncation data.filter_overlong_prompts data.prompt_key data.reward_fn_key
    actor_rollout_ref.actor.ppo_mini_batch_size actor_rollout_ref.actor.ppo_epochs actor_rollout_ref.actor.shuffle
    actor_rollout_ref.actor.clip_ratio actor_rollout_ref.actor.clip_ratio_c actor_rollout_ref.actor.loss_agg_mode
    actor_rollout_ref.actor.entropy_coeff actor_rollout_ref.actor.use_kl_loss actor_rollout_ref.actor.kl_loss_coef
    actor_rollout_ref.actor.policy_loss.loss_mode actor_rollout_ref.actor.data_loader_seed
    actor_rollout_ref.actor.optim.lr actor_rollout_ref.actor.optim.weight_decay actor_rollout_ref.actor.optim.betas
    actor_rollout_ref.actor.optim.clip_grad actor_rollout_ref.actor.optim.lr_warmup_steps
    actor_rollout_ref.actor.optim.lr_scheduler_type actor_rollout_ref.actor.optim.optimizer
    actor_rollout_ref.actor.grad_clip
    actor_rollout_ref.actor.fsdp_config.seed actor_rollout_ref.actor.qat.enable
    actor_rollout_ref.actor.router_replay.mode
    actor_rollout_ref.rollout.temperature actor_rollout_ref.rollout.top_p actor_rollout_ref.rollout.top_k
    actor_rollout_ref.rollout.n actor_rollout_ref.rollout.do_sample actor_rollout_ref.rollout.ignore_eos
    actor_rollout_ref.rollout.response_length actor_rollout_ref.rollout.logprobs_mode
    actor_rollout_ref.rollout.calculate_log_probs actor_rollout_ref.rollout.val_kwargs.temperature
    actor_rollout_ref.rollout.multi_turn.enable actor_rollout_ref.rollout.agent.default_agent_loop
    actor_rollout_ref.model.lora_rank actor_rollout_ref.model.custom_chat_template
    actor_rollout_ref.model.mtp.enable_train
    critic.optim.lr critic.cliprange_value critic.ppo_mini_batch_size
    reward.reward_manager.name reward.custom_reward_function.name reward.reward_model.enable
    trainer.balance_batch trainer.total_epochs trainer.total_training_steps trainer.test_freq trainer.critic_warmup
    trainer.val_before_train trainer.val_only
    trainer.something_new data.gen_batch_size
    actor_rollout_ref.model.override_config.attention_dropout
"""

MAY_DIFFER = """
    trainer.share_data trainer.share_data_dir trainer.share_data_timeout_s trainer.share_data_strict
    trainer.device trainer.nnodes trainer.n_gpus_per_node trainer.default_local_dir trainer.project_name
    trainer.experiment_name trainer.logger trainer.save_freq trainer.resume_mode trainer.resume_from_path
    trainer.max_actor_ckpt_to_keep trainer.use_legacy_worker_impl trainer.log_val_generations
    actor_rollout_ref.actor.strategy actor_rollout_ref.actor.fsdp_config.strategy
    actor_rollout_ref.actor.fsdp_config.param_offload actor_rollout_ref.actor.fsdp_config.fsdp_size
    actor_rollout_ref.actor.fsdp_config.dtype actor_rollout_ref.actor.fsdp_config.model_dtype
    actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype
    actor_rollout_ref.actor.ulysses_sequence_parallel_size
    actor_rollout_ref.actor.use_torch_compile actor_rollout_ref.actor.checkpoint.save_contents
    actor_rollout_ref.actor.checkpoint.async_save actor_rollout_ref.actor.profiler.enable
    actor_rollout_ref.actor.profiler.tool_config.npu.level actor_rollout_ref.actor.megatron.context_parallel_size
    actor_rollout_ref.actor.megatron.override_transformer_config.use_flash_attn
    actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu
    actor_rollout_ref.rollout.name actor_rollout_ref.rollout.dtype actor_rollout_ref.rollout.quantization
    actor_rollout_ref.rollout.tensor_model_parallel_size actor_rollout_ref.rollout.gpu_memory_utilization
    actor_rollout_ref.rollout.enforce_eager actor_rollout_ref.rollout.engine_kwargs.vllm.seed
    actor_rollout_ref.rollout.agent.num_workers actor_rollout_ref.rollout.prometheus.port
    actor_rollout_ref.rollout.skip_dump_dir actor_rollout_ref.nccl_timeout
    actor_rollout_ref.model.path actor_rollout_ref.model.use_remove_padding
    actor_rollout_ref.model.enable_gradient_checkpointing
    actor_rollout_ref.model.override_config.attn_implementation
    critic.model.path critic.model.fsdp_config.optimizer_offload
    data.train_files data.val_files data.dataloader_num_workers
    reward.num_workers reward.custom_reward_function.path
    ray_kwargs.ray_init.num_cpus ray_kwargs.ray_init.runtime_env.env_vars global_profiler.tool transfer_queue.enable
"""


@cache
def _composed(name, overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        chosen = compose(name.split()[0], overrides=[*SHIPPED[name], *overrides])
    return OmegaConf.to_container(chosen, resolve=True)


def shipped(name="ppo_trainer", *overrides):
    path = "actor_rollout_ref.model.path=/models/m"
    return _composed(name, (path, "actor_rollout_ref.rollout.name=vllm", *overrides))


def nested(key, value):
    """`value` under a dotted key, with nothing beside it."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


@pytest.mark.parametrize(
    ("pattern", "key", "fits"),
    [
        ("a.b", "a.b", True),
        ("a.b", "a.b.c", False),
        ("a.b", "a.bc", False),
        ("a.*b", "a.xb", True),
        ("a.*b", "a.x.b", False),
        ("a.*", "a.b.c", False),
        ("a.**", "a", True),
        ("a.**", "a.b.c", True),
        ("a.**", "ab", False),
        ("**.b", "b", True),
        ("**.b", "a.a.b", True),
        ("**.b", "a.cb", False),
        ("a.b|c*.d", "a.cc.d", True),
        ("a.b|c*.d", "a.bb.d", False),
        ("a.b+", "a.bb", False),
    ],
)
def test_patterns(pattern, key, fits):
    assert Rule(pattern, ReasonCode.UNSET).matches(key) is fits


@pytest.mark.parametrize("rule", [*TABLE, *(rule for rule, _ in UNSET_MEANS)], ids=lambda rule: rule.pattern)
def test_no_rule_is_dead(rule):
    keys = {key for name in SHIPPED for key in flatten(shipped(name))}
    assert any(map(rule.matches, keys)) is (rule.pattern not in NOT_SHIPPED)
    assert rule.reason.english[-1] != "."


@pytest.mark.parametrize("key", MUST_AGREE.split())
def test_must_agree(key):
    one, other = nested(key, 1), nested(key, 2)
    assert differences(one, other) == [Difference(key, 1, 2)]
    assert differences(one, {}) == [Difference(key, 1, NOT_SET)]


@pytest.mark.parametrize("key", MAY_DIFFER.split())
def test_may_differ(key):
    assert not differences(nested(key, "one"), nested(key, "other"))
    assert not differences(nested(key, "one"), {})


@pytest.mark.parametrize("name", SHIPPED)
def test_a_run_agrees_with_itself(name):
    comparison = compare(shipped(name), shipped(name), {"a": 1}, {"a": 1})
    assert comparison == Comparison()
    assert comparison.agrees
    assert require_agreement(comparison, "A", "B", strict=True) == ""


SPLIT = ("ppo_micro_batch_size_per_gpu", "use_dynamic_bsz", "ppo_max_token_len_per_gpu")


@pytest.mark.parametrize("key", SPLIT)
@pytest.mark.parametrize(
    ("workers", "mean", "may"),
    [
        ("disable", "token-mean", True),
        ("auto", "seq-mean-token-mean", True),
        ("auto", "token-mean", False),  # a mean of the portions' means, in 0.7.1's legacy actor
        ("enable", "token-mean", False),
    ],
)
def test_how_an_update_is_split_may_differ_where_its_loss_is_the_same_mean(key, workers, mean, may):
    def config(value):
        actor = {key: value, "loss_agg_mode": mean}
        return {"trainer": {"use_legacy_worker_impl": workers}, "actor_rollout_ref": {"actor": actor}}

    assert [each.key for each in differences(config(4), config(8))] == (
        [] if may else [f"actor_rollout_ref.actor.{key}"]
    )


@pytest.mark.parametrize(
    ("optim", "may"),
    [
        ({"lr_scheduler_type": "constant"}, True),
        ({"lr_scheduler_type": "cosine"}, False),
        ({"lr_scheduler_type": "constant", "warmup_style": None, "lr_warmup_steps_ratio": 0.0}, True),
        ({"lr_scheduler_type": "constant", "warmup_style": "cosine"}, False),
        ({"lr_scheduler_type": "constant", "lr_warmup_steps": -1, "lr_warmup_steps_ratio": 0.5}, False),
        ({"lr_decay_style": "constant", "lr_warmup_steps": None, "lr_warmup_steps_ratio": 0.5}, False),
        ({"lr_scheduler_type": "constant", "lr_warmup_steps": 3, "lr_warmup_steps_ratio": 0.5}, True),
    ],
)
def test_a_run_that_is_over_may_have_been_meant_to_last_longer(optim, may):
    """Unless its learning rate follows from that."""

    def config(steps):
        return {"trainer": {"total_training_steps": steps}, "actor_rollout_ref": {"actor": {"optim": optim}}}

    comparison = compare(config(4), config(100), {}, {})
    assert not comparison.agrees
    assert without_length(comparison, config(4)).agrees is may


def test_gpu_fsdp_against_npu_megatron_leaves_nothing():
    common = ["algorithm.adv_estimator=grpo", "actor_rollout_ref.rollout.n=8", "data.train_batch_size=256"]
    common += ["trainer.use_legacy_worker_impl=disable"]
    fsdp = shipped(
        "ppo_trainer",
        *common,
        "actor_rollout_ref.actor.fsdp_config.param_offload=True",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
        "actor_rollout_ref.rollout.tensor_model_parallel_size=4",
        "trainer.logger=[console,tensorboard]",
        "trainer.share_data=ckpt",
    )
    megatron = "actor_rollout_ref.actor.megatron"
    npu = shipped(
        "ppo_megatron_trainer",
        *common,
        "trainer.device=npu",
        "trainer.nnodes=2",
        "trainer.n_gpus_per_node=16",
        "trainer.share_data=rollout",
        "actor_rollout_ref.actor.use_dynamic_bsz=True",
        f"{megatron}.tensor_model_parallel_size=4",
        f"{megatron}.param_offload=True",
        f"+{megatron}.override_transformer_config.use_flash_attn=True",
        f"+{megatron}.override_transformer_config.moe_permute_fusion=True",
        f"{megatron}.override_transformer_config.recompute_method=uniform",
        "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config={torchair_graph_config:{enabled:true}}",
        "data.train_files=/other/train.parquet",
    )
    assert differences(fsdp, npu) == []
    assert differences(npu, fsdp) == []
    reasons = {each.difference.key: str(each.reason) for each in allowed_differences(fsdp, npu)}
    assert "back end" in reasons["actor_rollout_ref.actor.strategy"]
    assert "fact `optimiser`" in reasons["actor_rollout_ref.actor.optim.lr_decay_style"]


def test_what_upstream_fills_in_later_is_no_difference():
    """A replay looks at its configuration after upstream's trainer has written the number of steps into it, a pair
    before."""
    before = shipped("ppo_trainer", "trainer.total_training_steps=3")
    optimizers = ("actor_rollout_ref.actor.optim", "critic.optim")
    later = shipped(
        "ppo_trainer", "trainer.total_training_steps=3", *(f"{each}.total_training_steps=3" for each in optimizers)
    )
    assert differences(later, before) == differences(before, later) == []
    assert [each.key for each in differences(before, shipped())] == ["trainer.total_training_steps"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("actor_rollout_ref.actor.optim.lr", 3e-6),
        ("actor_rollout_ref.actor.optim.weight_decay", 0.1),
        ("actor_rollout_ref.actor.qat.enable", True),
        ("trainer.val_only", True),
        ("critic.optim.lr", 3e-6),
        ("+actor_rollout_ref.actor.new_loss", True),
    ],
)
def test_other_back_ends_hide_no_real_difference(key, value):
    fsdp = shipped("ppo_trainer", f"{key}={value}")
    found = {each.key: each.own for each in differences(fsdp, shipped("ppo_megatron_trainer"))}
    assert found[key.removeprefix("+")] == value
    assert set(found) <= {key.removeprefix("+"), "actor_rollout_ref.rollout.qat.enable"}


def test_what_one_back_end_alone_has_must_agree_between_runs_of_that_back_end():
    key = "actor_rollout_ref.actor.optim.override_optimizer_config"
    one = shipped("ppo_trainer", f"++{key}.eps=1e-5")
    assert [each.key for each in differences(one, shipped())] == [key, f"{key}.eps"]
    one = shipped("ppo_megatron_trainer", "critic.megatron.seed=1")
    assert differences(one, shipped("ppo_megatron_trainer")) == [Difference("critic.megatron.seed", 1, 42)]


def test_fsdp_and_fsdp2_are_one_back_end():
    one, other = (
        shipped(),
        shipped("ppo_trainer", "actor_rollout_ref.actor.strategy=fsdp2", "~critic.optim.min_lr_ratio"),
    )
    assert differences(one, other) == [Difference("critic.optim.min_lr_ratio", 0.0, NOT_SET)]


def test_a_resumed_run_may_skip_the_first_validation():
    one, other = shipped(), shipped("ppo_trainer", "trainer.val_before_train=False")
    assert [each.key for each in differences(one, other)] == ["trainer.val_before_train"]
    assert differences(one, other, resumed=True) == []


def test_settings_of_a_critic_that_nobody_trains():
    def run(lr, *more):
        return shipped("ppo_trainer", f"critic.optim.lr={lr}", *more)

    assert differences(run(1e-5, "algorithm.adv_estimator=grpo"), run(1e-6, "algorithm.adv_estimator=grpo")) == []
    assert len(differences(run(1e-5), run(1e-6))) == 1
    enabled = ("algorithm.adv_estimator=grpo", "critic.enable=True")
    assert len(differences(run(1e-5, *enabled), run(1e-6, *enabled))) == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (0, False, False),
        (True, 1, False),
        (True, True, True),
        ("1", 1, False),
        (None, NOT_SET, False),
        ([1, [2, True]], [1.0, [2, True]], True),
        ([1, 2], [1], False),
        ([1, True], [1, 1], False),
        ([{"a": 1}], [{"a": 1.0}], True),
        ([{"a": 1}], [{"b": 1}], False),
        ({}, NOT_SET, True),
    ],
)
def test_values(one, other, same):
    sides = [{} if value is NOT_SET else {"x": value} for value in (one, other)]
    assert (differences(*sides) == []) is same
    assert (differences(*reversed(sides)) == []) is same


def test_flatten():
    assert flatten({"a": {"b": 1, "c": {}, "d": {"e": [{"f": 2}]}}, "g": None}) == {
        "a.b": 1,
        "a.d.e": [{"f": 2}],
        "g": None,
    }


def test_what_was_left_out_is_not_taken_for_equal():
    one = {"judge": {"api_key": LEFT_OUT, "url": f"http://{LEFT_OUT}@host"}, "trainer": {"share_data_token": LEFT_OUT}}
    assert differences(one, one) == differences(one, {}) == []
    hidden = [NotCompared(key, because(ReasonCode.SECRET)) for key in ("judge.api_key", "judge.url")]
    assert not_compared(one, one) == not_compared({}, one) == hidden
    report = compare(one, one, {}, {}).report("A", "B")
    assert report == "Not compared:\n  judge.api_key, judge.url: could be a secret"


def test_facts():
    own = {"model": {"layers": 2, "rope": None, "size": 8}, "data": {"not_known": "no table"}, "tokenizer": {"a": 1}}
    other = {"model": {"layers": 3, "rope": {"factor": 2}, "new": 1}, "data": {"rows": 1}}
    wrong, unknown = fact_differences(own, other)
    assert wrong == [Difference("model.layers", 2, 3), Difference("model.rope", None, {"factor": 2})]
    assert [(each.key, str(each.reason)) for each in unknown] == [
        ("data", "this run does not know: no table"),
        ("model.new", "this run does not say"),
        ("model.size", "the other run does not say"),
        ("tokenizer", "the other run does not say"),
    ]
    report = Comparison(fact_differences=tuple(wrong), not_compared=tuple(unknown)).report("A", "B")
    assert "actor_rollout_ref.model.path" in report
    assert "model.size, tokenizer: the other run does not say" in report


def test_all_differences_are_shown_at_once_with_what_to_type():
    changes = {
        "algorithm.gamma": 0.5,
        "data.seed": 7,
        "data.shuffle": False,
        "actor_rollout_ref.model.custom_chat_template": "{% if x %}it's\\{{y}} ${z}{% endif %}",
        "actor_rollout_ref.actor.optim.betas": [0.9, 0.95],
        "trainer.total_training_steps": None,
        "reward.reward_manager.name": "null",
        "data.custom": {"names": ["a b", "c,d"], "ratio": 1e-7},
    }
    own = shipped("ppo_trainer", "trainer.total_training_steps=5", "+data.old.key=1", "+data.old.keep=1")
    other = shipped(
        "ppo_trainer", *(assignment(key, value, known=False) for key, value in changes.items()), "+data.old.keep=1"
    )
    comparison = compare(own, other, {}, {})
    report = comparison.report("run A", "run B")
    for key in (*flatten(changes), "data.old.key"):
        assert report.count(f"  {key} ") == 1
    assert "  algorithm.gamma  " in report
    with pytest.raises(AgreementError, match="trainer.share_data_strict=False") as caught:
        require_agreement(comparison, "run A", "run B", strict=True)
    assert report in str(caught.value)
    warning = require_agreement(comparison, "run A", "run B", strict=False)
    assert report in warning
    assert "share_data_strict" not in warning

    flags = report.split("to the command of run A:\n  ")[1]
    typed = shlex.split(flags.replace("\\\n", " "))
    assert typed == comparison.overrides()
    repaired = shipped("ppo_trainer", "trainer.total_training_steps=5", "+data.old.key=1", "+data.old.keep=1", *typed)
    assert differences(repaired, other) == []


def test_a_section_in_place_of_a_value_and_back():
    value, section = shipped("ppo_trainer", "+data.x=3"), shipped("ppo_trainer", "+data.x.y=4")
    assert compare(value, section, {}, {}).overrides() == ["~data.x", "++data.x.y=4"]
    assert differences(shipped("ppo_trainer", "+data.x=3", "~data.x", "++data.x.y=4"), section) == []
    assert compare(section, value, {}, {}).overrides() == ["++data.x=3"]
    assert differences(shipped("ppo_trainer", "+data.x.y=4", "++data.x=3"), value) == []


def test_of_long_values_the_difference_is_shown():
    own, other = {"x": "a" * 200 + "ONE" + "b" * 200}, {"x": "a" * 200 + "TWO" + "b" * 200}
    row = compare(own, other, {}, {}).report("A", "B").splitlines()[1].split()
    assert [len(cell) for cell in row] == [1, VALUE_CHARS, VALUE_CHARS]
    assert "ONE" in row[1] and "TWO" in row[2]
    assert all(cell.startswith("...a") and cell.endswith("b...") for cell in row[1:])


def test_of_long_values_that_differ_in_length_the_end_is_shown():
    row = compare({"x": "a" * 200}, {"x": "a" * 199}, {}, {}).report("A", "B").splitlines()[1].split()
    assert len(row[1]) == len(row[2]) + 1
    assert all(cell.endswith('a"') for cell in row[1:])


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text() | st.text(alphabet="\\'\"${} a1,:[]()=#%~"),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)  # fmt: skip


@given(plain)
def test_any_value_survives_hydras_grammar(value):
    parsed = OverridesParser.create().parse_override(assignment("a.b", value, known=False))
    config = OmegaConf.create({})
    OmegaConf.update(config, "a.b", parsed.value(), force_add=True)
    assert OmegaConf.to_container(config, resolve=True) == {"a": {"b": value}}


def test_scopes_are_all_used():
    assert {rule.scope for rule in TABLE} == set(Scope)
