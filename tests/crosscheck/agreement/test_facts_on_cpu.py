# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Facts say what two runs have in common, and finding them out leaves a run as it was."""

import json
import random
import shutil
import time
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hydra import compose, initialize_config_module
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from torch.utils import data
from torchdata.stateful_dataloader.sampler import RandomSampler
from transformers import AutoTokenizer, BertTokenizer, PreTrainedTokenizerFast

from recipe.crosscheck.data import write_data
from verl.crosscheck.agreement.compare import NOT_KNOWN, fact_differences, not_known
from verl.crosscheck.agreement.facts import collect_facts, file_facts, optimiser_facts, sampling_facts
from verl.crosscheck.agreement.facts_data import data_facts
from verl.crosscheck.agreement.facts_model import SAMPLED_TENSORS, model_facts, tokenizer_facts
from verl.crosscheck.identity import Prompts, digest
from verl.crosscheck.reasons import ReasonCode, because
from verl.trainer.ppo.ray_trainer import RayPPOTrainer

MODEL = "recipe/crosscheck/model"


@pytest.fixture(scope="module")
def model_dir(request):
    return request.config.rootpath / MODEL


@pytest.fixture(scope="module")
def tokenizer(model_dir):
    return AutoTokenizer.from_pretrained(model_dir)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("data"), train_rows=150, val_rows=20)


def composed(name="ppo_cpu_trainer", *overrides):
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(name, overrides=list(overrides))


@pytest.fixture
def make_trainer(model_dir, tokenizer, files):
    """A trainer up to its data loaders, which upstream makes."""

    def make(*overrides, sampler=None):
        config = composed(
            "ppo_cpu_trainer",
            f"actor_rollout_ref.model.path={model_dir}",
            f"data.train_files={files.train}",
            f"data.val_files={files.val}",
            "data.train_batch_size=8",
            *overrides,
        )
        trainer = SimpleNamespace(config=config, tokenizer=tokenizer, processor=None)
        RayPPOTrainer._create_dataloader(trainer, None, None, None, sampler)
        return trainer

    return make


def unknown_parts(facts, prefix=""):
    """Names of facts that are not known."""
    for name, fact in facts.items():
        if isinstance(fact, dict):
            if NOT_KNOWN in fact:
                yield prefix + name
            else:
                yield from unknown_parts(fact, f"{prefix}{name}.")


def order(trainer, epochs=2):
    """Questions of all batches, in order."""
    return [
        [row[0]["content"] for row in batch["raw_prompt"]] for _ in range(epochs) for batch in trainer.train_dataloader
    ]


# --- all of them


def test_of_a_trainer_all_facts_are_known(make_trainer):
    facts = collect_facts(make_trainer())
    assert list(facts) == ["model", "tokenizer", "data", "sampling", "optimiser", "files"]
    assert list(unknown_parts(facts)) == ["sampling.logprobs_mode"]
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert len(json.dumps(facts)) < 20_000
    assert fact_differences(facts, collect_facts(make_trainer()))[0] == []


def test_nothing_is_raised_whatever_the_trainer_is():
    for trainer in (object(), SimpleNamespace(config=None), SimpleNamespace(config={"a": 1}, tokenizer=3)):
        facts = collect_facts(trainer)
        json.dumps(facts)
        assert set(unknown_parts(facts)) >= {"model", "tokenizer", "data", "sampling", "optimiser"}


# --- data: the run is left as it was


@pytest.mark.parametrize(
    "overrides",
    [
        ("data.seed=42",),
        ("data.seed=null",),
        ("data.shuffle=False",),
        ("data.dataloader_num_workers=1",),
        ("+data.gen_batch_size=12",),
    ],
)
def test_the_order_of_the_rows_is_as_if_nobody_had_looked(make_trainer, overrides):
    untouched, looked_at = make_trainer(*overrides), make_trainer(*overrides)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    first, second = collect_facts(looked_at), collect_facts(looked_at)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (random.getstate(), np.random.get_state()[1].tolist()) == state[1:]
    assert first == second
    assert order(looked_at) == order(untouched)


def test_the_order_after_a_resume_is_as_if_nobody_had_looked(make_trainer):
    resumed = []
    for looks in (False, True):
        trainer = make_trainer()
        batches = iter(trainer.train_dataloader)
        for _ in range(3):
            next(batches)
        state = trainer.train_dataloader.state_dict()
        after = make_trainer()
        after.train_dataloader.load_state_dict(state)
        if looks:
            assert collect_facts(after)["data"] == collect_facts(make_trainer())["data"]
        resumed.append(order(after))
    assert resumed[0] == resumed[1]


def test_the_digests_are_of_the_batches_that_come(make_trainer):
    trainer = make_trainer()
    facts = collect_facts(trainer)["data"]["train"]
    batches = [batch["raw_prompt"] for batch in islice(trainer.train_dataloader, 2)]
    assert facts["rows"] == 150
    assert facts["first_prompt"] == batches[0][0][0]["content"]
    assert facts["batches"] == [digest(Prompts.of({"raw_prompt": rows}, len(rows)).digests) for rows in batches]


@pytest.mark.parametrize(
    ("overrides", "differs"),
    [
        (("data.seed=43",), {"sampler", "batches", "rows_in_any_order", "answers", "first_prompt"}),
        (("data.shuffle=False",), {"sampler", "batches", "rows_in_any_order", "answers", "first_prompt"}),
        (("data.train_max_samples=100", "data.shuffle=False"), {"rows"}),
    ],
)
def test_other_settings_other_rows(make_trainer, overrides, differs):
    own = collect_facts(make_trainer(*overrides[1:]))["data"]
    other = collect_facts(make_trainer(*overrides))["data"]
    wrong, unknown = fact_differences(own, other)
    assert {each.key for each in wrong} <= {f"train.{name}" for name in differs}
    assert wrong and not unknown


def facts_of_rows(tmp_path, tokenizer, rows):
    """Data facts of a file with these (question, answer) rows, read in order."""
    table = [
        {
            "prompt": [{"role": "user", "content": question}],
            "data_source": "x",
            "reward_model": {"ground_truth": answer},
        }
        for question, answer in rows
    ]
    file = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    pq.write_table(pa.Table.from_pylist(table), file)
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = composed("ppo_cpu_trainer", "actor_rollout_ref.model.path=/m").data
    dataset = RLHFDataset([str(file)], tokenizer, config)
    return data_facts(dataset, dataset, data.SequentialSampler(dataset), 2)["train"]


def test_content_and_order_are_told_apart(tmp_path, tokenizer):
    rows = [("1+1", "2"), ("1+2", "3"), ("1+3", "4"), ("1+4", "5"), ("1+5", "6")]
    plain = facts_of_rows(tmp_path, tokenizer, rows)
    assert facts_of_rows(tmp_path, tokenizer, rows) == plain
    beyond = facts_of_rows(tmp_path, tokenizer, [*rows[:4], ("9+9", "18")])
    assert beyond == plain
    swapped = facts_of_rows(tmp_path, tokenizer, [rows[1], rows[0], *rows[2:]])
    assert swapped["rows_in_any_order"] == plain["rows_in_any_order"]
    assert [one == other for one, other in zip(swapped["batches"], plain["batches"], strict=True)] == [False, True]
    answer = facts_of_rows(tmp_path, tokenizer, [rows[0], ("1+2", "4"), *rows[2:]])
    assert {key for key in plain if answer[key] != plain[key]} == {"answers"}


class Curriculum(data.Sampler):
    """A sampler that would notice being asked."""

    def __init__(self, *_, **__):
        self.asked = 0

    def __iter__(self):
        self.asked += 1
        return iter(range(150))

    def __len__(self):
        return 150


class Careful(RandomSampler):
    """Not known to be harmless, though derived from what is."""


def test_a_sampler_of_an_unknown_kind_is_not_asked(make_trainer):
    sampler = Curriculum()
    trainer = make_trainer(sampler=sampler)
    facts = collect_facts(trainer)["data"]["train"]
    assert sampler.asked == 0
    assert facts == {
        "rows": 150,
        "order": not_known(because(ReasonCode.SAMPLER_NOT_REPEATABLE, sampler="Curriculum")),
    }
    for unknown in (Careful(range(9), generator=torch.Generator()), data.RandomSampler(range(9))):
        found = data_facts(trainer.train_dataset, trainer.val_dataset, unknown, 4)
        assert list(unknown_parts(found)) == ["train.order"]


def test_an_unseeded_order_says_so(make_trainer):
    assert "no seed set" in collect_facts(make_trainer("data.seed=null"))["data"]["train"]["sampler"]
    assert collect_facts(make_trainer("data.seed=5"))["data"]["train"]["sampler"] == "shuffled, seed 5"
    assert collect_facts(make_trainer("data.shuffle=False"))["data"]["train"]["sampler"] == "one after the other"


def test_torchs_own_random_sampler_with_a_generator(make_trainer):
    generator = torch.Generator().manual_seed(3)
    sampler = data.RandomSampler(range(150), generator=generator)
    trainer = make_trainer(sampler=sampler)
    before = generator.get_state()
    facts = collect_facts(trainer)["data"]["train"]
    assert torch.equal(generator.get_state(), before)
    first = trainer.train_dataset[next(iter(sampler))]
    assert facts["first_prompt"] == first["raw_prompt"][0]["content"]


def test_a_dataset_without_a_table_is_not_gone_through():
    class Generating(data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, item):
            raise AssertionError("asked")

    facts = data_facts(Generating(), Generating(), data.SequentialSampler(range(4)), 2)
    assert facts["train"]["rows"] == facts["val"]["rows"] == 4
    assert list(unknown_parts(facts)) == ["train.content", "val.content"]


def test_two_large_batches_take_little_time(tmp_path, tokenizer):
    rows = [(f"{at} + {at} " * 100, str(2 * at)) for at in range(4096)]
    from verl.utils.dataset.rl_dataset import RLHFDataset

    table = [{"prompt": [{"role": "user", "content": q}], "reward_model": {"ground_truth": a}} for q, a in rows]
    pq.write_table(pa.Table.from_pylist(table), tmp_path / "big.parquet")
    config = composed("ppo_cpu_trainer", "actor_rollout_ref.model.path=/m").data
    dataset = RLHFDataset([str(tmp_path / "big.parquet")], tokenizer, config)
    sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(1))
    start = time.process_time()
    data_facts(dataset, dataset, sampler, 1024)
    assert time.process_time() - start < 2  # 0.1 s on a quiet machine


# --- model


def copied(model_dir, folder, *, without=(), **changes):
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(model_dir / name, folder / name)
    config = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in config.items() if k not in without}))
    return folder


@pytest.mark.parametrize(
    ("changes", "override", "differs"),
    [
        ({}, None, set()),
        ({"torch_dtype": "bfloat16", "transformers_version": "4.1", "use_cache": False}, None, set()),
        ({"_name_or_path": "x", "attn_implementation": "eager", "temperature": 0.5}, None, set()),
        ({"hidden_size": 128}, None, {"config.hidden_size"}),
        ({"num_hidden_layers": 3, "layer_types": None}, None, {"config.num_hidden_layers", "config.layer_types"}),
        ({"tie_word_embeddings": True}, None, {"config.tie_word_embeddings"}),
        ({"eos_token_id": 7}, None, {"config.eos_token_id"}),
        ({"rope_theta": 5000.0}, None, {"config.rope_theta"}),
        ({}, {"attention_dropout": 0.5}, {"config.attention_dropout"}),
        ({}, {"attn_implementation": "sdpa"}, set()),
        ({}, {"model_config": {"rope_theta": 5.0}, "moe_config": {"freeze": True}}, {"config.rope_theta"}),
    ],
)
def test_model(model_dir, tmp_path, changes, override, differs):
    own = model_facts(str(model_dir))
    other = model_facts(str(copied(model_dir, tmp_path / "other", **changes)), override)
    wrong, unknown = fact_differences(own, other)
    assert {each.key for each in wrong} == differs
    assert not unknown


def test_a_default_that_one_file_leaves_out_is_no_difference(model_dir, tmp_path):
    folder = copied(model_dir, tmp_path / "other", without=("attention_dropout", "hidden_act", "use_sliding_window"))
    assert fact_differences(model_facts(str(model_dir)), model_facts(str(folder))) == ([], [])


def test_a_model_with_code_of_its_own_is_read_from_its_file(tmp_path):
    config = {"model_type": "their_own", "hidden_size": 8, "auto_map": {"AutoConfig": "their_own.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    facts = model_facts(str(tmp_path))
    assert facts["config"] == {"model_type": "their_own", "hidden_size": 8}
    assert list(unknown_parts(facts)) == ["weights"]


def test_a_model_that_is_not_there(model_dir):
    facts = collect_facts(SimpleNamespace(config={"actor_rollout_ref": {"model": {"path": "/no/such/folder"}}}))
    assert list(unknown_parts({"model": facts["model"]})) == ["model"]
    assert "\n" not in facts["model"][NOT_KNOWN]["text"]


def test_weights_are_compared_however_they_are_split(model_dir, tmp_path):
    own = model_facts(str(model_dir))
    assert len(own["weights"]) == SAMPLED_TENSORS
    split = copied(model_dir, tmp_path / "split")
    tensors = load_file(split / "model.safetensors")
    (split / "model.safetensors").unlink()
    for at, (name, tensor) in enumerate(tensors.items()):
        save_file({name: tensor}, split / f"model-{at:05}.safetensors")
    assert model_facts(str(split)) == own

    changed = copied(model_dir, tmp_path / "changed")
    save_file({name: tensor + 1e-3 for name, tensor in tensors.items()}, changed / "model.safetensors")
    wrong, _ = fact_differences(own, model_facts(str(changed)))
    assert len(wrong) == SAMPLED_TENSORS

    half = copied(model_dir, tmp_path / "half")
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, half / "model.safetensors")
    wrong, unknown = fact_differences(own, model_facts(str(half)))
    assert not wrong
    assert all(each.key.startswith("weights.") for each in unknown)


# --- tokenizer


def test_tokenizers(tokenizer, model_dir):
    facts = tokenizer_facts(tokenizer)
    assert facts == tokenizer_facts(AutoTokenizer.from_pretrained(model_dir))
    assert facts["vocabulary_size"] == len(tokenizer)
    for change, differs in (
        ({"chat_template": "{{ messages }}"}, {"chat_template"}),
        ({"pad_token": "9"}, {"pad_token_id"}),
        ({"additional_special_tokens": ["<new>"]}, {"vocabulary_size", "vocabulary"}),
    ):
        other = tokenizer_facts(AutoTokenizer.from_pretrained(model_dir, **change))
        assert {key for key in facts if facts[key] != other[key]} == differs


def test_slow_and_fast_tokenizers(tmp_path):
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "def", "return", "x"]
    (tmp_path / "vocab.txt").write_text("\n".join(words))
    slow = tokenizer_facts(BertTokenizer(str(tmp_path / "vocab.txt")))
    assert (slow["vocabulary_size"], slow["pad_token_id"], slow["chat_template"]) == (8, 0, None)
    same_words = models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    fast = tokenizer_facts(PreTrainedTokenizerFast(tokenizer_object=Tokenizer(same_words)))
    assert fast["vocabulary"] == slow["vocabulary"]
    assert fast["probe"] != slow["probe"]


def test_what_is_no_tokenizer():
    assert tokenizer_facts(None) == not_known(because(ReasonCode.NO_TOKENIZER, kind="NoneType"))


# --- from the configuration


def plain(name="ppo_trainer", *overrides):
    from omegaconf import OmegaConf

    chosen = composed(name, "actor_rollout_ref.model.path=/m", "actor_rollout_ref.rollout.name=vllm", *overrides)
    return OmegaConf.to_container(chosen, resolve=True)


def test_sampling():
    facts = sampling_facts(plain("ppo_trainer", "actor_rollout_ref.rollout.n=4", "data.max_response_length=100"))
    assert facts == {
        "training": {"temperature": 1.0, "top_p": 1, "top_k": -1, "n": 4},
        "validation": {"temperature": 0, "top_p": 1.0, "top_k": -1, "n": 1, "do_sample": False},
        "max_response_tokens": 100,
        "max_sequence_tokens": 612,
        "ignore_eos": False,
        "logprobs": False,
        "logprobs_mode": "processed_logprobs",
    }


@pytest.mark.parametrize(
    ("override", "name", "value"),
    [
        ("actor_rollout_ref.rollout.max_model_len=700", "max_sequence_tokens", 700),
        ("actor_rollout_ref.rollout.max_model_len=4096", "max_sequence_tokens", 1024),
        ("+actor_rollout_ref.rollout.engine_kwargs.vllm.max_model_len=600", "max_sequence_tokens", 600),
        ("+actor_rollout_ref.rollout.engine_kwargs.vllm.logprobs_mode=raw_logprobs", "logprobs_mode", "raw_logprobs"),
        (
            "actor_rollout_ref.rollout.name=sglang",
            "logprobs_mode",
            not_known(because(ReasonCode.NO_SUCH_SETTING, engine="sglang")),
        ),
    ],
)
def test_what_the_engine_is_really_told(override, name, value):
    assert sampling_facts(plain("ppo_trainer", override))[name] == value


def test_back_ends_spell_one_optimiser_in_many_ways():
    constant = {"algorithm": "adamw", "gradient_clip": 1.0, "schedule": "constant", "last_lr": None}
    for config in (
        plain("ppo_trainer"),
        plain("ppo_trainer", "trainer.use_legacy_worker_impl=disable"),
        plain("ppo_megatron_trainer"),
        plain("ppo_cpu_trainer"),
        plain("ppo_trainer", "model_engine=veomni", "actor_rollout_ref.actor.optim.lr_scheduler_type=constant"),
    ):
        assert optimiser_facts(config)["actor"] == constant
    optim = "actor_rollout_ref.actor.optim"
    cosine = {**constant, "schedule": "cosine", "last_lr": 1e-7}
    fsdp = plain("ppo_trainer", f"{optim}.lr_scheduler_type=cosine", f"{optim}.min_lr_ratio=0.1")
    megatron = plain("ppo_megatron_trainer", f"{optim}.lr_decay_style=cosine", f"{optim}.min_lr=1e-7")
    assert optimiser_facts(fsdp)["actor"] == optimiser_facts(megatron)["actor"] == cosine


def test_gradient_clipping_is_read_where_the_workers_read_it():
    keys = ("actor_rollout_ref.actor.grad_clip=2", "actor_rollout_ref.actor.optim.clip_grad=3")
    for implementation, clip in (("auto", 2), ("enable", 2), ("disable", 3)):
        config = plain("ppo_trainer", *keys, f"trainer.use_legacy_worker_impl={implementation}")
        assert optimiser_facts(config)["actor"]["gradient_clip"] == clip
    assert optimiser_facts(plain("ppo_megatron_trainer", keys[1]))["actor"]["gradient_clip"] == 3


def test_other_optimisers_and_schedules():
    other = plain("ppo_trainer", "actor_rollout_ref.actor.optim.optimizer=AdamW8bit", "algorithm.adv_estimator=grpo")
    assert optimiser_facts(other) == {
        "actor": {"algorithm": "adamw8bit", "gradient_clip": 1.0, "schedule": "constant", "last_lr": None}
    }
    titan = optimiser_facts(plain("ppo_trainer", "model_engine=torchtitan"))["actor"]
    assert list(unknown_parts(titan)) == ["schedule"]


def test_files(tmp_path, model_dir):
    reward = tmp_path / "reward.py"
    reward.write_text("def compute_score(): return 1")
    key = "reward.custom_reward_function.path"

    def facts(path, *more):
        return file_facts(plain("ppo_trainer", f"{key}={path}", f"critic.model.path={model_dir}", *more))

    first = facts(reward)
    (tmp_path / "copy.py").write_text(reward.read_text())
    assert facts(tmp_path / "copy.py") == facts(f"file://{reward}") == first
    assert first["critic.model.path"]["hidden_size"] == 64
    assert first["data.custom_cls.path"] is None
    assert "critic.model.path" not in facts(reward, "algorithm.adv_estimator=grpo")
    reward.write_text("def compute_score(): return 2")
    assert facts(reward)[key] != first[key]
    assert facts("pkg://my.rewards")[key] == "pkg://my.rewards"
    assert NOT_KNOWN in facts("/no/such/file.py")[key]
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 8}))
    lora = file_facts(plain("ppo_trainer", f"actor_rollout_ref.model.lora_adapter_path={tmp_path}"))
    assert lora["actor_rollout_ref.model.lora_adapter_path"] == {"r": 8}
