# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Weights written by ranks of one layout and read by ranks of another: real process groups, real FSDP of both kinds."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from verl.crosscheck.weights.portable.manifest import read_manifest
from verl.crosscheck.weights.portable.writing import MAX_HEADER_BYTES

pytestmark = pytest.mark.slow  # 30 s

ROOT = Path(__file__).parents[4]
WRITTEN = {  # folder: layout and model of the two ranks that write it
    "fsdp2": ("fsdp2", "untied"),
    "fsdp2-keep": ("fsdp2-keep", "untied"),
    "fsdp1": ("fsdp1", "untied"),
    "fsdp1-orig": ("fsdp1-orig", "untied"),
    "fsdp1-replicas": ("fsdp1-replicas", "untied"),
    "fsdp2-replicas": ("fsdp2-replicas", "untied"),
    "ddp": ("ddp", "untied"),
    "fsdp2-files": ("fsdp2", "untied"),  # in several files
    "fsdp1-files": ("fsdp1", "untied"),
    "fsdp2-hosts": ("fsdp2", "untied"),  # as if each rank had a host of its own, in several files
    "fsdp2-columns-hosts": ("fsdp2-columns", "untied"),
    "fsdp1-hosts": ("fsdp1-orig", "untied"),
    "fsdp2-replicas-hosts": ("fsdp2-replicas", "untied"),
    "ddp-hosts": ("ddp", "untied"),
    "bf16": ("fsdp2", "bf16"),
    "tied": ("fsdp1", "tied"),
    "lora": ("fsdp2", "lora"),
    "lora1": ("fsdp1-orig", "lora"),
    "buffers": ("fsdp2", "buffers"),
    "mixed": ("fsdp2", "mixed"),
    "frozen": ("fsdp1-orig", "frozen"),
}
READ = {  # number of ranks: folder, layout and model of those who read it
    1: [
        ("fsdp2", "fsdp2", "untied"),
        ("fsdp2", "fsdp1", "untied"),
        ("fsdp2", "plain", "untied"),
        ("fsdp2", "fsdp1-low", "untied"),
        ("lora", "fsdp2", "lora"),
    ],
    2: [
        ("fsdp2", "fsdp2", "untied"),
        ("fsdp2", "fsdp2-keep", "untied"),
        ("fsdp2", "fsdp2-columns", "untied"),
        ("fsdp2", "fsdp2-replicas", "untied"),
        ("fsdp2", "fsdp1", "untied"),
        ("fsdp2", "fsdp1-orig", "untied"),
        ("fsdp2", "fsdp1-whole", "untied"),
        ("fsdp2", "fsdp2-low", "untied"),
        ("fsdp2", "fsdp1-low", "untied"),
        ("fsdp2", "fsdp1-low-orig", "untied"),
        ("fsdp2", "fsdp1-replicas", "untied"),
        ("fsdp2", "ddp", "untied"),
        ("fsdp1", "fsdp2", "untied"),
        ("fsdp2", "fsdp1", "bf16"),
        ("bf16", "fsdp2", "untied"),
        ("tied", "fsdp2", "tied"),
        ("tied", "fsdp2", "untied"),
        ("fsdp2", "fsdp1", "tied"),
        ("lora", "fsdp1-orig", "lora"),
        ("lora1", "fsdp2", "lora"),
        ("lora", "fsdp2", "lora-other-base"),
        ("lora", "fsdp2", "untied"),
        ("buffers", "fsdp1", "buffers"),
        ("mixed", "fsdp2", "mixed"),
        ("frozen", "fsdp2", "frozen"),
        ("flipped", "fsdp2", "untied"),
        ("reshaped", "fsdp1", "untied"),
    ],
    3: [("fsdp2", "fsdp2", "untied"), ("fsdp2", "fsdp1", "untied"), ("fsdp1-orig", "fsdp2", "untied")],
}
FLIPPED = "model.layers.1.self_attn.k_proj.weight"


def name_of(world, folder, layout, model):
    return f"{world}-{folder}-{layout}-{model}"


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """What came of all steps: files of `ranks.py`."""
    top = tmp_path_factory.mktemp("ranks")
    (top / "out").mkdir()
    for folder in WRITTEN:
        (top / folder).mkdir()
    saves = [
        {"do": "save", "name": folder, "layout": layout, "model": model, "seed": 1, "path": str(top / folder),
         "forward": "keep" in layout, "file_bytes": 60_000 if "files" in folder or "hosts" in folder else 1 << 29}
        for folder, (layout, model) in WRITTEN.items()
    ]  # fmt: skip
    run(top, [{"world": 2, "steps": saves}])
    damage(top)
    loads = [
        {"world": world, "steps": [
            {"do": "load", "name": name_of(world, *each), "layout": each[1], "model": each[2], "seed": 2,
             "path": str(top / each[0]), "forward": each[2] == "untied"}
            for each in steps
        ]}
        for world, steps in READ.items()
    ]  # fmt: skip
    run(top, loads)
    return top / "out"


def run(top, jobs):
    (top / "jobs.json").write_text(json.dumps(jobs))
    for store in top.glob("store-*"):
        store.unlink()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("ranks.py")), str(top)]
    done = subprocess.run(command, check=False, env=environment, timeout=180, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


def damage(top):
    """Two more folders: one with a bit of a tensor flipped, one with a tensor of another shape."""
    shutil.copytree(top / "fsdp2", top / "flipped")
    (file,) = (top / "flipped").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    size = int.from_bytes(data[:8], "little")
    offsets = json.loads(data[8 : 8 + size])[FLIPPED]["data_offsets"]
    data[8 + size + offsets[0] + 5] ^= 1
    file.write_bytes(data)
    shutil.copytree(top / "fsdp2", top / "reshaped")
    for name in ("portable.json", "*.safetensors"):
        (file,) = (top / "reshaped").glob(name)
        swap_shape(file, FLIPPED)


def swap_shape(file, name):
    """The same bytes under the transposed shape."""
    if file.suffix == ".json":
        content = json.loads(file.read_text())
        for each in content["tensors"]:
            if each["name"] == name:
                each["shape"].reverse()
        file.write_text(json.dumps(content))
    else:
        tensors = load_file(file)
        save_file(dict(tensors) | {name: tensors[name].reshape(tensors[name].shape[::-1])}, file)


def values(out, name):
    return torch.load(out / f"{name}.pt")


def told(out, name, rank=0):
    assert not (out / f"{name}.{rank}.txt").exists(), (out / f"{name}.{rank}.txt").read_text()
    return json.loads((out / f"{name}.{rank}.json").read_text())


def error(out, name, rank):
    return (out / f"{name}.{rank}.txt").read_text()


def assert_equal(one, other):
    assert one.keys() == other.keys()
    assert [
        name for name in one if one[name].dtype != other[name].dtype or not torch.equal(one[name], other[name])
    ] == []


EQUAL = [
    (world, *each)
    for world, steps in READ.items()
    for each in steps
    if each[2] == "untied" and each[0] in ("fsdp2", "fsdp1", "fsdp1-orig")
]


@pytest.mark.parametrize(("world", "folder", "layout", "model"), EQUAL)
def test_every_layout_reads_every_other_bit_for_bit(out, world, folder, layout, model):
    name = name_of(world, folder, layout, model)
    read, written = values(out, name), values(out, "fsdp2")
    logits, expected = read.pop("logits"), values(out, name_of(1, "fsdp2", "plain", "untied"))["logits"]
    assert_equal(read, written)
    assert told(out, name)["converted"] == []
    # What the layers compute with is what was loaded, not an unsharded copy that FSDP had kept.
    assert (logits - expected).norm() < (0.2 if "low" in layout else 1e-5) * expected.norm()


SAME = [folder for folder, (_, model) in WRITTEN.items() if model == "untied"]


@pytest.mark.parametrize("folder", SAME)
def test_every_layout_writes_the_same(out, folder):
    """Up to the order of tensors, in which FSDP's flat parameters differ from modules."""
    one, other = (read_manifest(out.parent / each).tensors for each in ("fsdp2", folder))
    assert {n: (e.dtype, e.shape, e.checksum, e.kind) for n, e in one.items()} == {
        n: (e.dtype, e.shape, e.checksum, e.kind) for n, e in other.items()
    }


def test_the_files_are_those_that_everybody_reads(out):
    (file,) = (out.parent / "fsdp1").glob("*.safetensors")
    assert_equal(load_file(file), values(out, "fsdp1"))
    assert json.loads((file.parent / "model.safetensors.index.json").read_text())["weight_map"] == {
        name: "model-00001-of-00001.safetensors" for name in values(out, "fsdp1")
    }


@pytest.mark.parametrize("folder", [folder for folder in SAME if "files" in folder or "hosts" in folder])
def test_several_files(out, folder):
    files = sorted((out.parent / folder).glob("*.safetensors"))
    assert [file.name for file in files] == [
        f"model-{i:05}-of-{len(files):05}.safetensors" for i in range(1, len(files) + 1)
    ]
    assert len(files) > 4
    headers = {int.from_bytes(file.read_bytes()[:8], "little") for file in files}
    assert (headers == {MAX_HEADER_BYTES}) == ("hosts" in folder)  # room is left only by ranks that gather
    tensors = [load_file(file) for file in files]
    assert_equal({name: value for each in tensors for name, value in each.items()}, values(out, folder))


def test_into_another_type(out):
    name = name_of(2, "fsdp2", "fsdp1", "bf16")
    written = values(out, "fsdp2")
    assert_equal(values(out, name), {each: value.to(torch.bfloat16) for each, value in written.items()})
    assert sorted(told(out, name)["rounded"]) == sorted(told(out, name)["converted"]) == sorted(written)
    name = name_of(2, "bf16", "fsdp2", "untied")
    read = values(out, name)
    del read["logits"]
    assert_equal(read, {each: value.to(torch.float32) for each, value in values(out, "bf16").items()})
    assert told(out, name)["rounded"] == [] and sorted(told(out, name)["converted"]) == sorted(written)


def test_tied(out):
    assert told(out, "tied")["tied"] == {"lm_head.weight": "model.embed_tokens.weight"}
    written = values(out, "tied")
    assert_equal(values(out, name_of(2, "tied", "fsdp2", "tied")), written)
    read = values(out, name_of(2, "tied", "fsdp2", "untied"))
    assert torch.equal(read["lm_head.weight"], written["model.embed_tokens.weight"])
    for rank in range(2):
        found = error(out, name_of(2, "fsdp2", "fsdp1", "tied"), rank)
        assert "MismatchError" in found and "model.embed_tokens.weight and lm_head.weight are one tensor" in found


def test_lora(out):
    for folder, name in (
        ("lora", name_of(2, "lora", "fsdp1-orig", "lora")),
        ("lora1", name_of(2, "lora1", "fsdp2", "lora")),
    ):
        written, read = values(out, folder), values(out, name)
        assert_equal(read, written)
        tensors = read_manifest(out.parent / folder).tensors
        assert len(tensors) == 8 and all(".lora_" in each and ".default" not in each for each in tensors)
        assert told(out, folder)["left_out"] == len(written) - 8 and told(out, name)["tensors"] == 8
    assert_equal(values(out, name_of(1, "lora", "fsdp2", "lora")), values(out, "lora"))


def test_lora_on_another_base(out):
    name = name_of(2, "lora", "fsdp2", "lora-other-base")
    for rank in range(2):
        found = error(out, name, rank)
        assert "MismatchError" in found and "another base" in found
        assert "model.layers.1.mlp.up_proj.weight: checksum" in found
    written, after = values(out, "lora"), values(out, name)
    assert not any(torch.equal(after[each], written[each]) for each in written if ".lora_" in each)


def test_lora_into_a_model_without(out):
    found = error(out, name_of(2, "lora", "fsdp2", "untied"), 1)
    assert "the folder lacks 27 of this run's tensors (the first: model.embed_tokens.weight)" in found
    assert "lacks 8 of the folder's tensors" in found and "lora_rank" in found


def test_buffers(out):
    written, read = values(out, "buffers"), values(out, name_of(2, "buffers", "fsdp1", "buffers"))
    assert written.pop("model.scratch").shape == read.pop("model.scratch").shape  # not persistent: not sent
    assert_equal(read, written)
    assert read["model.steps"] == 1000
    kinds = {name: entry.kind for name, entry in read_manifest(out.parent / "buffers").tensors.items()}
    assert {name for name in kinds if kinds[name] == "buffer"} == {"model.steps", "model.layers.1.scale"}


@pytest.mark.parametrize("variant", ["mixed", "frozen"])
def test_mixed_types_and_frozen_parameters(out, variant):
    written = values(out, variant)
    assert len({value.dtype for value in written.values()}) == (3 if variant == "mixed" else 1)
    assert_equal(values(out, name_of(2, variant, "fsdp2", variant)), written)


def test_a_flipped_bit_is_told_with_its_tensor(out):
    for rank in range(2):
        found = error(out, name_of(2, "flipped", "fsdp2", "untied"), rank)
        assert found.startswith("DamagedError") and f"{FLIPPED}: checksum" in found


def test_another_shape_is_refused_before_anything_is_loaded(out):
    name = name_of(2, "reshaped", "fsdp1", "untied")
    for rank in range(2):
        assert f"{FLIPPED} has shape [32, 64] here, and [64, 32] in the folder" in error(out, name, rank)
    written, after = values(out, "fsdp2"), values(out, name)
    assert not any(torch.equal(after[each], written[each]) for each in written)
