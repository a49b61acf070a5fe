# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The trainer's hooks: where they sit, whom they reach, and that they are not there when off. No Ray here."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from omegaconf import OmegaConf
from rollout_fixtures import FakeManager, exchanged, make_config, make_prompts
from tensordict import TensorDict

from verl.crosscheck.errors import MismatchError, PublishError, SettingsError
from verl.crosscheck.evidence.files import load
from verl.crosscheck.exchange.layout import MANIFEST, RunNames, is_staged
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.run.checkpoints import actor_about
from verl.crosscheck.run.hooks import NoHooks
from verl.crosscheck.run.live import LiveExchange
from verl.crosscheck.run.selection import SkipHooks, hooks_for
from verl.crosscheck.weights.portable import transfer
from verl.experimental.separation.ray_trainer import SeparateRayPPOTrainer
from verl.protocol import DataProto
from verl.trainer.main_ppo import RayPPOTrainer as EntryPointsTrainer
from verl.trainer.ppo import ray_trainer__upstream
from verl.trainer.ppo.ray_trainer import RayPPOTrainer


class FakeWorkers:
    """A worker group that writes and reads one file, and notes what it was asked in which order."""

    def __init__(self, log):
        self.log = log

    def save_checkpoint(self, *args):
        self.log.append(("save", *args[1:]))
        Path(args[0], "model.pt").write_bytes(b"weights")

    def load_checkpoint(self, *args):
        self.log.append(("load", *args))

    def async_calls_finalize_fn_exec(self, blocking):
        self.log.append(("finalise", blocking))


@pytest.fixture
def update_log(monkeypatch):
    """Upstream's update, replaced by a note of it."""
    log = []

    def update(self, batch):
        log.append(("update",))
        return DataProto(meta_info={"metrics": {"actor/grad_norm": [1.0]}})

    monkeypatch.setattr(ray_trainer__upstream.RayPPOTrainer, "_update_actor", update)
    return log


def make_trainer(config, log, cls=RayPPOTrainer):
    """A trainer as its constructor and `init_workers` leave it, without Ray."""
    trainer = object.__new__(cls)
    trainer.config, trainer.global_steps = config, 5
    trainer.actor_rollout_wg = FakeWorkers(log)
    return trainer


def batch(order=(0, 1)):
    tokens = torch.tensor([[1, 2], [3, 4]])[list(order)]
    return DataProto(batch=TensorDict({"prompts": tokens, "responses": tokens + 10}, batch_size=[2]))


def test_the_forks_trainer_is_the_one_everybody_gets():
    assert EntryPointsTrainer is RayPPOTrainer
    assert issubclass(RayPPOTrainer, ray_trainer__upstream.RayPPOTrainer)
    assert issubclass(SeparateRayPPOTrainer, RayPPOTrainer)
    assert SeparateRayPPOTrainer.async_rollout_manager is RayPPOTrainer.async_rollout_manager


def test_a_wrong_mode_fails_in_the_constructor_before_upstreams(tmp_path, monkeypatch):
    def reached(self, *args, **kwargs):
        raise AssertionError("upstream's constructor must not be reached")

    monkeypatch.setattr(ray_trainer__upstream.RayPPOTrainer, "__init__", reached)
    with pytest.raises(SettingsError, match="Allowed"):
        RayPPOTrainer(make_config(tmp_path, "foo"), None, {}, None)


@pytest.mark.parametrize("cls", [RayPPOTrainer, SeparateRayPPOTrainer])
def test_setting_the_manager_routes_its_calls(tmp_path, cls):
    trainer, manager = make_trainer(make_config(tmp_path, "ckpt"), [], cls), FakeManager()
    trainer.async_rollout_manager = manager
    assert trainer.async_rollout_manager is manager
    trainer.async_rollout_manager.generate_sequences(make_prompts(["1+1="]))
    assert (tmp_path / "rollout_0").exists()


def test_rollout_mode_saves_right_after_the_update(tmp_path, update_log):
    trainer = make_trainer(make_config(tmp_path, "rollout"), update_log)
    output = trainer._update_actor(batch())
    assert update_log == [("update",), ("save", None, 5, None)]
    assert (tmp_path / "ckpt_0" / MANIFEST).exists()
    metrics = output.meta_info["metrics"]
    assert set(metrics) == {
        "actor/grad_norm",
        "timing_s/share_data/save_ckpt",
        "timing_s/share_data/evidence",
    }
    assert metrics["timing_s/share_data/save_ckpt"] > 0


def test_asynchronous_saving_is_finalised_before_anything_is_published(tmp_path, update_log, monkeypatch):
    config = make_config(tmp_path, "rollout")
    config.actor_rollout_ref.actor.checkpoint.async_save = True
    trainer = make_trainer(config, update_log)

    targets = []
    monkeypatch.setattr(FakeWorkers, "save_checkpoint", lambda self, target, *args: targets.append(Path(target)))

    def finalise(blocking):
        """As upstream: the data comes late, and then a tracker two folders up from it."""
        assert blocking
        assert not (tmp_path / "ckpt_0").exists()
        (targets[0] / "dist_ckpt").mkdir(parents=True)
        (targets[0] / "dist_ckpt" / "shard").write_bytes(b"weights")
        (targets[0].parent.parent / "latest_checkpointed_iteration.txt").write_text("5")

    trainer.actor_rollout_wg.async_calls_finalize_fn_exec = finalise
    trainer._update_actor(batch())
    assert exchanged(tmp_path) == ["ckpt_0"]
    assert list(read_checked(tmp_path / "ckpt_0").files) == ["dist_ckpt/shard"]
    assert is_staged(targets[0])


def test_ckpt_mode_loads_right_after_the_update(tmp_path, update_log):
    make_trainer(make_config(tmp_path, "rollout"), [])._update_actor(batch())
    update_log.clear()
    trainer = make_trainer(make_config(tmp_path, "ckpt"), update_log)
    output = trainer._update_actor(batch(order=(1, 0)))  # balanced otherwise, the same rows
    assert update_log == [("update",), ("load", str(tmp_path / "ckpt_0"), None, False)]
    metrics = output.meta_info["metrics"]
    timing = {f"timing_s/share_data/{name}" for name in ("wait_ckpt", "load_ckpt", "evidence")}
    assert {name for name in metrics if not name.startswith("crosscheck/")} == {"actor/grad_norm", *timing}
    # The batch of this test has no masks, so nothing could be compared: that is told, and is not agreement.
    assert metrics["crosscheck/not_compared"] > 0


def test_off_adds_nothing(tmp_path, update_log):
    trainer, manager = make_trainer(make_config(tmp_path), update_log), FakeManager()
    original = manager.generate_sequences
    trainer.async_rollout_manager = manager
    assert manager.generate_sequences == original
    output = trainer._update_actor(batch())
    assert update_log == [("update",)]
    assert output.meta_info["metrics"] == {"actor/grad_norm": [1.0]}
    assert exchanged(tmp_path) == []


@pytest.mark.parametrize(
    ("changes", "cls"),
    [
        ({}, NoHooks),
        ({"trainer.share_data": "ckpt"}, LiveExchange),
        ({"trainer.share_data": "rollout"}, LiveExchange),
        ({"actor_rollout_ref.rollout.skip_rollout": True}, SkipHooks),
        ({"actor_rollout_ref.rollout.skip_rollout": True, "actor_rollout_ref.rollout.skip_index": False}, NoHooks),
    ],
)
def test_which_hooks(tmp_path, changes, cls):
    config = make_config(tmp_path)
    for key, value in changes.items():
        OmegaConf.update(config, key, value, force_add=True)
    assert type(hooks_for(config)) is cls


def test_skip_is_in_front_of_the_first_call_and_fit_does_not_count_it_twice(tmp_path):
    config = make_config(tmp_path, skip_rollout=True)
    trainer, manager = make_trainer(config, []), FakeManager()
    trainer.async_rollout_manager = manager
    manager.generate_sequences(make_prompts(["1+1="], validate=True))
    ray_trainer__upstream.RolloutSkip(config, manager).wrap_generate_sequences()  # as upstream's fit does after it
    manager.generate_sequences(make_prompts(["1+1="]))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["exp_proj_GBS8_N2_0", "exp_proj_GBS8_N2_1"]


def test_what_an_update_was_made_from(tmp_path):
    config = make_config(tmp_path)
    about = actor_about(config, batch(), 5)
    assert about == {**about, "global_step": 5, "device": "cuda", "world_size": 2, "strategy": "fsdp2"}
    assert about == actor_about(config, batch(order=(1, 0)), 5)
    other = batch()
    other.batch["responses"][0, 0] += 1
    assert about["batch_digest"] != actor_about(config, other, 5)["batch_digest"]


LAYOUTS = {
    "trainer.n_gpus_per_node": (4, "world size 4 here, 2 there"),
    "trainer.device": ("npu", "device npu here, cuda there"),
    "actor_rollout_ref.actor.strategy": ("fsdp", "strategy fsdp here, fsdp2 there"),
}


def of_another_layout(tmp_path, key, form="auto"):
    config = make_config(tmp_path, "ckpt")
    OmegaConf.update(config, key, LAYOUTS[key][0])
    config.trainer.share_data_ckpt_format = form
    return config


@pytest.mark.parametrize("key", LAYOUTS)
@pytest.mark.parametrize("form", ["native", "auto"])
def test_a_native_checkpoint_of_another_layout_is_refused_before_it_is_loaded(tmp_path, update_log, key, form):
    """The first run saved before it knew of the second one, so what it saved is native whatever they would choose."""
    make_trainer(make_config(tmp_path, "rollout"), [])._update_actor(batch())
    config = of_another_layout(tmp_path, key, form)
    update_log.clear()
    told = f"{LAYOUTS[key][1]}.*trainer.share_data_ckpt_format=auto" if form == "native" else "another kind of run"
    with pytest.raises(MismatchError, match=told):
        make_trainer(config, update_log)._update_actor(batch())
    assert update_log == [("update",)]


@pytest.mark.parametrize("key", LAYOUTS)
def test_another_layout_exchanges_portable_checkpoints(tmp_path, update_log, key, monkeypatch, capsys):
    calls = []

    def save(workers, folder):
        calls.append(("save", workers))
        (folder / "portable").write_bytes(b"weights")

    def load(workers, folder):
        calls.append(("load", workers, (folder / "portable").read_bytes()))
        return transfer.LoadedWeights(3, 12, ("norm",), ("norm",), ())

    monkeypatch.setattr(transfer, "save", save)
    monkeypatch.setattr(transfer, "load", load)
    monkeypatch.setattr(transfer, "support", lambda workers: "")
    taker = make_trainer(make_config(tmp_path, "rollout"), update_log)
    taker.crosscheck  # noqa: B018  takes its place, and waits for nobody
    taker.crosscheck.resumed(0, SimpleNamespace(actor_rollout_wg=None))
    sampler = make_trainer(of_another_layout(tmp_path, key), update_log)
    sampler.async_rollout_manager = FakeManager()
    sampler.crosscheck.resumed(0, SimpleNamespace(actor_rollout_wg=None))
    taker._update_actor(batch())
    sampler._update_actor(batch())
    assert calls == [("save", taker.actor_rollout_wg), ("load", sampler.actor_rollout_wg, b"weights")]
    assert [entry for entry in update_log if entry[0] in ("save", "load")] == []
    assert read_checked(tmp_path / "ckpt_0").about["format"] == "portable"
    out = capsys.readouterr().out
    assert out.count(f"checkpoints are exchanged in the portable form: {LAYOUTS[key][1]}") == 1
    assert out.count("1 of 3 tensors are rounded when they are loaded") == 1


@pytest.mark.parametrize("first", ["ckpt", "rollout"])
def test_workers_without_portable_checkpoints_are_told_when_the_other_layout_comes(
    tmp_path, update_log, monkeypatch, first
):
    """Also to the run that was there first, and before anything of the other one is waited for."""
    monkeypatch.setattr(transfer, "support", lambda workers: "quantised weights")
    configs = {"rollout": make_config(tmp_path, "rollout"), "ckpt": of_another_layout(tmp_path, "trainer.device")}
    early = make_trainer(configs.pop(first), update_log)
    early.crosscheck.resumed(0, SimpleNamespace(actor_rollout_wg=None))
    late = make_trainer(configs.popitem()[1], update_log)
    with pytest.raises(
        SettingsError, match="cannot exchange portable checkpoints: not possible with quantised weights"
    ):
        late.crosscheck.resumed(0, SimpleNamespace(actor_rollout_wg=None))
    with pytest.raises(SettingsError, match="not possible with quantised weights"):
        early._update_actor(batch())
    assert [entry for entry in update_log if entry[0] in ("save", "load")] == []


def test_a_rank_that_saved_elsewhere_is_missed(tmp_path, update_log, monkeypatch):
    def save_half(self, target, *args):
        for rank in (0, 2):
            Path(target, f"model_world_size_4_rank_{rank}.pt").write_bytes(b"")

    monkeypatch.setattr(FakeWorkers, "save_checkpoint", save_half)
    with pytest.raises(PublishError, match="only 2 of 4 ranks saved their part of 'model' .* rank 1"):
        make_trainer(make_config(tmp_path, "rollout"), update_log)._update_actor(batch())
    assert exchanged(tmp_path) == []


@pytest.mark.parametrize("share_data", [None, "ckpt"])
def test_a_trainer_that_skips_the_constructor_has_its_hooks(tmp_path, update_log, share_data):
    """As fully asynchronous trainers do, which set the configuration and no manager at first."""

    class Other(SeparateRayPPOTrainer):
        def __init__(self, config):
            self.config = config
            self.async_rollout_manager = None

    trainer = Other(make_config(tmp_path, share_data))
    assert trainer.async_rollout_manager is None
    trainer.async_rollout_manager = FakeManager()
    trainer.async_rollout_manager.generate_sequences(make_prompts(["1+1="]))
    assert (tmp_path / "rollout_0").exists() == (share_data == "ckpt")


@pytest.mark.parametrize("returned", [None, (None, 0), (DataProto(), 0)])
def test_log_probs_of_another_shape_than_upstreams_stop_nothing(tmp_path, monkeypatch, returned):
    monkeypatch.setattr(ray_trainer__upstream.RayPPOTrainer, "_compute_old_log_prob", lambda self, batch: returned)
    for mode in (None, "ckpt"):
        trainer = make_trainer(make_config(tmp_path, mode), [])
        assert trainer._compute_old_log_prob(batch()) is returned


def test_entropies_that_upstream_drops_are_recorded_with_the_next_update(tmp_path, update_log, monkeypatch):
    entropies = DataProto(batch=TensorDict({"entropys": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}, batch_size=[2]))
    monkeypatch.setattr(
        ray_trainer__upstream.RayPPOTrainer, "_compute_old_log_prob", lambda self, batch: (entropies, 0)
    )
    trainer = make_trainer(make_config(tmp_path, "rollout"), update_log)
    rows = batch()
    rows.batch["attention_mask"] = torch.ones(2, 4, dtype=torch.long)
    for step in (5, 6):
        trainer.global_steps = step
        if step == 5:
            trainer._compute_old_log_prob(rows)
        trainer._update_actor(rows)
    names = RunNames(tmp_path / "sessions" / "session_1" / "runs" / "rollout_1")
    recorded = load(names.evidence(5))
    assert sorted(recorded.rows["entropy_sum"].tolist()) == [3.0, 7.0]
    # Those of an earlier step are not taken for a later one's.
    assert "entropy_sum" not in load(names.evidence(6)).rows
