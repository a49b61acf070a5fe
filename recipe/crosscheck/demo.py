# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Two real training runs on this machine, cross-checking each other; their progress, then the ledger and the verdict.

    python -m recipe.crosscheck.demo [--scenario 1|2] [--fault PLAN|none] [--steps N] [--a-ranks N] [--b-ranks N]
        [--out DIR]

Run A has a fault, unless told otherwise. In scenario 1 it keeps its own rollout and takes B's weights, in scenario 2 it
keeps its own training and takes B's rollouts. At the end stands the verdict: which phase of A is at fault, since when.
Both runs end cleanly whatever happens, also on Ctrl-C.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import shlex
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recipe.crosscheck import launch
from recipe.crosscheck.data import MODEL_DIR, task_overrides, write_data
from recipe.crosscheck.faults import plan
from recipe.crosscheck.faults.catalogue import CATALOGUE
from recipe.crosscheck.ledger import LedgerStep, exchange_s
from verl.crosscheck import installation
from verl.crosscheck.pair.plan import MODES_OF_SCENARIO, PairPlan, Side
from verl.crosscheck.pair.play import PairView, Signals, play_pair
from verl.crosscheck.pair.process import last_lines
from verl.crosscheck.pair.watch import PairOutcome, PairSight, TimeLimits
from verl.crosscheck.report.as_json import EXIT_STATUS
from verl.crosscheck.settings import MODES

DEFAULT_FAULT = "stale_weights"
RANKS = (1, 2, 4)
"""Numbers that the rows of a batch can be shared out to evenly."""
SAME_UPDATE = ["trainer.use_legacy_worker_impl=disable"]
"""The new workers take the mean over the tokens of all ranks, so unequal numbers of ranks do the same update."""

DEFAULT_OUT = Path(__file__).parents[2] / "outputs" / "demo"
MARKER = ".verl-crosscheck-demo"
"""In every folder that a demo may empty."""
REPORT = "report.html"
OUTPUTS = ("a", "b", "share", "data", "summary.json", REPORT)

MARK = "[ShareDataTest] "
LOG_WIDTH = 110
"""Columns of the table where there is no terminal to ask."""
STALL_S = 600.0
"""Longest time to the first step, and between two; the runs have their own deadline for each other."""
GRACE_S = 20.0
"""Seconds for the other run to end by itself, once one has failed."""
TAIL_LINES = 15


class DemoFailed(RuntimeError):
    """A run ended early or hangs; the message says which and shows the end of its log."""


def main(arguments: list[str] | None = None) -> int:
    """Run the demo; the exit status is 0 if both runs reached the last step."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=LOG_WIDTH)
    with Signals() as stop:
        try:
            installation.require_active()
            args = parse(arguments)
            with claimed(args.out):
                for planted in args.fault.faults:
                    tell(console, Text(f"Planted in run A: {planted.sentence}."))
                show(args, console, play(args, console, stop))
        except KeyboardInterrupt:
            tell(console, Text("Interrupted. Both runs have ended.", style="yellow"))
            return 130
        except DemoFailed as e:
            tell(console, Text("The demo failed. ", style="red").append(str(e), style="default"))
            return 1
    return 0


def tell(console: Console, text: Text) -> None:
    """Print, if there still is somewhere to print to: a closed terminal must not keep the runs from being ended."""
    with suppress(OSError):
        console.print(text)


def show(args: argparse.Namespace, console: Console, pair: PairPlan) -> None:
    """Write `summary.json` and show what is in it."""
    summary = summarise(pair) | {"fault": str(args.fault) or None}
    path = args.out / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    console.print(table(summary))
    console.print(Text(f"The exchange took {summary['exchange_s_per_step']:.2f} s a step. Figures: {path}"))
    console.print(Text(f"Logs: {pair.sides[0].log} and {pair.sides[1].log}"))
    tell_verdict(args)


def tell_verdict(args: argparse.Namespace) -> None:
    """Write and show the report, as a user would have it from the installed command.

    Raises:
        DemoFailed: it could not be made.
    """
    command = [str(Path(sys.executable).with_name("verl-crosscheck")), "report", str(args.out / "share")]
    command += ["--scenario", str(args.scenario), "--tokenizer", str(MODEL_DIR)]
    command += ["-o", str(args.out / REPORT)]
    sys.stdout.flush()
    status = subprocess.run(command, check=False).returncode
    if status not in EXIT_STATUS.values():
        raise DemoFailed(f"The report ended with status {status}. Type it again: {shlex.join(command)}")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Two training runs that exchange rollouts and checkpoints.",
        epilog=f"Faults: {', '.join(CATALOGUE)}.",
    )
    parser.add_argument(
        "--scenario",
        type=int,
        choices=sorted(MODES_OF_SCENARIO),
        default=1,
        help="1 (default): A in mode ckpt; 2: A in mode rollout",
    )
    parser.add_argument(
        "--fault",
        metavar="PLAN",
        default=DEFAULT_FAULT,
        help=f"what to plant in run A: {plan.SYNTAX}; or none (default: {DEFAULT_FAULT})",
    )
    for name in "ab":
        parser.add_argument(
            f"--{name}-ranks",
            metavar="N",
            type=int,
            choices=RANKS,
            default=1,
            help=f"ranks of run {name.upper()}: 1 (default), 2 or 4; unequal ones exchange portable weights",
        )
    parser.add_argument("--steps", type=int, default=4, help="training steps, at least 2 (default: 4)")
    parser.add_argument(
        "--out",
        type=Path,
        default=DEFAULT_OUT,
        help="folder for all files, empty or of an earlier demo (default: outputs/demo)",
    )
    args = parser.parse_args(arguments)
    if args.steps < 2:
        parser.error("--steps: at least 2, since the first step's wait is for the other run to start")
    try:
        args.fault = plan.parse(args.fault)
    except plan.PlanError as e:
        parser.error(f"--fault: {e}")
    args.out = args.out.resolve()
    if re.search(r"[*?\[\]]|::", str(args.out)):
        parser.error(f"--out {args.out}: the data set's reader takes * ? [ ] and :: for patterns. Name another folder")
    return args


@contextmanager
def claimed(out: Path) -> Iterator[None]:
    """Make `out`, and empty it if an earlier demo filled it. Nothing that a demo did not make is ever removed.

    Raises:
        DemoFailed: it cannot be made, holds something else, or another demo is running there.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not (out / MARKER).exists() and any(out.iterdir()):
            raise DemoFailed(f"{out} is not empty, and not of an earlier demo. Name another folder: --out DIR")
        with (out / MARKER).open("a") as marker:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(out)
            yield
    except BlockingIOError:
        raise DemoFailed(f"Another demo is running in {out}. Name another folder: --out DIR") from None
    except OSError as e:
        raise DemoFailed(f"{out} cannot be used: {e}") from e


def _empty(out: Path) -> None:
    for name in OUTPUTS:
        path = out / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def play(args: argparse.Namespace, console: Console, stop: Signals) -> PairPlan:
    """Play both runs, show them meanwhile, and return them; nothing of them runs any more.

    Raises:
        DemoFailed: one of them ended with an error or before its last step, or neither got on for `STALL_S` seconds.
        KeyboardInterrupt: a signal has come.
    """
    pair = pair_of(args)
    limits = TimeLimits(grace_s=GRACE_S, stall_s=STALL_S)
    outcome = play_pair(pair, limits, signals=stop, view=DemoView(console))
    if not outcome.ok:
        raise DemoFailed(why(outcome))
    return pair


def pair_of(args: argparse.Namespace) -> PairPlan:
    """Return both runs, in folders below `args.out`; their data are written there."""
    files = write_data(args.out / "data")
    ranks = {"a": args.a_ranks, "b": args.b_ranks}
    sides = []
    for name, mode in zip("ab", MODES_OF_SCENARIO[args.scenario], strict=True):
        planted = args.fault if name == "a" else plan.FaultPlan()
        overrides = [
            *task_overrides(files),
            *plan.settings(args.fault),
            *plan.overrides(planted),
            f"trainer.experiment_name={name}",
            f"trainer.total_training_steps={args.steps}",
            f"trainer.share_data={mode}",
            f"trainer.n_gpus_per_node={ranks[name]}",
            *(SAME_UPDATE if len(set(ranks.values())) > 1 else []),
            launch.override("trainer.share_data_dir", args.out / "share"),
            "trainer.share_data_timeout_s=300",
        ]
        sides.append(launch.side(args.out / name, overrides, name=name, mode=mode, env=plan.environment(planted)))
    return PairPlan(args.scenario, args.out / "share", args.steps, (sides[0], sides[1]))


def why(outcome: PairOutcome) -> str:
    """What went wrong, the error that names it, the last lines of the log, and where the rest is."""
    if outcome.cause is None:
        log = outcome.pair.sides[0].log
        stalled = f"Nothing happened for {STALL_S:.0f} s. Run A:"
        return "\n".join([stalled, *last_lines(log, TAIL_LINES), f"The whole log: {log}"])
    error = [outcome.error, "..."] if outcome.error and outcome.error not in outcome.tail else []
    return "\n".join([f"{outcome.words}:", *error, *outcome.tail, f"The whole log: {outcome.cause.log}"])


class DemoView(PairView):
    """Shows both runs: a table that is drawn anew, or lines of what is new where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def watching(self, pair: PairPlan) -> Iterator[Callable[[PairSight], object]]:
        seen: list[str] = []

        def show(sight: PairSight) -> None:
            rows = [progress(side, pair.steps) for side in pair.sides]
            live.update(side_by_side(rows, sight.elapsed_s), refresh=True)
            lines = [" ".join(row) for row in rows]
            for line in lines:
                if line not in seen and not self._console.is_terminal:
                    self._console.print(Text(f"{sight.elapsed_s:4.0f} s {line}"))
            seen[:] = lines

        with Live(console=self._console, auto_refresh=False, transient=True) as live:
            yield show

    def end_runs(self) -> None:
        tell(self._console, Text("Ending both runs ..."))


def progress(side: Side, steps: int) -> tuple[str, str, str, str]:
    """Run, mode, step and what it did last."""
    done = launch.read_steps(launch.metrics_path(side.folder))
    step = f"step {len(done)} of {steps}" if done else "starting"
    log = side.log.read_text(encoding="utf-8", errors="replace")
    lines = [line for line in log.splitlines() if MARK in line]
    latest = lines[-1].split(MARK, 1)[1] if lines else "starting Ray and the workers"
    latest = latest.replace(f"{side.folder.parent / 'share'}/", "")
    return f"run {side.name.upper()}", side.mode, step, latest


def side_by_side(rows: list[tuple[str, str, str, str]], elapsed_s: float) -> Table:
    """What is shown while the runs go on."""
    shown = Table(title=f"{elapsed_s:.0f} s", title_justify="left", box=None, pad_edge=False)
    *short, latest = ("", "share_data", "", "exchange")
    for heading, *cells in zip(short, *rows, strict=False):
        shown.add_column(heading, no_wrap=True, min_width=max(map(len, (heading, *cells))))
    shown.add_column(latest, no_wrap=True)  # the one column to be cut off where the terminal is narrow
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def summarise(pair: PairPlan) -> dict[str, Any]:
    """The figures of `summary.json`. Times in seconds; `exchange_s` is null in the first step, see `ledger`."""
    steps = {side.mode: launch.read_steps(launch.metrics_path(side.folder)) for side in pair.sides}
    times = {mode: [LedgerStep.of(step.values) for step in each] for mode, each in steps.items()}
    costs = dict(zip(MODES, exchange_s(*(times[mode] for mode in MODES)), strict=True))
    summary: dict[str, Any] = {"scenario": pair.scenario, "steps": pair.steps}
    for side in pair.sides:
        padded = [None, *costs[side.mode]]
        entries = [entry(*of_step) for of_step in zip(steps[side.mode], times[side.mode], padded, strict=True)]
        summary[side.name] = {"mode": side.mode, "steps": entries}
    # The two runs are in lockstep, so the dearer side's cost is what each step of the pair takes longer.
    summary["exchange_s_per_step"] = max(statistics.fmean(each) for each in costs.values())
    return summary


def entry(step: launch.Step, times: LedgerStep, cost_s: float | None) -> dict[str, Any]:
    """One step of one run."""
    return {
        "step": step.number,
        "grad_norm": step.values["actor/grad_norm"],
        "loss": step.values["actor/pg_loss"],
        "reward": step.values["critic/rewards/mean"],
        "work_s": times.work_s,
        "wait_s": times.wait_s,
        "save_s": times.save_s,
        "load_s": times.load_s,
        "exchange_s": cost_s,
    }


def table(summary: dict[str, Any]) -> Table:
    """The ledger that is shown at the end."""
    shown = Table(title="Each step of both runs", title_justify="left")
    for heading in ("step", "run", "grad norm", "loss", "reward", "work", "wait", "save", "load", "exchange"):
        shown.add_column(heading, justify="left" if heading == "run" else "right")
    pairs = zip(summary["a"]["steps"], summary["b"]["steps"], strict=True)
    for pair in pairs:
        for name, each in zip("ab", pair, strict=True):
            shown.add_row(
                str(each["step"]) if name == "a" else "",
                f"{name.upper()} {summary[name]['mode']}",
                number(each["grad_norm"], ".6f"),
                number(each["loss"], "+.2e"),
                number(each["reward"], ".4f"),
                *(seconds(each[key]) for key in ("work_s", "wait_s", "save_s", "load_s", "exchange_s")),
                end_section=name == "b",
            )
    return shown


def number(value: float | None, form: str) -> str:
    """`value` in the given form; upstream logs null in place of what is not finite."""
    return "not finite" if value is None else format(value, form)


def seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.2f} s"


if __name__ == "__main__":
    sys.exit(main())
