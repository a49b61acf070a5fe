# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck show`: what is inside, and never a traceback."""

import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from rollout_fixtures import FakeManager, make_prompts

from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.run.rollouts import identify_call, save_rollout

MODEL = Path(__file__).parents[3] / "recipe" / "crosscheck" / "model"
DIGITS = [3, 4, 5]


@pytest.fixture
def rollout(tmp_path):
    """A rollout of three rows as the agent loop makes it, padded on both sides."""
    prompts = make_prompts(["99+20", "[bold]1+1", "7+8"], step=5)
    output = FakeManager(echo=True).generate_sequences(prompts)
    output.batch["prompts"] = torch.tensor([[0, 12, 12, 13], [0, 0, 4, 13], [4, 13, 5, 13]])
    output.batch["responses"] = torch.tensor([[4, 4, 1], [5, 1, 0], [6, 0, 0]])
    output.batch["attention_mask"] = torch.tensor([[0, 1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0]])
    output.batch["rm_scores"] = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.5, 0.0], [0.0, 0.0, float("nan")]])
    save_rollout(tmp_path / "rollout_4", identify_call(4, prompts), prompts, output, stamp={"session": "s"})
    return tmp_path / "rollout_4"


def write(path, record):
    publish_file(path, lambda file: write_record(file, record))
    return path


def test_a_rollout(rollout, call, call_json):
    exit_code, found = call_json("show", rollout)
    assert exit_code == 0
    assert found["about"]["index"] == 4
    assert found["distinct_prompts"] == 3
    columns = {each["name"]: each for each in found["columns"]}
    assert columns["prompts"] == {
        "group": "tensor",
        "name": "prompts",
        "type": "int64",
        "shape": [3, 4],
        "values": "0 to 13",
    }
    assert columns["rm_scores"]["values"] == "0 to 1, 1 not finite"
    assert columns["raw_prompt"]["group"] == "echoed"
    assert found["lengths"] == [
        {"what": "prompt", "shortest": 2, "mean": 3.0, "longest": 4, "width": 4},
        {"what": "response", "shortest": 1, "mean": 2.0, "longest": 3, "width": 3},
    ]
    first, second, third = found["rows"]
    assert (first["asked"], first["prompt_tokens"], first["response_tokens"], first["score"]) == ("99+20", 3, 3, 1.0)
    assert (second["asked"], second["score"], third["score"]) == ("[bold]1+1", 0.5, "nan")
    page = call("show", rollout, "--rows", 2).stdout
    assert "row 1, 2 + 2 tokens, score 0.5" in page
    assert "[bold]1+1" in page
    assert "row 2" not in page
    assert max(map(len, page.splitlines())) <= 80


def test_prompts_and_responses_are_decoded(rollout, call):
    page = call("show", rollout, "--rows", 1, "--tokenizer", MODEL).stdout
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(MODEL, local_files_only=True)
    assert tokenizer.decode([12, 12, 13]) in page
    assert tokenizer.decode([4, 4, 1]) in page


@pytest.mark.parametrize("name", ["nowhere", "some/model-of-a-hub"])
def test_a_tokenizer_that_is_not_here_is_told_and_nothing_is_downloaded(rollout, call, name):
    result = call("show", rollout, "--tokenizer", name)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: --tokenizer {name!r} cannot be loaded")
    assert len(result.stderr.splitlines()) == 1


def test_a_record_that_is_no_rollout(tmp_path, call_json):
    record = Record(
        tensors={"a": torch.zeros(2, 0), "c": torch.ones(1, dtype=torch.complex64), "prompts": torch.zeros(3)},
        arrays={"t": np.array(["text"]), "e": np.zeros((0, 2))},
        meta={"x": 1},
    )
    _, found = call_json("show", write(tmp_path / "record", record))
    assert {each["name"]: each["values"] for each in found["columns"]} == {
        **{"a": "", "c": "", "prompts": "0"},
        **{"t": "'text'", "e": ""},
    }
    assert (found["rows"], found["lengths"], found["meta"], found["distinct_prompts"]) == ([], [], ["x"], None)


@pytest.mark.parametrize(
    "record",
    [
        Record(about={"kind": "rollout"}),
        Record(about={"kind": "rollout"}, meta={"call": 7}),
        Record(about={"kind": "rollout"}, meta={"call": {"index": "x", "kind": "training"}}),
    ],
)
def test_a_rollout_without_its_call_is_damaged(tmp_path, call, record):
    result = call("show", write(tmp_path / "rollout_0", record))
    assert result.exit_code == 2
    assert "the call that it answers cannot be read" in result.stderr


HOSTILE = [
    Record(
        tensors={"prompts": torch.zeros(2, 2, dtype=torch.int64), "responses": torch.zeros(3, 2, dtype=torch.int64)}
    ),
    Record(
        tensors={
            "prompts": torch.zeros(2, 2, dtype=torch.int64),
            "responses": torch.zeros(2, 2, dtype=torch.int64),
            "attention_mask": torch.zeros(2, 3, dtype=torch.int64),
            "rm_scores": torch.zeros(1, 2),
        },
        meta={"echoed": "x"},
    ),
    Record(
        tensors={name: torch.zeros(0, 2, dtype=torch.int64) for name in ("prompts", "responses")}
        | {"attention_mask": torch.zeros(0, 4, dtype=torch.int64)}
    ),
    Record(about={"kind": ["rollout"], "index": {"a": None}}, tensors={"x\x1b[31m": torch.tensor(True)}),
]


@pytest.mark.parametrize("record", HOSTILE)
def test_columns_of_any_form_are_shown(tmp_path, call, record):
    result = call("show", write(tmp_path / "rollout_0", record))
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout


class Exploding:
    def __reduce__(self):
        return (pytest.fail, ("a pickle was opened",))


FOREIGN = {
    "text": b"hello",
    "empty": b"",
    "pickle": pickle.dumps(Exploding()),
    "zip": b"PK\x03\x04" + bytes(200),
    "safetensors": b"\x02" + bytes(7) + b"{}" + bytes(300),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_foreign_files_are_refused_and_nobody_is_told_to_delete_them(tmp_path, call, name):
    (tmp_path / name).write_bytes(FOREIGN[name])
    result = call("show", tmp_path / name)
    assert result.exit_code == 2
    assert "not a usable record" in result.stderr
    assert "rm " not in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_damage_links_pipes_and_nothing_at_all(rollout, tmp_path, call):
    content = bytearray(rollout.read_bytes())
    content[-3] ^= 1
    rollout.write_bytes(content)
    (tmp_path / "link").symlink_to(rollout)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "empty").mkdir()
    for name, words in {
        "rollout_4": "the content was altered",
        "link": "a symbolic link found",
        "pipe": "something else found",
        "nothing": "there is no such file",
        "empty": "is nothing of an exchange",
    }.items():
        result = call("show", tmp_path / name)
        assert result.exit_code == 2
        assert words in result.stderr


# ---------------------------------------------------------------- folders


def test_a_checkpoint(pair, call, call_json):
    run = pair.start("rollout")
    path = pair.ckpt(run, 0)
    exit_code, found = call_json("show", path)
    assert (exit_code, found["files"], found["size_bytes"]) == (0, {"model_world_size_1_rank_0.pt": 1000}, 1000)
    page = call("show", path).stdout
    assert "are Python pickles" in " ".join(page.split())
    (path / "model_world_size_1_rank_0.pt").write_bytes(b"short")
    result = call("show", path)
    assert result.exit_code == 2
    assert "has 5 bytes, expected 1000" in result.stderr


def test_shards_of_many_ranks_are_one_line(pair, call):
    from verl.crosscheck.exchange.layout import Layout
    from verl.crosscheck.exchange.publish import publish_folder

    def fill(stage):
        for kind in ("model", "optim"):
            for rank in range(16):
                (stage / f"{kind}_world_size_16_rank_{rank}.pt").write_bytes(b"x" * 1000)

    pair.start("rollout")
    publish_folder(Layout(pair.root).ckpt(0), fill, {})
    page = call("show", pair.root / "ckpt_0").stdout
    assert "model_world_size_*_rank_*.pt (16 files)  16.0 kB" in page


def test_a_run_and_its_settings(pair, call, call_json):
    run = pair.start("ckpt")
    run.report("training", global_step=3)
    run.report_facts({"model": {"size": 1}})
    folder = run.slot.names.folder
    page = call("show", folder).stdout
    assert "training" in page
    assert "end: not reported yet" in page
    assert "trainer.total_training_steps" not in page
    assert "trainer.total_training_steps" in call("show", folder, "--settings").stdout
    run.end(ValueError("no"))
    _, found = call_json("show", folder)
    assert (found["end"]["state"], found["end"]["error"], found["facts"]) == (
        "failed",
        "ValueError",
        {"model": {"size": 1}},
    )
    assert found["settings"]["trainer.share_data"] == "ckpt"
    assert "config" not in found["card"]


def test_moments_that_are_none(pair, call):
    run = pair.start("ckpt")
    document = json.loads(run.slot.names.progress.read_text())
    for told in (9e18, 0):
        document["told"] = told
        run.slot.names.progress.write_text(json.dumps(document))
        assert call("show", run.slot.names.folder).exit_code == 0
        assert json.loads(call("show", run.slot.names.folder, "--json").stdout)
    for told in ("1e300", "NaN", "-Infinity"):
        document["told"] = float(told)
        run.slot.names.progress.write_text(json.dumps(document))
        assert call("show", run.slot.names.folder).exit_code == 2


def test_a_session_and_a_whole_directory(pair, call, call_json):
    runs = pair.start("ckpt"), pair.start("rollout")
    pair.rollout(runs[0], 0)
    pair.finish(*runs)
    pair.start("ckpt")
    _, found = call_json("show", pair.root / "sessions" / "session_1")
    assert (found["number"], found["runs"], found["rollouts"]) == (1, ["ckpt_1", "rollout_1"], [0])
    assert "rollouts put aside here" in call("show", pair.root / "sessions" / "session_1").stdout
    result = call("show", pair.root)
    assert result.exit_code == 2
    assert "verl-crosscheck status" in result.stderr
