# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck status`: show the state of both runs once, or every second."""

from __future__ import annotations

import time
from pathlib import Path

import click
from rich.live import Live

from verl.crosscheck.cli.status_view import view
from verl.crosscheck.cli.terminal import (
    ATTENTION,
    FolderArgument,
    console,
    ended_by_signals,
    print_json,
    reported,
)
from verl.crosscheck.clock import SystemClock
from verl.crosscheck.console import printable
from verl.crosscheck.inspection.run_state import FRESH_S, RunProbe
from verl.crosscheck.inspection.status import Observer
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S

REFRESH_EVERY_S = 1.0


@click.command()
@click.argument("directory", metavar="DIR", type=FolderArgument())
@click.option("--watch", is_flag=True, help="Look again every second, until Ctrl-C.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object; with --watch, one a line.")
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=HEARTBEAT_INTERVAL_S + 1,
    show_default=True,
    help=f"How long to look at a run of another host whose files were not written for {FRESH_S:.0f} s.",
)
@reported
def status(directory: Path, watch: bool, as_json: bool, wait_s: float) -> None:
    """Show what both runs do, and what lies in DIR.

    DIR may also be a session's folder, DIR/sessions/session_N. Exit status: 0 all is well; 1 a run failed, was
    interrupted, died, is silent or cannot be read; 2 wrong usage, or DIR cannot be read; 0 after Ctrl-C.
    """
    clock = SystemClock()
    observer = Observer(directory, clock, 0.0 if watch else wait_s, RunProbe(clock))
    if watch:
        with ended_by_signals():
            try:
                _watch(observer, as_json)
            except KeyboardInterrupt:
                return
    found = observer.look()
    if as_json:
        print_json(found)
    else:
        console().print(view(found))
    if found.attention:
        raise SystemExit(ATTENTION)


def _watch(observer: Observer, as_json: bool) -> None:
    out = console()
    if as_json:
        while True:
            print_json(observer.look(), indent=None)
            observer.clock.sleep(REFRESH_EVERY_S)
    if not out.is_terminal:
        _print_changes(observer)
    found = observer.look()
    try:
        with Live(view(found), console=out, auto_refresh=False, vertical_overflow="crop") as live:
            while True:
                observer.clock.sleep(REFRESH_EVERY_S)
                live.update(view(observer.look()), refresh=True)
    finally:
        out.show_cursor()  # Ctrl-C in the very moment of Live's beginning leaves it hidden


def _print_changes(observer: Observer) -> None:
    """Print a line whenever a run does something else; for a pipe or a file."""
    printed: tuple[object, ...] = ()
    while True:
        found = observer.look()
        doing = tuple((run.mode, run.number, run.state, run.phase, run.global_step) for run in found.runs)
        if doing != printed:
            printed = doing
            click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {printable(' '.join(found.summary.split()))}")
        observer.clock.sleep(REFRESH_EVERY_S)
