# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Real pairs whose weights cross in the portable form: adapters, other workers, a restart, a replay, a changed byte.

Loading compares checksums of all tensors with the writer's on every rank, so a run that goes on holds what was written.
"""

import json
import re
import time
from contextlib import ExitStack

import psutil
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

from recipe.crosscheck import launch
from recipe.crosscheck.data import MODEL_DIR, task_overrides, write_data
from torture import interrupted

pytestmark = [pytest.mark.slow, pytest.mark.extended]

LIMIT_S = 400
STEPS = 3
PORTABLE = "trainer.share_data_ckpt_format=portable"
NATIVE = "trainer.share_data_ckpt_format=native"
TWO_RANKS = "trainer.n_gpus_per_node=2"
NEW_WORKERS = "trainer.use_legacy_worker_impl=disable"
LEGACY_WORKERS = "trainer.use_legacy_worker_impl=enable"
SAME_MEAN = "actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean"
LORA = ("actor_rollout_ref.model.lora_rank=4", "+actor_rollout_ref.model.lora.merge=True")
LOADED = "[ShareDataTest] Successfully load ckpt from"


def overrides(folder, mode, *own):
    data = write_data(folder / "data", val_rows=8)
    return [
        *task_overrides(data),
        f"trainer.share_data={mode}",
        launch.override("trainer.share_data_dir", folder / "share"),
        "trainer.share_data_timeout_s=240",
        f"trainer.total_training_steps={STEPS}",
        *own,
    ]


def start_pair(stack, folder, both=(), a=(), b=()):
    """Scenario 1."""
    sides = (("a", "ckpt", a), ("b", "rollout", b))
    return [
        stack.enter_context(launch.running(folder / name, overrides(folder, mode, *both, *own)))
        for name, mode, own in sides
    ]


def play(folder, **overrides_of):
    with ExitStack() as stack:
        a, b = start_pair(stack, folder, **overrides_of)
        steps = [run.wait(LIMIT_S) for run in (a, b)]
    assert a.log().count(LOADED) == STEPS
    assert "will not compare" not in a.log() + b.log()
    return a, steps


def tensors_of(share, index):
    folder = share / f"ckpt_{index}"
    assert json.loads((folder / "manifest.json").read_text())["about"]["format"] == "portable"
    return [each["name"] for each in json.loads((folder / "portable.json").read_text())["tensors"]]


def assert_same_training(steps, rel):
    """Both saw the same rollouts and hold the same weights at the start of each step."""
    for one, other in zip(*steps, strict=True):
        assert one.values["actor/grad_norm"] > 0
        for key in ("actor/grad_norm", "actor/entropy", "actor/pg_loss", "critic/score/mean"):
            assert one.values[key] == pytest.approx(other.values[key], rel=rel, abs=1e-6), (one.number, key)


@pytest.fixture(scope="module")
def adapter(tmp_path_factory):
    """One for both runs to start with; what it changes is not zero."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(MODEL_DIR)
    config = LoraConfig(r=4, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM", init_lora_weights=False)
    folder = tmp_path_factory.mktemp("adapter")
    model = get_peft_model(model, config)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data *= 0.1
    model.save_pretrained(folder)
    return launch.override("actor_rollout_ref.model.lora_adapter_path", folder)


def test_adapters_from_one_rank_to_two(tmp_path, adapter):
    a, steps = play(tmp_path, both=(NEW_WORKERS, *LORA, adapter), a=(TWO_RANKS,))
    names = tensors_of(tmp_path / "share", STEPS - 1)
    assert names
    assert all("lora_" in name for name in names)
    assert_same_training(steps, rel=1e-3)
    for step in steps[0]:  # the engine serves the merged weights
        assert step.values["training/rollout_probs_diff_max"] < 1e-3
    assert "differs:" not in a.log()


def test_adapters_drawn_at_random_are_refused_by_name(tmp_path):
    """One rank and two draw other ones."""
    with ExitStack() as stack:
        runs = start_pair(stack, tmp_path, both=(NEW_WORKERS, *LORA), a=(TWO_RANKS,))
        for run in runs:
            with pytest.raises(launch.RunFailed, match="exit code 1"):
                run.wait(LIMIT_S)
    log = runs[0].log() + runs[1].log()
    for part in ("AgreementError", "adapters.float32.base_model.model", "actor_rollout_ref.model.lora_adapter_path"):
        assert part in log
    assert not list((tmp_path / "share").glob("ckpt_*"))


def test_new_workers_to_two_legacy_ones(tmp_path):
    _, steps = play(tmp_path, both=(SAME_MEAN,), a=(LEGACY_WORKERS, TWO_RANKS), b=(NEW_WORKERS,))
    assert_same_training(steps, rel=1e-3)


def test_equal_layouts_that_ask_for_it_have_the_numbers_of_the_native_form(tmp_path):
    found = {}
    for name, chosen in (("portable", PORTABLE), ("native", NATIVE)):
        a, found[name] = play(tmp_path / name, both=(NEW_WORKERS, chosen))
        [logged] = [line for line in a.log().splitlines() if "checkpoints are exchanged in the" in line]
        assert f"in the {name} form" in logged
    for name, more in (("native", 0), ("portable", 1)):  # the optimizer's state is not exchanged, so not compared
        assert {step.values["crosscheck/not_compared"] for step in found[name][0]} == {1 + more}
    for portable, native in zip(found["portable"], found["native"], strict=True):
        assert list(map(own_numbers, portable)) == list(map(own_numbers, native))


def own_numbers(step):
    """All but what came of comparing with the other run, which a replay does not do."""
    found = {key: value for key, value in step.repeatable.items() if not key.startswith("crosscheck/")}
    assert len(found) > 20
    return found


def test_a_killed_run_goes_on_to_the_same_numbers(tmp_path):
    data = write_data(tmp_path / "data")
    own = {"a": (NEW_WORKERS, TWO_RANKS), "b": (NEW_WORKERS,)}
    expected = interrupted.undisturbed(tmp_path / "undisturbed", data, own)
    for killed, moment in (("a", "loading ckpt"), ("b", "saving ckpt")):
        case = interrupted.Case(killed, moment, alone=True)
        outcome = interrupted.disturbed(tmp_path / killed, data, case, expected, own)
        assert outcome.different == [], case.name
        assert outcome.resumed_at == {killed: interrupted.KILLED_INDEX}
        assert tensors_of(tmp_path / killed / "share", interrupted.STEPS - 1)


def test_one_rank_replays_what_two_recorded(tmp_path):
    """Mode ckpt: own rollouts, and the recorded weights, which have another layout."""
    keep = "trainer.share_data_keep_ckpts=null"
    _, (steps, _) = play(tmp_path, both=(NEW_WORKERS, keep), b=(TWO_RANKS,))
    replay = overrides(tmp_path, "ckpt", NEW_WORKERS, keep, "trainer.share_data_replay=True")
    before = sorted((tmp_path / "share").rglob("*"))
    with launch.running(tmp_path / "replay", replay) as run:
        replayed = run.wait(LIMIT_S)
    assert list(map(own_numbers, replayed)) == list(map(own_numbers, steps))
    assert run.log().count(LOADED) == STEPS
    assert sorted((tmp_path / "share").rglob("*")) == before


def test_both_forms_at_once_are_refused(tmp_path):
    with ExitStack() as stack:
        runs = start_pair(stack, tmp_path, both=(NEW_WORKERS,), a=(PORTABLE,), b=(NATIVE,))
        for run in runs:
            with pytest.raises(launch.RunFailed, match="exit code 1"):
                run.wait(LIMIT_S)
    for run in runs:
        assert "trainer.share_data_ckpt_format" in run.log()
    assert not list((tmp_path / "share").glob("ckpt_*"))


def test_a_changed_byte_is_an_error_that_names_the_tensor(tmp_path):
    """A is held while B publishes."""
    with ExitStack() as stack:
        a, b = start_pair(stack, tmp_path, both=(NEW_WORKERS,), a=(TWO_RANKS,))
        until(lambda: re.search(r"waiting for \S*ckpt_0", a.log()), a, b)
        trainer = trainer_of(a)
        trainer.suspend()
        until((tmp_path / "share" / "ckpt_0").exists, a, b)
        name = flip(tmp_path / "share" / "ckpt_0")
        trainer.resume()
        with pytest.raises(launch.RunFailed, match="exit code 1"):
            a.wait(LIMIT_S)
        with pytest.raises(launch.RunFailed, match="exit code 1"):
            b.wait(LIMIT_S)
    assert "DamagedError" in a.log()
    assert name in a.log()
    assert LOADED not in a.log()


def until(condition, *runs):
    deadline_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        assert all(run.poll() is None for run in runs)
        time.sleep(0.05)


def trainer_of(run):
    children = psutil.Process(run.pid).children(recursive=True)
    [trainer] = [each for each in children if any("TaskRunner" in part for part in each.cmdline())]
    return trainer


def flip(folder):
    """Change one bit of a weight; the tensor's name."""
    file = min(folder.glob("*.safetensors"))
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    lines = json.loads(content[8 : 8 + length])
    lines.pop("__metadata__", None)
    name, line = min(lines.items())
    content[8 + length + line["data_offsets"][0] + 5] ^= 0x10
    file.write_bytes(content)
    return name
