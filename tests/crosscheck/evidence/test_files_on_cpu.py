# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Evidence as a file: all of it comes back, it is as small as promised, and what is no evidence is refused."""

import dataclasses
import math

import numpy as np
import pytest
from evidence_fixtures import make_batch, make_update

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.files import load_of_step
from verl.crosscheck.evidence.step import TensorChange
from verl.crosscheck.exchange import layout
from verl.crosscheck.exchange.publish import publish_file
from verl.crosscheck.exchange.record.record import Record, write_record
from verl.crosscheck.run.observe.gather import blank_evidence, evidence_of_batch
from verl.crosscheck.settings import Detail


def make_evidence(detail=Detail.TOKENS, **observed):
    update = make_update(make_batch([[1, 2], [3]], [[7, 8, 9], [7]], ref=True), **observed)
    sampling = {"temperature": 1.0, "stop_token_ids": [1], "quantization": None}
    evidence = evidence_of_batch(update, blank_evidence(update, "ckpt", "run-a", 0, detail, sampling), None)
    return dataclasses.replace(
        evidence,
        changes={"lm_head.weight": TensorChange(0.5, 0.25, 0.75), "norm.weight": TensorChange(0.125)},
        weights={"sent/lm_head.weight": "ab", "held/lm_head.weight": "cd"},
    )


@pytest.mark.parametrize("detail", [Detail.TOKENS, Detail.SUMMARY])
def test_all_of_it_comes_back(tmp_path, detail):
    written = make_evidence(detail, metrics={"actor/grad_norm": math.nan, "actor/pg_loss": math.inf})
    size_bytes = files.save(tmp_path / "step_1", written)
    assert size_bytes == (tmp_path / "step_1").stat().st_size
    read = files.load(tmp_path / "step_1")
    for field in dataclasses.fields(written):
        mine, back = getattr(written, field.name), getattr(read, field.name)
        if field.name in ("rows", "tokens"):
            assert list(mine) == list(back)
            for name in mine:
                assert back[name].tobytes() == mine[name].tobytes(), name
                assert back[name].dtype == mine[name].dtype, name
        elif isinstance(mine, np.ndarray):
            assert back.tobytes() == mine.tobytes(), field.name
        else:
            assert repr(back) == repr(mine), field.name  # nan is not equal to itself


def test_a_step_done_again_replaces_what_was_there(tmp_path):
    files.save(tmp_path / "step_1", make_evidence(step=1))
    files.save(tmp_path / "step_1", make_evidence(step=1, metrics={"actor/grad_norm": 7.0}))
    assert files.load(tmp_path / "step_1").metrics["actor/grad_norm"] == 7.0
    assert [path.name for path in tmp_path.iterdir()] == ["step_1"]


def test_a_token_takes_at_most_nine_bytes(tmp_path):
    tokens = 512

    def recorded(update):
        return evidence_of_batch(update, blank_evidence(update, "ckpt", "run-a", 0, Detail.TOKENS, {}), None)

    prompts, responses = [[1, row] for row in range(64)], [[2] * tokens for _ in range(64)]
    without = recorded(make_update(make_batch(prompts, responses)))
    with_ref = recorded(make_update(make_batch(prompts, responses, ref=True)))
    assert files.save(tmp_path / "without", without) < 6.5 * 64 * tokens
    assert files.save(tmp_path / "with", with_ref) < 8.5 * 64 * tokens


def damage(kind, name, change):
    def damaged(path):
        evidence = make_evidence()
        files.save(path, evidence)
        record = files.read_stored(path)
        parts = {"arrays": dict(record.arrays), "meta": dict(record.meta), "about": dict(record.about)}
        parts[kind][name] = change(parts[kind].get(name))
        path.unlink()
        publish_file(path, lambda file: write_record(file, Record(**parts)))

    return damaged


@pytest.mark.parametrize(
    ("write", "says"),
    [
        (damage("meta", "metrics", lambda _: {"a": 10**400}), "OverflowError"),
        (damage("meta", "changes", lambda _: {"a": {"own": "x"}}), "could not convert"),
        (damage("arrays", "rows/reward", lambda _: np.full(2, "x")), r"reward is <U1 \[2\]"),
        (damage("about", "kind", lambda _: "rollout"), "kind 'rollout'"),
        (damage("about", "detail", lambda _: "all"), "'all' is not a valid Detail"),
        (damage("arrays", "row_ids", lambda ids: ids.astype(np.int64)), "identities are int64"),
        (damage("arrays", "lengths", lambda lengths: -lengths), "lengths int32"),
        (damage("arrays", "rows/reward", lambda column: column[:1]), r"reward is float64 \[1\] for 2 rows"),
        (damage("arrays", "tokens/train", lambda column: column[:-1]), r"train has \[3\] values for 4 tokens"),
        (damage("arrays", "tokens/ref", lambda column: column[:-1]), r"ref has \[3\] values for 4 tokens"),
        (damage("arrays", "tokens/mask", lambda column: column[:0]), r"a mask of 4 is uint8 \[1\]"),
        (damage("meta", "changes", lambda _: {"x": {"size": 1}}), "unexpected keyword argument 'size'"),
        (damage("meta", "metrics", lambda _: {"x": "y"}), "could not convert string to float"),
    ],
)
def test_a_record_that_is_no_evidence_is_refused(tmp_path, write, says):
    path = tmp_path / "step_1"
    write(path)
    with pytest.raises(DamagedError, match=f"step_1 is a record but not the evidence of a step .*{says}"):
        files.load(path)


def test_a_file_cut_short_is_refused(tmp_path):
    path = tmp_path / "step_1"
    files.save(path, make_evidence())
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(DamagedError):
        files.load(path)


def test_the_newest_run_that_did_a_step_is_asked(tmp_path):
    for number, steps in ((1, (1, 2, 3)), (2, (3, 4))):
        folder = layout.RunNames(layout.run_folder(tmp_path, "rollout", number)).all_evidence
        folder.mkdir(parents=True)
        for step in steps:
            evidence = make_evidence(step=step, metrics={"actor/grad_norm": float(number)})
            files.save(folder / f"step_{step}", evidence)
    found = {step: load_of_step(tmp_path, "rollout", step).metrics["actor/grad_norm"] for step in (1, 2, 3, 4)}
    assert found == {1: 1.0, 2: 1.0, 3: 2.0, 4: 2.0}
    with pytest.raises(FileNotFoundError, match="no run of mode rollout in .* recorded step 5"):
        load_of_step(tmp_path, "rollout", 5)
