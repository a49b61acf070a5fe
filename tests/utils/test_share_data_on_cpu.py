# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""One side, the other side, and what passes between them."""

import asyncio
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from omegaconf import OmegaConf
from rollout_fixtures import FakeManager, assert_same_batch, column, exchanged, make_config, make_prompts

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import (
    DamagedError,
    DirectoryError,
    EncodingError,
    MismatchError,
    PublishError,
    SessionError,
    SettingsError,
    WaitTimeoutError,
)
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.layout import MANIFEST
from verl.utils.ray_utils import auto_await
from verl.utils.rollout_skip import RolloutSkip
from verl.utils.share_data import ShareDataTest


@pytest.fixture
def root(tmp_path):
    return tmp_path / "share"


def side(root, mode, clock=None, **manager):
    """A run's `ShareDataTest` and its wrapped rollout manager."""
    share, worker = ShareDataTest(make_config(root, mode), clock), FakeManager(**manager)
    share.wrap_generate_sequences(mode, worker)
    return share, worker


def save(content=b"weights"):
    def dump(path):
        Path(path, "model.pt").write_bytes(content)

    return dump


def never(path):
    raise AssertionError("must not be called")


def test_the_consumer_gets_what_the_producer_generated_and_never_generates(root, capsys):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    for step in (1, 2):
        prompts = make_prompts(["1+1=", "2+2="], step=step)
        made = a.generate_sequences(prompts)
        assert_same_batch(made, b.generate_sequences(make_prompts(["1+1=", "2+2="], step=step)))
    assert (a.calls, b.calls) == (2, 0)
    assert exchanged(root) == ["rollout_0", "rollout_1"]
    lines = capsys.readouterr().out.splitlines()
    assert lines.count(f"[ShareDataTest] dump path set to: {root}") == 2
    assert f"[ShareDataTest] Successfully dump data in {root}/rollout_0" in lines
    assert "[ShareDataTest] Waiting for shared data..." in lines
    assert f"[ShareDataTest] Successfully load pre-generated data from {root}/rollout_1" in lines
    assert not any("No data dump found" in line for line in lines)


def test_validation_and_baseline_count_as_calls(root):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    for meta in ({"validate": True, "do_sample": False}, {}, {"do_sample": False}):
        for worker in (a, b):
            worker.generate_sequences(make_prompts(["1+1="], **meta))
    assert b.calls == 0
    assert exchanged(root) == ["rollout_0", "rollout_1", "rollout_2"]


def test_timings_are_the_own_runs(root):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    made = a.generate_sequences(make_prompts(["1+1="]))
    taken = b.generate_sequences(make_prompts(["1+1="]))
    names = {"wait_rollout", "load_rollout", "identify"}
    assert set(made.meta_info["timing"]) == {"agent_loop/slowest", "share_data/save_rollout", "share_data/identify"}
    assert set(taken.meta_info["timing"]) == {f"share_data/{name}" for name in names}
    assert taken.meta_info["reward_extra_keys"] == []


def test_times_of_rollouts_that_no_step_logs_come_with_the_next_update(root):
    share, a = side(root, "ckpt")
    a.generate_sequences(make_prompts(["1+1="], validate=True))
    a.generate_sequences(make_prompts(["2+2="], validate=True))
    ShareDataTest(make_config(root)).after_update_policy("rollout", never, save())
    kept = share.after_update_policy("ckpt", lambda path: None, never)
    validation = {"share_data/save_rollout_validation", "share_data/identify_validation"}
    assert set(kept) == {"share_data/wait_ckpt", "share_data/load_ckpt", *validation}
    assert all(seconds > 0 for name, seconds in kept.items() if name in validation)


def test_the_consumers_own_uid_is_kept_so_that_its_batch_merges(root):
    _, a = side(root, "ckpt", echo=True)
    _, b = side(root, "rollout")
    a.generate_sequences(make_prompts(["1+1=", "2+2="], uid=["a0", "a1"]))
    own = make_prompts(["1+1=", "2+2="], uid=["b0", "b1"])
    taken = b.generate_sequences(own)
    assert taken.non_tensor_batch["uid"].tolist() == ["b0", "b1"]
    own.union(taken)  # raises on a difference


class Image:
    """Something that only lives in a process, as a picture in a chat does."""

    mode, size = "RGB", (1, 1)

    def __init__(self, content):
        self._content = content

    def tobytes(self):
        return self._content


def with_image(content):
    prompts = make_prompts(["what is it?"])
    prompts.non_tensor_batch["raw_prompt"][0][0]["image"] = Image(content)
    return prompts


def test_echoed_columns_are_the_consumers_own_and_need_no_representation(root):
    _, a = side(root, "ckpt", echo=True)
    _, b = side(root, "rollout")
    a.generate_sequences(with_image(b"\xff"))
    own = with_image(b"\xff")
    taken = b.generate_sequences(own)
    assert list(taken.non_tensor_batch) == ["multi_modal_inputs", "raw_prompt", "uid"]
    assert taken.non_tensor_batch["raw_prompt"] is own.non_tensor_batch["raw_prompt"]
    own.union(taken)


def test_a_column_that_only_looks_like_an_echo_is_saved_as_it_is(root):
    class Changing(FakeManager):
        def generate_sequences(self, prompts):
            output = super().generate_sequences(prompts)
            output.non_tensor_batch["turns"][0] = [1, np.int64(2)]
            return output

    def asked():
        prompts = make_prompts(["1+1="])
        prompts.non_tensor_batch["turns"] = column([(1, 2)])
        return prompts

    worker = Changing(echo=True)
    ShareDataTest(make_config(root, "ckpt")).wrap_generate_sequences("ckpt", worker)
    worker.generate_sequences(asked())
    _, b = side(root, "rollout")
    taken = b.generate_sequences(asked()).non_tensor_batch["turns"][0]
    assert type(taken) is list
    assert type(taken[1]) is np.int64


def test_another_image_is_another_prompt(root):
    _, a = side(root, "ckpt", echo=True)
    _, b = side(root, "rollout")
    a.generate_sequences(with_image(b"\xff"))
    with pytest.raises(MismatchError, match="1 of 1 prompts differ"):
        b.generate_sequences(with_image(b"\x00"))


def test_a_column_that_cannot_be_represented_is_named(root, capsys):
    class Odd(FakeManager):
        def generate_sequences(self, prompts):
            output = super().generate_sequences(prompts)
            output.non_tensor_batch["extra"] = output.non_tensor_batch["multi_modal_inputs"].copy()
            output.non_tensor_batch["extra"][1] = {"when": object()}
            return output

    worker = Odd()
    ShareDataTest(make_config(root, "ckpt")).wrap_generate_sequences("ckpt", worker)
    with pytest.raises(EncodingError, match=r"extra.*1.*when"):
        worker.generate_sequences(make_prompts(["1+1=", "2+2="]))
    assert "Failed to dump data in" in capsys.readouterr().out
    assert exchanged(root) == []


def test_a_wait_shows_what_is_missing_and_ends_when_it_arrives(root, capsys):
    _, a = side(root, "ckpt")
    clock = ManualClock({40.0: lambda: a.generate_sequences(make_prompts(["1+1="]))})
    _, b = side(root, "rollout", clock)
    taken = b.generate_sequences(make_prompts(["1+1="]))
    assert 40.0 <= taken.meta_info["timing"]["share_data/wait_rollout"] < 40.5
    out = capsys.readouterr().out
    assert f"[ShareDataTest] No data dump found at {root}/rollout_0." in out
    assert "still waiting for rollout_0: 30 s so far" in out


def test_nothing_arrives(root, capsys):
    _, b = side(root, "rollout", ManualClock())
    with pytest.raises(WaitTimeoutError, match=r"waited 60 s for rollout_0.*share_data_timeout_s"):
        b.generate_sequences(make_prompts(["1+1="]))
    failure = (
        f"[ShareDataTest] Failed to load pre-generated data from {root}/rollout_0 Error: waited 60 s for rollout_0"
    )
    assert failure in capsys.readouterr().out


@pytest.mark.parametrize(
    ("prompts", "message"),
    [
        (make_prompts(["1+1=", "3+3="]), r"1 of 2 prompts differ, first in row 1: it asks '2\+2=', expected '3\+3='"),
        (make_prompts(["1+1="]), "its batch has 2 rows, expected 1"),
        (make_prompts(["1+1=", "2+2="], validate=True), "its kind is training, expected validation"),
        (make_prompts(["1+1=", "2+2="], step=7), "its global step is 1, expected 7"),
    ],
)
def test_another_question_stops_the_consumer(root, capsys, prompts, message):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    a.generate_sequences(make_prompts(["1+1=", "2+2="]))
    with pytest.raises(MismatchError, match=message) as caught:
        b.generate_sequences(prompts)
    assert "call 0" in str(caught.value)
    assert f"Failed to load pre-generated data from {root}/rollout_0 Error: " in capsys.readouterr().out
    assert b.calls == 0


@pytest.mark.parametrize("damage", ["truncated", "altered", "pickle"])
def test_a_damaged_rollout_is_refused(root, damage):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    a.generate_sequences(make_prompts(["1+1="]))
    path = root / "rollout_0"
    whole = path.read_bytes()
    middle = len(whole) // 2
    path.write_bytes(
        {
            "truncated": whole[:-1],
            "altered": whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :],
            "pickle": b"\x80\x05}q\x00.",
        }[damage]
    )
    with pytest.raises(DamagedError, match="rollout_0"):
        b.generate_sequences(make_prompts(["1+1="]))
    assert b.calls == 0


def test_a_failed_save_of_a_rollout_stops_the_run(root, capsys, monkeypatch):
    _, a = side(root, "ckpt")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(filesystem.active(), "flush", full, raising=True)
    with pytest.raises(PublishError, match="No space left on device"):
        a.generate_sequences(make_prompts(["1+1="]))
    assert f"[ShareDataTest] Failed to dump data in {root}/rollout_0: " in capsys.readouterr().out
    assert exchanged(root) == []


def test_a_second_producer_is_refused(root):
    side(root, "ckpt")
    with pytest.raises(SessionError, match=r"two runs in mode ckpt .*: run [0-9a-f]{8} .*and this is run [0-9a-f]{8}"):
        side(root, "ckpt")


def test_an_awaited_manager_stays_awaitable(root):
    class AsyncManager(FakeManager):
        async def generate_sequences(self, prompts):
            return FakeManager.generate_sequences(self, prompts)

    async def both():
        a, b = AsyncManager(), AsyncManager()
        ShareDataTest(make_config(root, "ckpt")).wrap_generate_sequences("ckpt", a)
        ShareDataTest(make_config(root, "rollout")).wrap_generate_sequences("rollout", b)
        made = await a.generate_sequences(make_prompts(["1+1="]))
        taken = await b.generate_sequences(make_prompts(["1+1="]))
        return a, b, made, taken

    a, b, made, taken = asyncio.run(both())
    assert_same_batch(made, taken)
    assert (a.calls, b.calls) == (1, 0)


def test_upstreams_manager_goes_by_its_caller(root):
    class Manager(FakeManager):
        @auto_await
        async def generate_sequences(self, prompts):
            return FakeManager.generate_sequences(self, prompts)

    async def awaiting(worker):
        return await worker.generate_sequences(make_prompts(["2+2="]))

    worker = Manager()
    ShareDataTest(make_config(root, "ckpt")).wrap_generate_sequences("ckpt", worker)
    assert len(worker.generate_sequences(make_prompts(["1+1="]))) == 1
    assert len(asyncio.run(awaiting(worker))) == 1
    assert worker.calls == len(exchanged(root)) == 2


def test_a_plain_function_may_return_what_is_to_be_awaited(root):
    class Manager(FakeManager):
        def generate_sequences(self, prompts):
            return self._later(prompts)

        async def _later(self, prompts):
            return FakeManager.generate_sequences(self, prompts)

    worker = Manager()
    ShareDataTest(make_config(root, "ckpt")).wrap_generate_sequences("ckpt", worker)
    assert len(asyncio.run(worker.generate_sequences(make_prompts(["1+1="])))) == 1
    assert (root / "rollout_0").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_rollout_of_another_user_is_refused(root):
    _, a = side(root, "ckpt")
    _, b = side(root, "rollout")
    a.generate_sequences(make_prompts(["1+1="]))
    os.chown(root / "rollout_0", 12345, -1)
    with pytest.raises(DamagedError, match="belongs to user 12345, expected user 0"):
        b.generate_sequences(make_prompts(["1+1="]))


def test_a_plain_manager_stays_plain_inside_a_coroutine(root):
    _, a = side(root, "ckpt")

    async def plain():
        return a.generate_sequences(make_prompts(["1+1="]))

    assert len(asyncio.run(plain())) == 1
    assert (root / "rollout_0").exists()


def test_skip_and_share_do_not_hide_each_other(root):
    _, a = side(root, "ckpt")
    with pytest.raises(SettingsError, match="already goes through PublishedRollouts"):
        RolloutSkip(make_config(root), a).wrap_generate_sequences()


def test_by_hand_the_directory_is_opened_whatever_the_configuration_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = make_config("share", None)
    OmegaConf.set_struct(config, True)
    OmegaConf.set_readonly(config, True)
    worker = FakeManager()
    ShareDataTest(config).wrap_generate_sequences("ckpt", worker)
    monkeypatch.chdir("/")
    worker.generate_sequences(make_prompts(["1+1="]))
    assert (tmp_path / "share" / "rollout_0").exists()


def test_wrapping_twice_counts_once(root):
    share, a = side(root, "ckpt")
    share.wrap_generate_sequences("ckpt", a)
    a.generate_sequences(make_prompts(["1+1="]))
    assert exchanged(root) == ["rollout_0"]


def test_off_changes_nothing(root):
    share, worker = ShareDataTest(make_config(root)), FakeManager()
    original = worker.generate_sequences
    share.wrap_generate_sequences(None, worker)
    assert worker.generate_sequences == original
    assert share.after_update_policy(None, never, never) == {}


def test_checkpoints_cross_over(root, capsys):
    a, _ = side(root, "ckpt")
    b, _ = side(root, "rollout")
    for index in (0, 1):
        loaded = []
        saved = b.after_update_policy("rollout", never, save(b"w" * (index + 1)), {"global_step": index + 1})
        taken = a.after_update_policy("ckpt", loaded.append, never, {"global_step": index + 1})
        assert loaded == [str(root / f"ckpt_{index}")]
        assert set(saved) == {"share_data/save_ckpt"}
        assert set(taken) == {"share_data/wait_ckpt", "share_data/load_ckpt"}
    assert (root / "ckpt_1" / "model.pt").read_bytes() == b"ww"
    lines = capsys.readouterr().out.splitlines()
    assert f"[ShareDataTest] Successfully save ckpt to {root}/ckpt_0" in lines
    assert f"[ShareDataTest] waiting for {root}/ckpt_0" in lines
    assert f"[ShareDataTest] Successfully load ckpt from {root}/ckpt_1" in lines


def test_a_checkpoint_without_manifest_is_waited_for(root):
    a, _ = side(root, "ckpt", ManualClock())
    (root / "ckpt_0").mkdir()
    with pytest.raises(WaitTimeoutError, match="not complete"):
        a.after_update_policy("ckpt", never, never)


def test_a_damaged_checkpoint_is_refused(root, capsys):
    a, _ = side(root, "ckpt")
    b, _ = side(root, "rollout")
    b.after_update_policy("rollout", never, save())
    (root / "ckpt_0" / "model.pt").write_bytes(b"weight")
    with pytest.raises(DamagedError, match="'model.pt' has 6 bytes, expected 7"):
        a.after_update_policy("ckpt", never, never)
    assert f"[ShareDataTest] Load ckpt failed from {root}/ckpt_0 because of " in capsys.readouterr().out


def test_a_checkpoint_of_another_step_is_refused(root):
    a, _ = side(root, "ckpt")
    b, _ = side(root, "rollout")
    b.after_update_policy("rollout", never, save(), {"global_step": 2, "batch_digest": "x"})
    with pytest.raises(MismatchError, match="its global step is 2, expected 1"):
        a.after_update_policy("ckpt", never, never, {"global_step": 1, "batch_digest": "x"})


def test_a_failed_save_of_a_checkpoint_stops_the_run(root, capsys):
    b, _ = side(root, "rollout")

    def fail(path):
        save()(path)
        raise RuntimeError("rank 3 died")

    with pytest.raises(PublishError, match="ckpt_0 was not saved .RuntimeError: rank 3 died"):
        b.after_update_policy("rollout", never, fail)
    assert f"[ShareDataTest] Failed to save ckpt to {root}/ckpt_0: rank 3 died" in capsys.readouterr().out
    assert exchanged(root) == []


def test_a_failed_load_of_a_checkpoint_stops_the_run(root, capsys):
    a, _ = side(root, "ckpt")
    b, _ = side(root, "rollout")
    b.after_update_policy("rollout", never, save())

    def fail(path):
        raise FileNotFoundError("model_world_size_8_rank_0.pt")

    with pytest.raises(FileNotFoundError):
        a.after_update_policy("ckpt", fail, never)
    assert "because of model_world_size_8_rank_0.pt" in capsys.readouterr().out


def test_a_directory_below_rays_sessions_is_warned_of(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("verl.crosscheck.run.selection.RAY_SESSIONS", str(tmp_path / "session"))
    ShareDataTest(make_config(tmp_path / "session_1", "ckpt"))
    out = capsys.readouterr().out
    assert f"Warning: Using dump path '{tmp_path}/session_1' is not recommended as it's located in " in out


def test_colour_only_where_a_terminal_is(root, monkeypatch, capsys):
    _, a = side(root, "ckpt")
    monkeypatch.setenv("VERL_CROSSCHECK_COLOUR", "1")
    a.generate_sequences(make_prompts(["1+1="]))
    assert capsys.readouterr().out.endswith(
        f"\033[32m[ShareDataTest] Successfully dump data in {root}/rollout_0\033[0m\n"
    )
    monkeypatch.setenv("NO_COLOR", "1")
    a.generate_sequences(make_prompts(["1+1="]))
    assert capsys.readouterr().out == f"[ShareDataTest] Successfully dump data in {root}/rollout_1\n"


def test_a_removed_directory_is_told(root):
    _, b = side(root, "rollout", ManualClock())
    shutil.rmtree(root)
    with pytest.raises(DirectoryError, match="is gone"):
        b.generate_sequences(make_prompts(["1+1="]))


def test_the_manifest_says_what_the_checkpoint_belongs_to(root):
    b, _ = side(root, "rollout")
    b.after_update_policy("rollout", never, save(), {"global_step": 1})
    assert '"global_step": 1' in (root / "ckpt_0" / MANIFEST).read_text()
