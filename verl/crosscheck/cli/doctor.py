# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck doctor`: whether two runs can exchange files in a directory, as seen from this host."""

from __future__ import annotations

import logging
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from verl.crosscheck.cli.terminal import (
    ATTENTION,
    console,
    data,
    ended_by_signals,
    expanded,
    print_json,
    reported,
)
from verl.crosscheck.clock import SystemClock
from verl.crosscheck.exchange import directory
from verl.crosscheck.exchange.layout import Layout
from verl.crosscheck.inspection import doctor_notes
from verl.crosscheck.inspection.doctor import DoctorReport, all_checks
from verl.crosscheck.inspection.doctor_checks import Check, CheckContext, CheckResult, file_clock_s, scratch
from verl.crosscheck.inspection.doctor_notes import Found, Note
from verl.crosscheck.inspection.estimate import CHECKPOINT_BYTES, PORTABLE_BYTES, Estimate, estimate, parameters_of
from verl.crosscheck.inspection.mounts import mount_of
from verl.crosscheck.text import count, duration

_STYLES = {CheckResult.OK: "green", CheckResult.WARNING: "yellow", CheckResult.FAILED: "bold red"}
_NARROW = 100
"""Columns of a terminal below which advice stands under what was found."""


@click.command()
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--model",
    metavar="PATH",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of the model.",
)
@click.option(
    "--parameters", metavar="N", type=click.FloatRange(min=1), help="Number of its parameters instead, such as 7e9."
)
@click.option(
    "--keep",
    metavar="N",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="trainer.share_data_keep_ckpts.",
)
@click.option("--portable", is_flag=True, help="Count checkpoints as portable ones: 4 bytes a parameter, not 12.")
@click.option("--keep-all", is_flag=True, help="As trainer.share_data_keep_ckpts=null; needs --steps.")
@click.option(
    "--steps", metavar="N", type=click.IntRange(min=0), default=0, help="Steps of the run, to count rollouts for."
)
@click.option(
    "--rows", metavar="N", type=click.IntRange(min=0), default=0, help="Rows of a rollout: prompts x responses to each."
)
@click.option(
    "--tokens", metavar="N", type=click.IntRange(min=0), default=0, help="Tokens of a row, prompt and response."
)
@click.option(
    "--megabytes",
    metavar="N",
    type=click.IntRange(min=1),
    default=64,
    show_default=True,
    help="Written and read for throughput.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reported
def doctor(
    directory: Path,
    model: Path | None,
    parameters: float | None,
    keep: int,
    portable: bool,
    keep_all: bool,
    steps: int,
    rows: int,
    tokens: int,
    megabytes: int,
    as_json: bool,
) -> None:
    """Try out whether two runs can meet in DIR, from this host.

    Makes DIR if it is not there, works in a scratch folder that no run looks at and removes it, and leaves a note for
    the doctors of other hosts in DIR/doctor. Harmless while runs use DIR. Run it on both hosts, then again on the first
    one: then each has seen the other's note. Once two runs have met in DIR, it also says in which form they exchange
    checkpoints, and whether their updates can be compared.

    With --model or --parameters, the free space is held against what checkpoints need: 12 bytes a parameter (float32
    weights and Adam's two moments, as upstream's FSDP saves them), times those kept and one being written. With
    --steps, --rows and --tokens, rollouts are added, at 11 bytes a token.

    Exit status: 0 it will do, maybe with warnings; 1 a check failed; 2 wrong usage, or DIR cannot be used at all.
    """
    if model and parameters:
        raise click.UsageError("--model and --parameters say the same: give one of them.")
    if keep_all and not steps:
        raise click.UsageError("--keep-all needs --steps: how many checkpoints will there be?")
    wanted = None
    if model or parameters:
        size, source = parameters_of(model) if model else (int(parameters or 0), "--parameters")
        wanted = estimate(
            size,
            source,
            keep=None if keep_all else keep,
            steps=steps,
            rows=rows,
            tokens=tokens,
            bytes_each=PORTABLE_BYTES if portable else CHECKPOINT_BYTES,
        )
    with ended_by_signals():
        found = _examine(Path(expanded(directory)), megabytes * 1_000_000, wanted, None if as_json else console())
    if as_json:
        print_json(found)
    if found.result is CheckResult.FAILED:
        raise SystemExit(ATTENTION)


def _examine(path: Path, size_bytes: int, wanted: Estimate | None, out: Console | None) -> DoctorReport:
    """Make all checks, show each result at once, and leave this host's note."""
    host, checks = socket.gethostname(), []
    with _warnings() as warnings:
        root = directory.open_directory(path, key="trainer.share_data_dir")
    places, mount = Layout(root), mount_of(root)
    if out:
        out.print(data(f"{root} from host {host}", "bold"))
        out.print()
    with scratch(places) as folder:
        for check in all_checks(root, warnings, mount, CheckContext(folder, SystemClock(), size_bytes), wanted):
            checks.append(check)
            if out:
                out.print(_line(check, out.width))
        notes = tuple(doctor_notes.read_notes(places, host, file_clock_s(folder)))
    kind = f"{mount.kind} from {mount.source}" if mount else "not known"
    seen = {each.note.host: each.note.visit for each in notes if each.note}
    told = time.strftime("%Y-%m-%d %H:%M:%S %z")
    doctor_notes.leave_note(places, Note(host, secrets.token_hex(8), told, kind, seen))
    worst = max((check.result for check in checks), key=list(CheckResult).index)
    found = DoctorReport(str(root), host, worst, tuple(checks), mount, wanted, notes)
    if out:
        _show_notes(out, found)
        out.print()
        out.print(_conclusion(found), style=_STYLES[worst])
    return found


def _line(check: Check, width: int) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=7)
    line.add_column(width=18)
    line.add_column(overflow="fold", ratio=1)
    line.add_row(data(check.result.value, _STYLES[check.result]), check.name, data(check.found))
    if check.advice:
        line.add_row("", "", data(check.advice, "dim" if check.result is CheckResult.OK else ""))
    return line


def _show_notes(out: Console, found: DoctorReport) -> None:
    out.print()
    if not found.notes:
        out.print("No other host has left a note in this directory yet. Run this command there as well.")
    for each in found.notes:
        out.print(_note(each))


def _note(found: Found) -> Table:
    note = found.note
    if note is None:
        text = f"{found.name}: cannot be used: {found.problem}"
    else:
        text = (
            f"{note.host} was here {duration(found.age_s)} ago, as user {found.owner}, and sees {note.file_system}: "
            "what it writes, this host reads. "
        )
        text += {
            True: "It has seen this host's last note as well, so both directions work.",
            False: "It has not seen this host's last note: run this command there again.",
            None: "Run this command there once more, to see that it reads this host's note.",
        }[found.sees_this_host]
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=7)
    line.add_column(overflow="fold", ratio=1)
    line.add_row(data("note", "green" if found.sees_this_host else "cyan"), data(text))
    return line


def _conclusion(found: DoctorReport) -> str:
    number = {each: sum(check.result is each for check in found.checks) for each in CheckResult}
    failed, warned = number[CheckResult.FAILED], number[CheckResult.WARNING]
    if failed:
        return f"{count(failed, 'check')} failed: two runs cannot rely on this directory."
    here = found.mount is not None and found.mount.is_local and not found.notes
    for_whom = " by runs of this host alone" if here else ""
    with_what = f", with {count(warned, 'warning')}" if warned else ""
    return f"Usable{for_whom}{with_what}."


@contextmanager
def _warnings() -> Iterator[list[str]]:
    """Yield a list that collects the warnings of the block, which are then not logged."""
    lines: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(record.getMessage())

    logger, handler = logging.getLogger(directory.__name__), Handler()
    propagate = logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
