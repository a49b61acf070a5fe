# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck run`: both runs of each scenario, from two training commands to a report."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from verl.crosscheck.cli.terminal import FolderArgument, console, reported

_VARIABLE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def _scenarios(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not set(parts) <= {"1", "2"} or len(set(parts)) != len(parts):
        raise click.BadParameter(f"{value!r}; expected 1, 2, or 1,2.")
    return tuple(map(int, parts))


def _variables(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    matches = {value: _VARIABLE.fullmatch(value) for value in values}
    for value, match in matches.items():
        if match is None:
            raise click.BadParameter(f"{value!r}; expected KEY=VALUE, such as CUDA_VISIBLE_DEVICES=0,1.")
    return {match[1]: match[2] for match in matches.values() if match}


@click.command()
@click.option("--a", "a_text", metavar="COMMAND", required=True, help="Training command of the suspect run.")
@click.option("--b", "b_text", metavar="COMMAND", required=True, help="Training command of the healthy run.")
@click.option(
    "--scenarios",
    metavar="1,2",
    callback=_scenarios,
    default="1,2",
    show_default=True,
    help="1: is A's rollout at fault? 2: is its training?",
)
@click.option(
    "--steps", metavar="N", type=click.IntRange(min=1), default=10, show_default=True, help="Steps of each run."
)
@click.option("--control", is_flag=True, help="Run B against itself first, to know how far apart healthy runs are.")
@click.option(
    "--dir",
    "root",
    metavar="DIR",
    type=FolderArgument(exists=False),
    help="New folder for what the runs exchange: DIR/scenario_1 and so on. [default: crosscheck-DATE-TIME]",
)
@click.option(
    "--out", metavar="FOLDER", type=FolderArgument(exists=False), help="Folder for logs and report. [default: DIR]"
)
@click.option("--a-env", metavar="KEY=VALUE", callback=_variables, multiple=True, help="Variable of run A alone.")
@click.option("--b-env", metavar="KEY=VALUE", callback=_variables, multiple=True, help="Variable of run B alone.")
@click.option(
    "--two-sites", "--print", "two_sites", is_flag=True, help="Start nothing; print what to type at each site."
)
@click.option(
    "--lang", type=click.Choice(["en", "zh"]), default="en", show_default=True, help="Language of the report."
)
@click.option(
    "--grace",
    "grace_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=60,
    show_default=True,
    help="For the other run to end by itself, once one has failed.",
)
@click.option(
    "--stall-limit",
    "stall_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    default=7200,
    show_default=True,
    help="End a pair in which no log grows and no run gets on for that long.",
)
@click.option(
    "--time-limit",
    "total_s",
    metavar="SECONDS",
    type=click.FloatRange(min=1),
    help="End a pair that takes longer. [default: none]",
)
@reported
def run(
    a_text: str,
    b_text: str,
    scenarios: tuple[int, ...],
    steps: int,
    control: bool,
    root: Path | None,
    out: Path | None,
    a_env: dict[str, str],
    b_env: dict[str, str],
    two_sites: bool,
    lang: str,
    grace_s: float,
    stall_s: float,
    total_s: float | None,
) -> None:
    """Cross-check two training commands of this machine, and write the report.

    COMMAND is what you train with: `python -m verl.trainer.main_ppo` with your overrides, or a script that hands on
    overrides ("$@") to it. For each scenario both are started, with the overrides of the cross-check at their ends,
    watched, and ended; if one fails or you press Ctrl-C, the other ends as well. Each has a Ray session, a log and a
    folder of its own.

    Where both see all devices of the machine, share them out:

    \b
      verl-crosscheck run --a 'bash train_a.sh' --a-env CUDA_VISIBLE_DEVICES=0,1,2,3 \\
                          --b 'bash train_b.sh' --b-env CUDA_VISIBLE_DEVICES=4,5,6,7

    Exit status: that of `verl-crosscheck report` (0 no fault found; 10 to 16 another verdict); 1 a run failed or there
    is no report; 2 wrong usage; 130 after Ctrl-C.
    """
    # Later, since other commands need neither psutil nor these, and since they use the facts of `status`.
    from verl.crosscheck.cli.run_view import RunView, commands_view
    from verl.crosscheck.pair.commands import parse
    from verl.crosscheck.pair.plan import PairRequest
    from verl.crosscheck.pair.play import play
    from verl.crosscheck.pair.watch import TimeLimits

    a, b = parse(a_text, "--a"), parse(b_text, "--b")
    if two_sites and root is None:
        raise click.UsageError("--two-sites needs --dir: a directory that both sites reach under the same path.")
    place = Path.cwd() / (root or time.strftime("crosscheck-%Y%m%d-%H%M%S"))
    request = PairRequest(a, b, a_env, b_env, scenarios, steps, place, Path.cwd() / (out or place), control)
    terminal = console()
    if two_sites:
        for part in commands_view(request, lang):
            terminal.print(part, soft_wrap=True)
        return
    raise SystemExit(play(request, TimeLimits(grace_s, stall_s, total_s), lang, RunView(terminal)))
