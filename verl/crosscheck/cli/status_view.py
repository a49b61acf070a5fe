# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Turn the facts of `verl-crosscheck status` into lines and tables. Reads no files."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from verl.crosscheck.cli.terminal import data
from verl.crosscheck.console import printable
from verl.crosscheck.exchange.layout import ArtefactKind
from verl.crosscheck.inspection.directory_contents import DirectoryContents
from verl.crosscheck.inspection.run_state import RunState, StateSource, WatchedRun
from verl.crosscheck.inspection.status import Agreement, DifferingSetting, Status
from verl.crosscheck.text import count, data_size, duration

STYLES = {
    RunState.NO_RUN: "dim",
    RunState.STARTING: "cyan",
    RunState.RUNNING: "green",
    RunState.FINISHED: "green",
    RunState.FAILED: "bold red",
    RunState.INTERRUPTED: "bold yellow",
    RunState.DIED: "bold red",
    RunState.SILENT: "bold red",
    RunState.UNREADABLE: "bold red",
}
_EVIDENCE = {
    StateSource.WATCHED: "seen to change",
    StateSource.FILE_TIMES: "by file times against this host's clock",
}
_SHOWN = 5
"""Settings shown of a list that may be long; --json has all."""


def view(status: Status) -> RenderableType:
    """Return the whole page."""
    return Group(*_parts(status))


def _parts(status: Status) -> Iterator[RenderableType]:
    session = f"session {status.session.number} of " if status.session else ""
    yield Text.assemble((session, "dim"), data(status.directory, "dim"), overflow="fold")
    yield data(status.summary, "bold red" if status.attention else "bold")
    yield Text()
    if status.session is not None:
        yield _runs(status)
        yield from _messages(status.runs)
        yield from _agreement(status.agreement)
    yield from _contents(status.contents)


def _runs(status: Status) -> RenderableType:
    table = _table()
    for run in status.runs:
        table.add_column(f"{run.mode} run", overflow="fold", ratio=1)
    rows: list[tuple[str, list[RenderableType]]] = [
        ("state", [Text(run.state.words, STYLES[run.state]) for run in status.runs]),
        ("", [_restarts(run) for run in status.runs]),
        ("doing", [doing(run) for run in status.runs]),
        ("step", [step(run) for run in status.runs]),
        ("last sign of life", [_last_sign(run) for run in status.runs]),
        ("published", [data(_counts(run.published)) for run in status.runs]),
        ("taken", [data(_counts(run.taken)) for run in status.runs]),
        ("host", [data(run.host) for run in status.runs]),
        ("pid", [data("" if run.pid is None else run.pid) for run in status.runs]),
        ("started", [data(run.started) for run in status.runs]),
        ("device", [_device(run) for run in status.runs]),
        ("run", [data(run.run_id) for run in status.runs]),
        *_versions(status),
    ]
    for title, cells in rows:
        if any(str(cell) for cell in cells):
            table.add_row(data(title, "dim"), *cells)
    return table


def _versions(status: Status) -> Iterator[tuple[str, list[RenderableType]]]:
    same = {name: value for run in status.runs for name, value in run.versions.items()}
    for name in same:
        if name in status.version_differences:
            values = status.version_differences[name]
            yield f"{name}, differs", [data(values.get(run.mode) or "not there", "yellow") for run in status.runs]
        elif name in ("verl-crosscheck", "torch"):
            yield name, [data(run.versions.get(name, "")) for run in status.runs]


def _restarts(run: WatchedRun) -> Text:
    parts = []
    if run.number is not None and run.number > 1:
        parts.append(f"restarted {'once' if run.number == 2 else f'{run.number - 1} times'}")
    if run.after_step:
        parts.append(f"resumed after step {run.after_step}")
    return Text(", ".join(parts))


def doing(run: WatchedRun) -> Text:
    """Return what a run does, or did when it ended."""
    if not run.phase or run.state is RunState.FINISHED:
        return Text()
    if not run.state.lives:
        return data(f"was {run.phase}")
    so_far = "" if run.phase_s is None else f" ({duration(run.phase_s)})"
    return data(f"{run.phase}{so_far}")


def step(run: WatchedRun) -> Text:
    """Return which step a run is in, and of how many."""
    if run.global_step is None:
        return Text()
    return Text(f"{run.global_step}{f' of {run.total_steps}' if run.total_steps else ''}")


def _last_sign(run: WatchedRun) -> Text:
    if run.evidence is StateSource.NOTHING:
        return Text()
    if run.last_sign_s is None:
        return Text("file times lie ahead of this host's clock", "yellow", overflow="fold")
    ago = f"{duration(run.last_sign_s)} ago"
    basis = _EVIDENCE.get(run.evidence)
    return Text.assemble(ago, (f", {basis}" if basis else "", "dim"), overflow="fold")


def _counts(counts: Any) -> str:
    names = {ArtefactKind.CKPT: "checkpoint"}
    return ", ".join(count(number, names.get(kind, kind)) for kind, number in counts.items())


def _device(run: WatchedRun) -> Text:
    return data("" if run.world_size is None else f"{run.world_size} x {run.device}, {run.strategy}")


def _messages(runs: Iterable[WatchedRun]) -> Iterator[RenderableType]:
    for run in runs:
        text = run.problem or ("" if "\n" not in run.message.strip() else f"{run.error}: {run.message.strip()}")
        if text:  # a message of one line stands in the summary
            yield Text()
            yield Rule(f"{run.mode} run", align="left", style="red", characters="-")
            yield Padding(data(text), (0, 0, 0, 1))


def _agreement(agreement: Agreement | None) -> Iterator[RenderableType]:
    if agreement is None:
        return
    yield Text()
    wrong, allowed, unknown = agreement.must_agree, agreement.may_differ, agreement.not_compared
    if wrong:
        yield Text(f"{count(len(wrong), 'setting')} must agree and {_does(len(wrong))}:", "bold red")
        yield _settings(wrong)
    else:
        known = "" if agreement.facts_compared else " Model, tokenizer and data are not compared yet."
        yield Text(f"Everything compared that must agree does.{known}", "green")
    if allowed:
        keys = [each.key for each in allowed]
        yield _listed(f"{count(len(allowed), 'setting')} {_differs(len(allowed))} and may", keys, "dim")
    if unknown:
        yield _listed(f"{count(len(unknown), 'value')} not compared", list(unknown), "dim")


def _settings(settings: tuple[DifferingSetting, ...]) -> RenderableType:
    table = _table("setting")
    table.add_column("ckpt run", overflow="fold")
    table.add_column("rollout run", overflow="fold")
    for each in settings[:_SHOWN]:
        table.add_row(data(each.key), data(_value(each.ckpt)), data(_value(each.rollout)))
    if len(settings) > _SHOWN:
        table.add_row(Text(f"and {len(settings) - _SHOWN} more: --json has all", "dim"))
    return table


def _value(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _listed(title: str, keys: list[str], style: str) -> Text:
    more = f" and {len(keys) - _SHOWN} more (--json has all)" if len(keys) > _SHOWN else ""
    return data(f"{title}: {', '.join(keys[:_SHOWN])}{more}.", style)


def _does(number: int) -> str:
    return "does not" if number == 1 else "do not"


def _differs(number: int) -> str:
    return "differs" if number == 1 else "differ"


def _contents(found: DirectoryContents) -> Iterator[RenderableType]:
    table = _table()
    table.add_column("what", overflow="fold", ratio=1)
    table.add_column("size", justify="right", no_wrap=True)
    table.show_header = False
    if found.rollouts:
        table.add_row(Text("rollouts", "dim"), _span(found), data_size(found.rollouts_bytes))
    for kept in found.checkpoints:
        note = "" if kept.complete else ", not complete"
        table.add_row(Text("checkpoint", "dim"), f"ckpt_{kept.index}{note}", data_size(kept.size_bytes))
    for kind in found.of_earlier_session:
        table.add_row("", Text(f"the {kind}s there are an earlier session's, put aside when that run starts", "yellow"))
    for each in found.earlier:
        table.add_row(Text("earlier session", "dim"), data(each.path), data_size(each.size_bytes))
    for each in found.staged:
        table.add_row(Text("in preparation", "dim"), data(each.path), data_size(each.size_bytes))
    if found.other:
        table.add_row(Text("other names", "dim"), data(", ".join(found.other[:_SHOWN])))
    if found.free_bytes is not None:
        table.add_row(Text("free space", "dim"), "", data_size(found.free_bytes))
    yield Text()
    yield table
    if found.pace is not None:
        pace = found.pace
        yield Text()
        yield Text.assemble(
            (f"{_rate(pace.steps_per_hour)} steps an hour", "bold"),
            (f", over {count(pace.steps, 'step')}, by the file times of {pace.first} and {pace.last}", "dim"),
        )


def _span(found: DirectoryContents) -> str:
    first, last = f"rollout_{found.first_rollout}", f"rollout_{found.last_rollout}"
    return first if first == last else f"{found.rollouts}: {first} to {last}"


def _rate(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.1f}"


def _table(first: str = "") -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", expand=False)
    table.add_column(printable(first), no_wrap=not first, overflow="fold")
    return table
