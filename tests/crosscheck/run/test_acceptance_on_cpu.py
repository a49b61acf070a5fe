# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A checkpoint is loaded by what can load its form, or not at all."""

import io
import zipfile

import pytest
import torch

from verl.crosscheck.errors import DamagedError, MismatchError, SettingsError
from verl.crosscheck.exchange.publish import publish_folder
from verl.crosscheck.run.acceptance import load_checked
from verl.crosscheck.run.hooks import ActorFiles

ABOUT = {"kind": "ckpt", "index": 0, "device": "cuda", "world_size": 2, "strategy": "fsdp2"}


def publish(path, **about):
    path.parent.mkdir(exist_ok=True)
    publish_folder(
        path, lambda stage: (stage / "model_world_size_2_rank_0.pt").write_bytes(saved_on()), {**ABOUT, **about}
    )
    return path


def saved_on(device="cpu"):
    """A file of `torch.save`, as one from another kind of device has it: the storage's tag is the only difference."""
    buffer = io.BytesIO()
    torch.save({"weight": torch.ones(3)}, buffer)
    if device == "cpu":
        return buffer.getvalue()
    out = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            if name.endswith("data.pkl"):
                assert content.count(b"X\x03\x00\x00\x00cpu") == 1
                tag = device.encode()
                content = content.replace(b"X\x03\x00\x00\x00cpu", b"X" + len(tag).to_bytes(4, "little") + tag)
            new.writestr(name, content)
    return out.getvalue()


@pytest.fixture
def calls():
    return []


@pytest.fixture
def actor(calls):
    def noted(name):
        return lambda path: calls.append((name, path))

    return ActorFiles(noted("load"), noted("save"), noted("load_portable"), noted("save_portable"))


@pytest.mark.parametrize(
    ("about", "function"), [({}, "load"), ({"format": "native"}, "load"), ({"format": "portable"}, "load_portable")]
)
def test_each_form_has_its_function(tmp_path, actor, calls, about, function):
    path = publish(tmp_path / "ckpt_0", **about)
    load_checked(path, actor, dict(ABOUT), strict=True)
    assert calls == [(function, str(path))]


def test_a_portable_one_is_for_any_layout_and_a_native_one_is_not(tmp_path, actor, calls):
    own = {**ABOUT, "device": "npu", "world_size": 16, "strategy": "megatron"}
    load_checked(publish(tmp_path / "a" / "ckpt_0", format="portable"), actor, own, strict=True)
    assert len(calls) == 1
    with pytest.raises(MismatchError, match="share_data_ckpt_format=auto"):
        load_checked(publish(tmp_path / "b" / "ckpt_0"), actor, own, strict=False)
    assert len(calls) == 1


def test_a_trainer_without_portable_functions_says_so(tmp_path, calls):
    actor = ActorFiles(calls.append, calls.append)
    with pytest.raises(SettingsError, match="Give it load_portable and save_portable"):
        load_checked(publish(tmp_path / "ckpt_0", format="portable"), actor, dict(ABOUT), strict=True)
    assert calls == []


def test_a_form_that_nobody_knows_is_refused(tmp_path, actor, calls):
    with pytest.raises(DamagedError, match="'pickle', which is none"):
        load_checked(publish(tmp_path / "ckpt_0", format="pickle"), actor, dict(ABOUT), strict=True)
    assert calls == []


@pytest.mark.parametrize(
    ("device", "own", "fits"), [("npu:0", "cuda", False), ("npu:0", "npu", True), ("cpu", "cuda", True)]
)
def test_a_checkpoint_of_ascend_is_recognised_without_unpickling_it(tmp_path, actor, calls, device, own, fits):
    """Also where what it says of itself is wrong."""
    path = tmp_path / "ckpt_0"
    about = {**ABOUT, "device": own}
    publish_folder(path, lambda stage: (stage / "model_world_size_2_rank_0.pt").write_bytes(saved_on(device)), about)
    if fits:
        load_checked(path, actor, about, strict=True)
        assert calls == [("load", str(path))]
        return
    with pytest.raises(
        MismatchError, match=r"rank_0.pt was saved on npu, and this run trains on cuda.*Nothing was loaded"
    ):
        load_checked(path, actor, about, strict=False)
    assert calls == []
