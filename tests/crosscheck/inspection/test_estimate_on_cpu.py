# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How much room a pair needs, and which file system a folder lies on."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.inspection.estimate import estimate, parameters_of
from verl.crosscheck.inspection.mounts import mount_of

MODEL = Path(__file__).parents[3] / "recipe" / "crosscheck" / "model"


def test_checkpoints_kept_one_being_written_and_rollouts():
    found = estimate(7_000_000_000, "", keep=2, steps=10, rows=2048, tokens=4096)
    assert found.checkpoint_bytes == 84_000_000_000
    assert found.rollout_bytes == 2048 * 4096 * 11
    assert found.needed_bytes == 3 * found.checkpoint_bytes + 10 * found.rollout_bytes
    assert estimate(10, "", keep=None, steps=7).needed_bytes == 7 * 120


def test_the_recipes_model_is_counted_and_its_checkpoints_are_of_that_order():
    parameters, source = parameters_of(MODEL)
    assert (parameters, source) == (95_296, "the heads of 1 safetensors file")
    assert (
        pytest.approx(estimate(parameters, "").checkpoint_bytes, rel=0.05) == 397_427 + 794_141
    )  # as saved by the demo


def test_shards_are_added_up(tmp_path):
    for number in range(2):
        save_file({f"w{number}": torch.zeros(3, 4, dtype=torch.bfloat16)}, tmp_path / f"model-{number}.safetensors")
    assert parameters_of(tmp_path)[0] == 24


@pytest.mark.parametrize(
    ("config", "parameters"),
    [({"torch_dtype": "bfloat16"}, 50), ({"dtype": "float32"}, 25), ({"text_config": {"dtype": "float32"}}, 25)],
)
def test_an_index_is_enough(tmp_path, config, parameters):
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 100}}))
    assert parameters_of(tmp_path)[0] == parameters


def test_old_weights_are_counted_by_their_size(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "pytorch_model.bin").write_bytes(b"x" * 60)
    assert parameters_of(tmp_path)[0] == 30


@pytest.mark.parametrize(
    "content", [b"", b"version https://git-lfs.github.com/spec/v1\n", b"\x08" + bytes(7) + b"[1, 2, 3"]
)
def test_what_does_not_tell_says_what_to_do(tmp_path, content):
    (tmp_path / "model.safetensors").write_bytes(content)
    with pytest.raises(SettingsError, match="--parameters 7e9"):
        parameters_of(tmp_path)


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(SettingsError, match="--parameters 7e9"):
        parameters_of(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(SettingsError, match="cannot be read"):
        parameters_of(tmp_path)


@pytest.fixture
def mounts(tmp_path):
    table = tmp_path / "mounts"
    table.write_text(
        "/dev/vda / ext4 rw 0 0\n"
        "server:/export /mnt/shared nfs4 rw,acdirmax=60 0 0\n"
        "server:/odd /mnt/a\\040b nfs rw 0 0\n"
        "tmpfs /mnt/shared/ram tmpfs rw 0 0\n"
        "fuse /mnt/fuse fuse.sshfs rw 0 0\n"
        "odd line\n"
    )
    return table


@pytest.mark.parametrize(
    ("folder", "kind", "local", "words"),
    [
        ("/home/a", "ext4", True, "a local disk"),
        ("/mnt/shared/x", "nfs4", False, "acdirmax"),
        ("/mnt/shared/ram/x", "tmpfs", True, "memory of this host"),
        ("/mnt/a b/c", "nfs", False, "acdirmax"),
        ("/mnt/sharedx", "ext4", True, "a local disk"),
        ("/mnt/fuse/y", "fuse.sshfs", False, "user space"),
    ],
)
def test_the_mount_of_a_folder(mounts, folder, kind, local, words):
    found = mount_of(Path(folder), mounts)
    assert (found.kind, found.is_local) == (kind, local)
    assert words in found.caveat


def test_without_a_table_nothing_is_claimed(tmp_path):
    assert mount_of(tmp_path, tmp_path / "nowhere") is None
