# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck show`: what is inside one thing of an exchange directory, as tables or JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from verl.crosscheck.cli.terminal import console, data, expanded, print_json, reported
from verl.crosscheck.errors import DirectoryError
from verl.crosscheck.inspection.session_facts import CheckpointFacts, RunFacts, SessionContent, folder_facts, grouped
from verl.crosscheck.text import count, data_size

if TYPE_CHECKING:
    from verl.crosscheck.inspection.record_facts import ColumnFacts, RecordFacts, Row

_PICKLES = (
    "The tensors lie in files of torch.save (*.pt), which are Python pickles: opening one runs whatever code is in it, "
    "so nothing in them is listed here."
)


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=0), default=3, show_default=True, help="Rows of a rollout to show."
)
@click.option("--tokenizer", metavar="PATH", help="Model folder whose tokenizer decodes prompts and responses.")
@click.option("--settings", is_flag=True, help="Print the whole configuration of a run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def show(path: Path, rows: int, tokenizer: str | None, settings: bool, as_json: bool) -> None:
    """Show what is inside a rollout, a checkpoint, or the folder of a run or a session.

    Nothing is executed: rollouts hold no code, and the pickles of a checkpoint are not opened. Nothing is downloaded.

    Exit status: 0; 2 for what is damaged, foreign or not there.
    """
    path = Path(expanded(path)).absolute()
    if not path.is_dir() or path.is_symlink():
        _show_record(path, rows, tokenizer, as_json)
        return
    facts = folder_facts(path)
    if as_json:
        print_json(facts)
        return
    out = console()
    if isinstance(facts, CheckpointFacts):
        out.print(*checkpoint_view(facts), sep="\n")
    elif isinstance(facts, RunFacts):
        out.print(*run_view(facts, settings), sep="\n")
    else:
        out.print(*session_view(facts), sep="\n")


def _show_record(path: Path, rows: int, tokenizer: str | None, as_json: bool) -> None:
    if not path.exists() and not path.is_symlink():
        raise DirectoryError(f"{path}: there is no such file")
    from verl.crosscheck.inspection import record_facts

    decode = record_facts.tokenizer(expanded(tokenizer)) if tokenizer else None
    facts = record_facts.record_facts(path, rows, decode)
    if as_json:
        print_json(facts)
    else:
        console().print(*record_view(facts), sep="\n")


def record_view(facts: RecordFacts) -> Iterator[RenderableType]:
    """Yield the parts of a rollout, or of another record."""
    yield _title(facts.path, data_size(facts.size_bytes))
    yield _pairs({**facts.about, **_some("distinct prompts", facts.distinct_prompts)})
    yield Text()
    yield _columns(facts.columns)
    if facts.lengths:
        yield Text()
        for each in facts.lengths:
            yield Text(
                f"{each.what} tokens: {each.shortest} to {each.longest}, {each.mean:.1f} on average, "
                f"padded to {each.width}"
            )
    if facts.meta:
        yield data(f"further values: {', '.join(facts.meta)}", "dim")
    for row in facts.rows:
        yield Text()
        yield from _row(row)


def checkpoint_view(facts: CheckpointFacts) -> Iterator[RenderableType]:
    """Yield a checkpoint's manifest and files."""
    yield _title(facts.path, data_size(facts.size_bytes))
    yield _pairs(facts.about)
    yield Text()
    table = _table("file", "size")
    table.columns[1].justify = "right"
    for group in grouped(facts.files):
        more = f" ({group.files} files)" if group.files > 1 else ""
        table.add_row(data(f"{group.name}{more}"), data_size(group.size_bytes))
    yield table
    yield Text()
    yield Text(_PICKLES, "dim")


def run_view(facts: RunFacts, settings: bool) -> Iterator[RenderableType]:
    """Yield what a run wrote of itself."""
    yield _title(facts.path, "a run")
    yield _pairs({name: _listed(value) if isinstance(value, dict) else value for name, value in facts.card.items()})
    for title, part in (("progress", facts.progress), ("end", facts.end)):
        yield Text()
        yield Text(title if part else f"{title}: not reported yet", "bold")
        if part:
            yield _pairs({name: _told(name, value) for name, value in part.items() if value not in ("", {}, None)})
    yield Text()
    if not settings:
        known = "" if facts.facts is None else f" and {count(len(facts.facts), 'group')} of facts"
        yield Text(f"{count(len(facts.settings), 'setting')}{known}: --settings prints them", "dim")
        return
    yield Text("settings", "bold")
    yield _pairs(facts.settings)
    if facts.facts is not None:
        yield Text()
        yield Text("facts", "bold")
        yield _pairs(facts.facts)


def session_view(facts: SessionContent) -> Iterator[RenderableType]:
    """Yield who took part in a session, and what was put aside into its folder."""
    yield _title(facts.path, f"session {facts.number}")
    yield _pairs(
        {
            "id": facts.id,
            "begins after step": facts.base_step,
            "runs": ", ".join(facts.runs),
            "rollouts put aside here": len(facts.rollouts),
            "checkpoints put aside here": ", ".join(f"ckpt_{index}" for index in facts.checkpoints) or 0,
        }
    )


def _columns(columns: tuple[ColumnFacts, ...]) -> Table:
    table = _table("column", "type", "shape", "values")
    table.columns[0].no_wrap = table.columns[1].no_wrap = table.columns[2].no_wrap = True
    for each in columns:
        if each.group == "echoed":
            table.add_row(data(each.name), Text("echoed", "dim"), "", Text("not in the file: the reader's own", "dim"))
        else:
            shape = " x ".join(map(str, each.shape)) or "one"
            kind = each.type if each.group == "tensor" else f"{each.type} (array)"
            table.add_row(data(each.name), data(kind), shape, data(each.values, "dim"))
    return table


def _row(row: Row) -> Iterator[RenderableType]:
    parts = [f"row {row.row}"]
    if row.prompt_tokens is not None:
        parts.append(f"{row.prompt_tokens} + {row.response_tokens} tokens")
    if row.score is not None:
        parts.append(f"score {row.score:.4g}")
    yield Text(", ".join(parts), "bold")
    if row.prompt is None:
        yield Padding(_said("asked", row.asked), (0, 0, 0, 1))
    else:
        yield Padding(_said("prompt", row.prompt), (0, 0, 0, 1))
        yield Padding(_said("response", row.response or ""), (0, 0, 0, 1))


def _said(who: str, text: str) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=8)
    line.add_column(overflow="fold")
    line.add_row(Text(who, "dim"), data(text))
    return line


def _title(path: str, what: str) -> Text:
    return Text.assemble(data(path, "bold"), (f"  {what}", "dim"), overflow="fold")


def _pairs(values: Mapping[str, Any]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=50)
    table.add_column(overflow="fold")
    for name, value in values.items():
        table.add_row(data(name, "dim"), data(value if isinstance(value, str) else json.dumps(value, default=str)))
    return table


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def _told(name: str, value: Any) -> Any:
    """Return a value of a run's report as text; the moment of the report as date and time."""
    if name == "told":
        with suppress(ValueError, OverflowError, OSError):
            return f"{datetime.fromtimestamp(value, timezone.utc):%Y-%m-%d %H:%M:%S} UTC, by its host's clock"
    return _listed(value) if isinstance(value, dict) else value


def _some(name: str, value: Any) -> dict[str, Any]:
    return {} if value is None else {name: value}


def _table(*titles: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in titles:
        table.add_column(title, overflow="fold")
    return table
