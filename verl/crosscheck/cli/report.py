# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck report`: the phase at fault, since which step. Imports what it needs when it runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from verl.crosscheck.cli.terminal import ATTENTION, FolderArgument, console, data, expanded, reported
from verl.crosscheck.console import printable
from verl.crosscheck.settings import ShareMode

if TYPE_CHECKING:
    from verl.crosscheck.report.model import Report
    from verl.crosscheck.report.texts.texts import Texts
    from verl.crosscheck.report.worst_rows import Decode

SCENARIO_OF = {ShareMode.CKPT.value: 1, ShareMode.ROLLOUT.value: 2}
"""By the mode of the suspect."""
STANDARD_OUTPUT = "-"


@click.command()
@click.argument("directory", metavar="DIR", type=FolderArgument())
@click.argument("second", metavar="[DIR2]", required=False, type=FolderArgument())
@click.option(
    "--control", metavar="DIR", type=FolderArgument(), help="Control run, B against B; thresholds follow its noise."
)
@click.option("-o", "--output", metavar="FILE", help="Write the page, one HTML file; - is standard output.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of the texts.")
@click.option("--tokenizer", metavar="PATH", help="Model folder whose tokenizer decodes the worst responses.")
@click.option("--limits", metavar="FILE", type=click.Path(path_type=Path), help="YAML or JSON with other thresholds.")
@click.option("--suspect", type=click.Choice(list(SCENARIO_OF)), help="Mode of the suspect in DIR.  [default: ckpt]")
@click.option("--scenario", type=click.Choice(["1", "2"]), help="The same in numbers: 2 if the suspect took rollouts.")
@click.option("--recompute", is_flag=True, help="Compare from the evidence, even where runs logged a comparison.")
@reported
def report(
    directory: Path,
    second: Path | None,
    control: Path | None,
    output: str | None,
    as_json: bool,
    lang: str,
    tokenizer: str | None,
    limits: Path | None,
    suspect: str | None,
    scenario: str | None,
    recompute: bool,
) -> None:
    """Report which phase of the suspect run A is at fault, since which step, and with which confidence.

    In DIR run A is the one in mode ckpt (scenario 1), in DIR2 the one in mode rollout (scenario 2). The verdict is
    printed, unless --json is given. Nothing is downloaded, and the page loads nothing.

    Exit status: 0 no fault found; 10 rollout; 11 training, forward pass; 12 training, update; 13 both; 14 inconclusive;
    15 run B, the reference; 16 reward or advantage; 1 the report could not be made; 2 wrong usage, or a
    directory that cannot be read.
    """
    from verl.crosscheck.report.as_json import exit_status
    from verl.crosscheck.report.load import ReportRequest, load_report
    from verl.crosscheck.report.texts import texts_of

    if as_json and output == STANDARD_OUTPUT:
        raise click.UsageError("--json and -o - both take standard output; give -o a file.")
    if directory in (second, control) or (second is not None and second == control):
        twice = directory if directory in (second, control) else second
        raise click.UsageError(f"{twice} is named twice: scenario 1, scenario 2 and control are pairs of their own.")
    first = _scenario(suspect, scenario)
    scenarios = {first: directory} if second is None else {first: directory, 3 - first: second}
    request = ReportRequest(
        scenarios=scenarios,
        control=control,
        limits=None if limits is None else Path(expanded(limits)),
        recompute=recompute,
        decode=None if tokenizer is None else _decoder(tokenizer),
        with_rows=output is not None,
    )
    found, texts = load_report(request), texts_of(lang)
    if output is not None:
        _write(found, texts, output)
    if as_json:
        from verl.crosscheck.report.as_json import report_json

        click.echo(json.dumps(report_json(found), ensure_ascii=True, allow_nan=False, indent=1))
    elif output != STANDARD_OUTPUT:
        _print(found, texts, output)
    raise SystemExit(exit_status(found.verdict))


def _scenario(suspect: str | None, scenario: str | None) -> int:
    by_mode = SCENARIO_OF[suspect] if suspect else None
    by_number = int(scenario) if scenario else None
    if by_mode and by_number and by_mode != by_number:
        raise click.UsageError(
            f"--suspect {suspect} is scenario {by_mode}, not {by_number}: in scenario 1 the suspect runs in mode ckpt, "
            "in scenario 2 in mode rollout. One of the two options is enough."
        )
    return by_mode or by_number or 1


def _decoder(path: str) -> Decode:
    from verl.crosscheck.inspection.record_facts import tokenizer

    return tokenizer(path)


def _print(found: Report, texts: Texts, output: str | None) -> None:
    from verl.crosscheck.report.text import Commands, text_view

    out = console()
    for part in text_view(found, texts):
        out.print(part, soft_wrap=isinstance(part, Commands))
    if output is not None:
        out.print()
        out.print(data(texts.label("page_written", path=output)))


def _write(found: Report, texts: Texts, output: str) -> None:
    """Write the page under a temporary name, then rename it: a page is complete or absent."""
    from verl.crosscheck.report.page import render

    page = render(found, texts)
    if output == STANDARD_OUTPUT:
        sys.stdout.buffer.write(page.encode("utf-8"))
        return
    path = Path(expanded(output))
    stage = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        stage.write_text(page, encoding="utf-8")
        stage.replace(path)
    except OSError as e:
        stage.unlink(missing_ok=True)
        click.echo(f"Error: {printable(f'{path} cannot be written: {e.strerror or e}')}", err=True)
        raise SystemExit(ATTENTION) from None
