# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Small JSON files: what they say comes back, anything else is refused with the path, never a parser's traceback."""

import json
import math
import os
from typing import ClassVar, Literal

import msgspec
import pytest

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.documents import MAX_SIZE_BYTES, Count, Document, Number, Seconds, read_document
from verl.crosscheck.exchange.layout import RunNames
from verl.crosscheck.exchange.publish import publish_document
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Progress, Start


class Inner(msgspec.Struct, frozen=True):
    COMPLETE: ClassVar[bool] = True

    state: Literal["on", "off"]
    depth: Count = 0


class Thing(Document, frozen=True):
    SCHEMA: ClassVar[str] = "s"

    name: str
    count: Count
    maybe: Count | None
    ratios: dict[str, Number] = msgspec.field(default_factory=dict)
    inner: tuple[Inner, ...] = ()
    one: Inner = Inner("on")
    seconds: Seconds = msgspec.field(default=0.0, name="told")


GOOD = {"schema": "s", "schema_version": 1, "name": "x", "count": 3, "maybe": None}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "thing.json"


def read(path):
    return read_document(path, Thing)


def write(path, **changes):
    path.write_text(json.dumps({**GOOD, **changes}))


def refuse(path, message):
    with pytest.raises(DamagedError, match=message) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__  # the parser's error is not shown with it


def test_what_was_written_is_read_and_unknown_fields_are_ignored(path):
    write(path, more=[1])
    assert read(path) == Thing("x", 3, None)


def test_every_value_comes_back_whatever_json_lacks(path):
    thing = Thing("x", 3, None, {"a": math.inf, "b": 2.0, "c": -math.inf}, (Inner("off", 2),), seconds=1.5)
    publish_document(path, thing, replace=False)
    assert read(path) == thing
    data = json.loads(path.read_text())
    assert list(data)[:2] == ["schema", "schema_version"]
    assert data["ratios"] == {"a": "Infinity", "b": 2.0, "c": "-Infinity"}
    assert data["told"] == 1.5
    write(path, ratios={"a": "NaN", "b": 1})
    assert math.isnan(read(path).ratios["a"])


def test_none_there_is_not_damage(path):
    with pytest.raises(FileNotFoundError):
        read(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not JSON"),
        (b'{"schema": "s"', "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[" * 100_000, r"is not JSON \(it nests too deep\)"),
        (b"[]", "is not of the schema 's' .found 'list'"),
        (b"null", "is not of the schema"),
        (b'{"schema": "s", "schema_version": 1, "count": 1, "maybe": 1}', "has no field 'name'"),
        (json.dumps({**GOOD, "name": 5}).encode(), "has 5 in field 'name', expected str"),
        (json.dumps({**GOOD, "count": True}).encode(), "has True in field 'count', expected int"),
        (json.dumps({**GOOD, "count": 3.0}).encode(), "has 3.0 in field 'count', expected int"),
        (json.dumps({**GOOD, "maybe": "x" * 9999}).encode(), "has 'xxx.* in field 'maybe', expected int or null"),
        (json.dumps({**GOOD, "count": -1}).encode(), "has -1 in field 'count', expected int of at least 0"),
        (json.dumps({**GOOD, "count": 2**63}).encode(), "has 9223372036854775808 in field 'count', expected int <= 9"),
        (json.dumps({**GOOD, "told": -0.5}).encode(), "has -0.5 in field 'told', expected float of at least 0"),
        (
            json.dumps({**GOOD, "ratios": {"a": "much"}}).encode(),
            "has {'a': 'much'} in field 'ratios', expected number as each",
        ),
        (json.dumps({**GOOD, "ratios": [1]}).encode(), "has \\[1\\] in field 'ratios', expected dict"),
        (json.dumps({**GOOD, "one": 3}).encode(), "has 3 in field 'one', expected dict"),
        (json.dumps({**GOOD, "one": {"state": "on"}}).encode(), "has no field 'one.depth'"),
        (json.dumps({**GOOD, "one": {"depth": 1}}).encode(), "has no field 'one.state'"),
        (
            json.dumps({**GOOD, "inner": [{"state": "half", "depth": 1}]}).encode(),
            "has 'half' in field 'inner\\[0\\].state', expected one of off, on",
        ),
    ],
)
def test_damage_is_refused_with_the_path(path, content, message):
    path.write_bytes(content)
    refuse(path, message)


def test_any_truncation_is_refused(path):
    whole = json.dumps(GOOD).encode()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        refuse(path, "is not JSON")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "t"}, "is not of the schema 's' .found 't'"),
        ({"schema": None}, "is not of the schema"),
        ({"schema_version": 2}, "has schema version 2, expected 1. Run the same version of verl-crosscheck on both"),
        ({"schema_version": "1"}, "has schema version '1'"),
        ({"schema_version": True}, "has schema version True"),
        ({"schema_version": 1.0}, "has schema version 1.0"),
    ],
)
def test_another_schema_or_version_is_refused(path, changes, message):
    write(path, **changes)
    refuse(path, message)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/etc/passwd")])
def test_what_is_no_file_is_refused_without_blocking(path, make):
    make(path)
    refuse(path, "is not a regular file|cannot be read|a symbolic link is never followed")


def test_a_huge_document_is_refused(path):
    with path.open("wb") as file:
        file.truncate(MAX_SIZE_BYTES + 1)
    refuse(path, f"at most {MAX_SIZE_BYTES} bytes")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_owner_is_refused(path):
    write(path)
    os.chown(path, 12345, -1)
    refuse(path, "belongs to user 12345, expected user 0")


# ---------------------------------------------------------------- the files of a run

CARD = Card(
    run_id="ab",
    session_id="cd",
    mode="ckpt",
    host="node1",
    process={"pid": 1, "start": 5},
    started="2026-01-01",
    versions={"torch": "2"},
    device="npu",
    world_size=16,
    strategy="megatron",
    start=Start(3, 4, 3, "cd"),
    others_before=1,
    config={"a": {"b": [1, None, "\u4e2d"]}},
)


@pytest.fixture
def run(tmp_path):
    return RunNames(tmp_path)


def test_each_file_of_a_run_comes_back(run):
    progress = Progress("training", 5, 6, 5, {"rollout": 6}, {"ckpt": 5}, 40, True, 1.5)
    end = End(EndState.FAILED, "RuntimeError", "line 1\nline 2", 5, "training", 2.5)
    assert (run_files.read_progress(run), run_files.read_end(run), run_files.read_facts(run)) == (None, None, None)
    run_files.write_card(run, CARD)
    run_files.write_progress(run, progress)
    run_files.write_facts(run, {"data": {"rows": 3}})
    assert run_files.write_end(run, end)
    assert not run_files.write_end(run, End(EndState.FINISHED))
    assert (run_files.read_card(run), run_files.read_progress(run), run_files.read_end(run)) == (CARD, progress, end)
    assert run_files.read_facts(run) == {"data": {"rows": 3}}
    assert sorted(path.name for path in run.folder.iterdir()) == [
        "card.json",
        "end.json",
        "facts.json",
        "progress.json",
    ]


def damaged(path, change):
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("name", "read_file", "change"),
    [
        ("card", run_files.read_card, lambda d: d.update(mode="both")),
        ("card", run_files.read_card, lambda d: d["start"].pop("calls")),
        ("card", run_files.read_card, lambda d: d["start"].update(global_step="3")),
        ("card", run_files.read_card, lambda d: d.update(world_size=None)),
        ("card", run_files.read_card, lambda d: d.pop("config")),
        ("progress", run_files.read_progress, lambda d: d["taken"].update(ckpt="all")),
        ("progress", run_files.read_progress, lambda d: d.update(phase=None)),
        ("end", run_files.read_end, lambda d: d.update(state="exploded")),
        ("facts", run_files.read_facts, lambda d: d.update(facts=[])),
    ],
)
def test_a_damaged_file_of_a_run_is_refused_with_its_path(run, name, read_file, change):
    run_files.write_card(run, CARD)
    run_files.write_progress(run, Progress("training", taken={"ckpt": 1}))
    run_files.write_end(run, End(EndState.FINISHED))
    run_files.write_facts(run, {})
    path = getattr(run, name)
    damaged(path, change)
    with pytest.raises(DamagedError) as caught:
        read_file(run)
    assert str(path) in str(caught.value)


def test_an_error_is_told_in_full_or_by_both_ends():
    assert End.of(None) == End(EndState.FINISHED)
    assert End.of(SystemExit(143)) == End(EndState.INTERRUPTED, "SystemExit", "143")
    assert End.of(KeyboardInterrupt()).message == "stopped by a signal"
    long = End.of(ValueError("a" * 9000 + "the end"))
    assert len(long.message) < 4100
    assert long.message.endswith("the end")

    class Wrapped(Exception):
        cause = RuntimeError("CUDA out of memory")

    assert End.of(Wrapped("a page of traceback")) == End(EndState.FAILED, "RuntimeError", "CUDA out of memory")
