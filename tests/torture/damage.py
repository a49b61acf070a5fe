# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Damages every kind of file of the exchange in every way that fits it: each must be refused with words.

An error must be of the cross-check's tree, name the file, and survive pickling; a parser's traceback, a hang, or a
damaged file that is taken are what this looks for.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from torture import toy
from torture.fake_run import Disturbance, FakeEngine, RunPlan, prompts
from torture.toy import Course
from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import CrossCheckError
from verl.crosscheck.exchange.documents import MAX_SIZE_BYTES, Document
from verl.crosscheck.exchange.layout import CHECKPOINT_MARK, MANIFEST, SESSION, RunNames
from verl.crosscheck.exchange.manifest import Manifest, read_checked
from verl.crosscheck.exchange.publish import publish_document, publish_folder
from verl.crosscheck.exchange.session import claim, run_files
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Progress, Start
from verl.crosscheck.run import resuming
from verl.crosscheck.run.acceptance import require_same_update
from verl.crosscheck.run.indexing import CallIndex
from verl.crosscheck.run.resuming import CheckpointMark
from verl.crosscheck.settings import ShareMode
from verl.utils.share_data import ShareDataTest

PATIENCE_S = 5
OTHER_USER = 12345
VALUES: tuple[Any, ...] = (None, True, -3, 1.5, "x", [], {})
"""One of each type that JSON has."""
LENGTHS = 40
"""At so many lengths, evenly spread, is each file cut off."""

Damage = Callable[[Path], object]


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Args:
        path: a good one.
        read: reads it as a run would, and raises if it is not as it should be.
        named: what the error must name.
        document: its type; None if it is no JSON.
        more: damages that only this kind can have, by name.
    """

    name: str
    path: Path
    read: Callable[[], object]
    named: Path
    document: type[Document] | None = None
    more: Mapping[str, Damage] = field(default_factory=dict)


def kinds(folder: Path) -> list[Kind]:
    """One good file of each kind, below `folder`.

    Records are damaged in a run alone (`_in_a_run`); read by themselves, `test_record_damage_on_cpu` damages them.
    """
    return [*_run_files(folder / "runs" / "ckpt_1"), _session(folder / "session_1"), _mark(folder), *_artefacts(folder)]


# ---------------------------------------------------------------- good files


def _run_files(folder: Path) -> list[Kind]:
    folder.mkdir(parents=True)
    names = RunNames(folder)
    start = Start(2, 3, 2, "s" * 16)
    card = Card(
        "r" * 16,
        "s" * 16,
        ShareMode.CKPT,
        "host",
        {"pid": 1},
        "now",
        {"verl": "0.7.1"},
        "cpu",
        2,
        "fsdp2",
        start,
        0,
        {"a": 1},
    )
    run_files.write_card(names, card)
    run_files.write_facts(names, {"model": {"layers": 2}})
    run_files.write_progress(names, Progress("training", 3, 3, 2, {"rollout": 3}, {"ckpt": 2}, 7, True, 1.5))
    run_files.write_end(names, End(EndState.FAILED, "ValueError", "boom", 3, "training", 1.5))
    return [
        Kind("card", names.card, lambda: run_files.read_card(names), names.card, Card, _card_damages()),
        Kind("facts", names.facts, lambda: run_files.read_facts(names), names.facts, run_files.Facts),
        Kind(
            "progress",
            names.progress,
            lambda: run_files.read_progress(names),
            names.progress,
            Progress,
            _counts_damages(),
        ),
        Kind(
            "end",
            names.end,
            lambda: run_files.read_end(names),
            names.end,
            End,
            {"unknown state": changed(state="asleep")},
        ),
    ]


def _session(folder: Path) -> Kind:
    folder.mkdir()
    publish_document(folder / SESSION, claim.SessionFile("s" * 16, 1, 0), replace=False)
    more = {"number below 1": changed(number=0), "number below 0": changed(number=-1), "step": changed(base_step=-1)}
    path = folder / SESSION
    return Kind("session", path, lambda: claim.read_session(folder), path, claim.SessionFile, more)


def _mark(folder: Path) -> Kind:
    own = folder / "own"
    plan = RunPlan("ckpt", folder / "exchange", own, Course(4))
    checkpoint = own / "global_step_2"
    resuming.mark_checkpoint(checkpoint, "s" * 16, 3, 2)
    (own / "latest_checkpointed_iteration.txt").write_text("2")
    path, config = checkpoint / CHECKPOINT_MARK, plan.config()
    more = {"calls below 0": changed(calls=-1), "updates below 0": changed(updates=-1)}
    return Kind("mark", path, lambda: resuming.start_of(config), path, CheckpointMark, more)


def _artefacts(folder: Path) -> list[Kind]:
    about = {"kind": "ckpt", "index": 0, "global_step": 1, "device": "cpu"}
    ckpt = folder / "ckpt_0"
    publish_folder(ckpt, lambda stage: toy.write_checkpoint(stage, "f" * 32, lambda op, path: None), about)

    def read_ckpt() -> None:
        require_same_update(ckpt, about, read_checked(ckpt).about, strict=True)

    shard = ckpt / toy.shard_names()[0]
    return [
        Kind("manifest", ckpt / MANIFEST, read_ckpt, ckpt, Manifest, _manifest_damages()),
        Kind("checkpoint file", shard, read_ckpt, ckpt, more=_shard_damages()),
    ]


# ---------------------------------------------------------------- damages


def damages(kind: Kind, lengths: int = LENGTHS) -> Iterator[tuple[str, Damage]]:
    """All damages that fit a kind of file, by name."""
    content = kind.path.read_bytes()
    end = len(content) - (2 if kind.document else 0)  # without its last line break JSON is as good as before
    for length in sorted({0, 1, end - 1, *range(0, end, max(1, end // lengths))}):
        yield f"cut off at {length}", written(content[:length])
    yield "a folder", _as_folder
    yield "a pipe", _as_pipe
    yield "a link to a good one", _as_link
    yield "a link to nowhere", _as_broken_link
    if os.geteuid() == 0:
        yield "of another user", lambda path: os.chown(path, OTHER_USER, -1)
    if kind.document:
        yield from _json_damages(kind.document, json.loads(content))
    yield from kind.more.items()


def _json_damages(kind: type[Document], document: dict[str, Any]) -> Iterator[tuple[str, Damage]]:
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    fields = {each.encode_name: _types(each.type) for each in info.fields}
    for version in (0, 2, "1", 1.0, True, None):
        yield f"schema version {version!r}", changed(schema_version=version)
    for schema in ("verl-crosscheck/other", "", None, 3):
        yield f"schema {schema!r}", changed(schema=schema)
    for name in ("schema", "schema_version", *fields):
        yield f"without {name}", without(name)
    for name, types in fields.items():
        yield f"{name} twice", _twice(name)
        for value in VALUES:
            if type(value) not in types:
                yield f"{name} is {value!r}", changed(**{name: value})
        for value in _texts(types):
            yield f"{name} is {value:.20}", _text(document, name, value)
    for label, content in _contents(json.dumps(document)).items():
        yield label, written(content)


def _types(kind: msgspec.inspect.Type) -> tuple[type, ...]:
    """The types of Python that a field's value may have after parsing."""
    if isinstance(kind, msgspec.inspect.UnionType):
        return tuple(found for each in kind.types for found in _types(each))
    return _PARSED[type(kind)]


_PARSED: dict[type[msgspec.inspect.Type], tuple[type, ...]] = {
    msgspec.inspect.IntType: (int,),
    msgspec.inspect.FloatType: (float, int),
    msgspec.inspect.BoolType: (bool,),
    msgspec.inspect.StrType: (str,),
    msgspec.inspect.EnumType: (str,),
    msgspec.inspect.DictType: (dict,),
    msgspec.inspect.StructType: (dict,),
    msgspec.inspect.NoneType: (type(None),),
}


def _texts(types: tuple[type, ...]) -> list[str]:
    """JSON, or what Python takes for it, that a field of these types must not hold."""
    found = []
    if int in types:
        found += ["-1", str(2**70), "1" + "0" * 5000]
    if str in types:
        found += ['"\\ud800"']
    for number in ("NaN", "Infinity", "-Infinity", "1e999"):
        found += [number] if float in types else [f'{{"x": {number}}}'] if dict in types else []
    return found


def _contents(text: str) -> dict[str, bytes]:
    """What whole files may be instead of the JSON that they should be."""
    return {
        "not UTF-8": text.replace("verl", "v\udcffrl").encode("utf-8", "surrogateescape"),
        "UTF-16": text.encode("utf-16"),
        "a list": f"[{text}]".encode(),
        "a number": b"1",
        "zeros": bytes(4096),
        "deep": b"[" * 200_000 + b"]" * 200_000,
        "deep inside": f'{text[:-1]}, "more": {"[" * 700}{"]" * 700}}}'.encode(),
        "more after it": text.encode() + b"{}",
        "huge": text.encode() + b" " * MAX_SIZE_BYTES,
    }


NO_COUNTS: tuple[Any, ...] = (None, True, "1", 1.5, [])
NO_TEXTS: tuple[Any, ...] = (1, True, [], {})


def _set(name: str, value: Any, document: dict[str, Any]) -> None:
    document[name] = value


def _card_damages() -> dict[str, Damage]:
    def start(**changes: Any) -> Damage:
        return lambda path: _edit(path, lambda data: data["start"].update(changes))

    found = {f"start without {name}": _nested("start", name) for name in ("global_step", "calls", "updates", "session")}
    found["unknown mode"] = changed(mode="both")
    for name in ("global_step", "calls", "updates"):
        found |= {f"start.{name} is {value!r}": start(**{name: value}) for value in (*NO_COUNTS, -1)}
    return found | {f"start.session is {value!r}": start(session=value) for value in NO_TEXTS}


def _counts_damages() -> dict[str, Damage]:
    return {
        f"{name} counts {value!r}": changed(**{name: {"ckpt": value}})
        for name in ("published", "taken")
        for value in (*NO_COUNTS, {}, -1)
    }


def _record_damages(record: Path) -> dict[str, Damage]:
    content = record.read_bytes()

    def flipped(at: int) -> Damage:
        return written(content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :])

    found = {f"bit flipped in byte {at}": flipped(at) for at in range(0, len(content), 7)}
    found["bytes appended"] = written(content + b"\0")
    found["a pickle"] = written(pickle.dumps({"a": 1}))
    found["zeros"] = written(bytes(len(content)))
    found["header beyond the file"] = written(b"\xff" * 8 + content[8:])
    found["another version"] = written(content.replace(b"record/1", b"record/2", 1))
    return found


def _manifest_damages() -> dict[str, Damage]:
    def files(change: Callable[[dict[str, Any]], object]) -> Damage:
        return lambda path: _edit(path, lambda data: change(data["files"]))

    first = toy.shard_names()[0]
    found = {f"size {value!r}": files(partial(_set, first, value)) for value in (*VALUES, 0, 2**70)}
    for name in (
        "/etc/passwd",
        "../x",
        "a/../../x",
        "",
        ".",
        "a\0b",
        "missing.pt",
        "huggingface",
        "./" + first,
        "a//b",
    ):
        found[f"lists {name!r}"] = files(partial(_set, name, 3))
    found["lists nothing"] = changed(files={})
    found["does not list a file"] = files(lambda f: f.pop(first))
    found["of another update"] = lambda path: _edit(path, lambda data: data["about"].update(index=1))
    found["says nothing"] = changed(about={})
    found["of a mark"] = changed(schema=CheckpointMark.SCHEMA)
    return found


def _shard_damages() -> dict[str, Damage]:
    return {
        "gone": lambda path: path.unlink(),
        "longer": lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        "beside another one": lambda path: (path.parent / "more.pt").write_bytes(b"x"),
        "in a folder for all": lambda path: path.parent.chmod(0o777),
        "beside a pipe": lambda path: os.mkfifo(path.parent / "pipe"),
        "beside a link": lambda path: (path.parent / "link").symlink_to("/etc"),
        "in a folder that is a link": _through_a_link,
    }


def written(content: bytes) -> Damage:
    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


def changed(**values: Any) -> Damage:
    return lambda path: _edit(path, lambda data: data.update(values))


def without(name: str) -> Damage:
    return lambda path: _edit(path, lambda data: data.pop(name))


def _nested(outer: str, name: str) -> Damage:
    return lambda path: _edit(path, lambda data: data[outer].pop(name))


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    data = json.loads(path.read_bytes())
    change(data)
    path.write_text(json.dumps(data))


def _text(document: dict[str, Any], name: str, text: str) -> Damage:
    """Puts JSON text, which no document of Python's would give, in the place of a field's value."""
    whole = json.dumps({**document, name: "@"}).replace('"@"', text)
    return lambda path: path.write_text(whole)


def _twice(name: str) -> Damage:
    def damage(path: Path) -> None:
        data = json.loads(path.read_bytes())
        path.write_text(f"{json.dumps(data)[:-1]}, {json.dumps(name)}: {json.dumps(data[name])}}}")

    return damage


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _as_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def _as_broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def _through_a_link(path: Path) -> None:
    inner = path.parent / "huggingface"
    inner.rename(path.parent.parent / "huggingface")
    inner.symlink_to(path.parent.parent / "huggingface")


# ---------------------------------------------------------------- the judgement


def judge(read: Callable[[], object], named: Path) -> str:
    """What is wrong with how a damaged file is met; empty if it is refused as it should be."""
    try:
        with _patience():
            read()
    except CrossCheckError as e:
        again = pickle.loads(pickle.dumps(e))
        if (type(again), str(again)) != (type(e), str(e)):
            return f"the error does not survive pickling: {e!r}"
        return "" if str(named) in str(e) else f"the error does not name {named}: {e}"
    except BaseException as e:
        return f"raised {type(e).__name__}: {e}"
    return "was taken"


@contextmanager
def _patience() -> Iterator[None]:
    def late(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def run_damages(scratch: Path, lengths: int = LENGTHS) -> dict[str, Any]:
    """Damages everything, and counts."""
    good = scratch / "good"
    good.mkdir()
    found: dict[str, dict[str, int]] = {}
    problems = []
    for number, kind in enumerate(kinds(good)):
        if wrong := judge_good(kind):
            problems.append(f"{kind.name}, undamaged: {wrong}")
        counts = found.setdefault(kind.name, {"damaged_inputs": 0, "refused": 0})
        saved = scratch / f"saved_{number}"
        shutil.copytree(good, saved, symlinks=True)
        for label, damage in damages(kind, lengths):
            damage(kind.path)
            wrong = judge(kind.read, kind.named)
            counts["damaged_inputs"] += 1
            counts["refused"] += not wrong
            problems += [f"{kind.name}, {label}: {wrong}"] if wrong else []
            shutil.rmtree(good)
            shutil.copytree(saved, good, symlinks=True)
    found["record in a run"] = _in_a_run(scratch, problems)
    totals = {name: sum(each[name] for each in found.values()) for name in ("damaged_inputs", "refused")}
    return {**totals, "kinds": found, "problems": problems}


def judge_good(kind: Kind) -> str:
    """What is wrong with how an undamaged file is read; empty if nothing."""
    try:
        kind.read()
    except Exception as e:
        return f"raised {type(e).__name__}: {e}"
    return ""


def _in_a_run(scratch: Path, problems: list[str]) -> dict[str, int]:
    """Damages of a record, met by a run that waits for it and looks at it before it is due."""
    counts = {"damaged_inputs": 0, "refused": 0}
    root = scratch / "exchange"
    giver, taker = (_Side(root, mode, scratch / mode) for mode in ("ckpt", "rollout"))
    giver.generate()
    record = root / "rollout_0"
    content = record.read_bytes()
    name = Path(record.name)  # if it seems to be of another session, it is as if it were not there
    kind = Kind("record in a run", record, taker.generate, name, more=_record_damages(record))
    for label, damage in damages(kind):
        damage(record)
        wrong = judge(taker.generate, name)
        counts["damaged_inputs"] += 1
        counts["refused"] += not wrong
        problems += [f"{kind.name}, {label}: {wrong}"] if wrong else []
        _remove(record)
        record.write_bytes(content)
        record.chmod(0o600)
    if wrong := judge_good(kind):
        problems.append(f"{kind.name}, undamaged: {wrong}")
    return counts


class _Side:
    """A run in this process, of which each call is its first."""

    def __init__(self, root: Path, mode: str, own: Path) -> None:
        plan = RunPlan(mode, root, own, Course(4))
        self._share = ShareDataTest(plan.config(), ManualClock())
        self._engine = FakeEngine(toy.FIRST_WEIGHTS, Disturbance())
        self._share.wrap_generate_sequences(mode, self._engine)

    def generate(self) -> None:
        exchange: Any = self._share._exchange
        exchange.index = CallIndex(exchange.start)
        self._engine.generate_sequences(prompts(toy.questions(1, "training", 2), 1, "training"))


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    else:
        path.unlink()
    (path.parent.parent / "elsewhere").unlink(missing_ok=True)
