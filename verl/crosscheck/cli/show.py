# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck show`: what is inside one thing of an exchange directory."""

from __future__ import annotations

from pathlib import Path

import click

from verl.crosscheck.cli.show_view import checkpoint_view, record_view, run_view, session_view
from verl.crosscheck.cli.terminal import console, expanded, print_json, reported
from verl.crosscheck.errors import DirectoryError
from verl.crosscheck.inspection.session_facts import CheckpointFacts, RunFacts, folder_facts


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
