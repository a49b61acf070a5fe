# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck clean`: list what earlier sessions left, and delete it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from verl.crosscheck.cli.terminal import (
    ATTENTION,
    FolderArgument,
    console,
    data,
    ended_by_signals,
    print_json,
    reported,
)
from verl.crosscheck.clock import SystemClock
from verl.crosscheck.console import printable
from verl.crosscheck.errors import SessionError
from verl.crosscheck.exchange.directory import open_directory
from verl.crosscheck.inspection.clean_plan import CleanItem, CleanPlan, carry_out, plan, require_all_ended
from verl.crosscheck.text import count, data_size

SCHEMA = "verl-crosscheck/clean"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class CleanOutcome:
    """What `--json` prints.

    Args:
        done: whether anything was to be deleted, with --yes.
        deleted: paths that are gone.
        failed: reason by path of what could not be deleted.
    """

    plan: CleanPlan
    done: bool
    deleted: tuple[str, ...]
    failed: dict[str, str]
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


@click.command()
@click.argument("directory", metavar="DIR", type=FolderArgument())
@click.option("--all", "everything", is_flag=True, help="Also the current session, once its runs have ended.")
@click.option("--yes", is_flag=True, help="Delete. Without it nothing is changed.")
@click.option(
    "--silence",
    "silence_s",
    metavar="SECONDS",
    type=click.FloatRange(min=15),
    default=180,
    show_default=True,
    help="How long to watch a run of another host that has not reported its end.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def clean(directory: Path, everything: bool, yes: bool, silence_s: float, as_json: bool) -> None:
    """List what earlier sessions left in DIR, and delete it with --yes.

    Deleted are earlier sessions with their artefacts, artefacts of no session, and what was in preparation when its
    writer died; with --all everything that runs have written. Other names are left alone, links are not followed, and
    while a run of the current session lives nothing goes.

    Exit status: 0; 1 a run lives, or something could not be deleted; 2 wrong usage, or DIR is not of two runs.
    """
    root = open_directory(directory, key="DIR", write=False)
    made = plan(root, everything=everything)
    out = None if as_json else console()
    if out:
        _show(out, made)
    deleted: list[str] = []
    failed: dict[str, str] = {item.path: item.refused for item in made.items if item.refused}
    if yes and made.going:
        with ended_by_signals():
            failed |= _delete(made, silence_s, deleted)
    if as_json:
        print_json(CleanOutcome(made, yes, tuple(deleted), failed))
    elif out:
        _conclude(out, made, yes, deleted, failed, everything)
    if yes and failed:
        raise SystemExit(ATTENTION)


def _delete(made: CleanPlan, silence_s: float, deleted: list[str]) -> dict[str, str]:
    try:
        require_all_ended(Path(made.directory), silence_s, SystemClock(), lambda line: click.echo(line, err=True))
        failed = carry_out(made, lambda item: deleted.append(item.path))
    except SessionError as e:
        click.echo(f"Error: {printable(str(e))}", err=True)
        raise SystemExit(ATTENTION) from None
    return {item.path: reason for item, reason in failed}


def _show(out: Console, made: CleanPlan) -> None:
    out.print(data(made.directory, "bold"))
    if not made.items:
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("what", overflow="fold")
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for item in made.items:
        table.add_row(data(item.path), data_size(item.size_bytes), _why(item))
    out.print(table)


def _why(item: CleanItem) -> Text:
    if not item.refused:
        return data(item.why)
    return Text.assemble(data(item.why), ("; stays: ", "yellow"), data(item.refused, "yellow"))


def _conclude(
    out: Console, made: CleanPlan, yes: bool, deleted: list[str], failed: dict[str, str], everything: bool
) -> None:
    going = made.going
    total = data_size(sum(item.size_bytes for item in going))
    if not going:
        more = "" if everything else " --all takes the current session as well."
        out.print(data(f"Nothing to delete.{more}"))
    elif not yes:
        out.print(data(f"{count(len(going), 'item')}, {total}. Nothing was deleted: --yes does it."))
    else:
        out.print(data(f"Deleted {len(deleted)} of {count(len(going), 'item')}."))
    for path, reason in failed.items():
        if path not in {item.path for item in made.items if item.refused}:
            out.print(data(f"{path} could not be deleted: {reason}", "bold red"))
    if not yes:
        for each in made.living:
            out.print(data(f"Note: {each}, and nothing is deleted before it has ended.", "yellow"))
