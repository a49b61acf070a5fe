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
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from recipe.crosscheck import demo_task, launch, make_data
from recipe.crosscheck.faults import plan
from recipe.crosscheck.faults.catalogue import CATALOGUE
from recipe.crosscheck.ledger import LedgerStep, exchange_s
from verl.crosscheck import installation
from verl.crosscheck.pair.play import Signals
from verl.crosscheck.report.as_json import EXIT_STATUS

MODES = {1: {"a": "ckpt", "b": "rollout"}, 2: {"a": "rollout", "b": "ckpt"}}
"""By scenario: the mode of each run."""

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

ERROR_LINE = re.compile(r"(\w+\.)*\w*(Error|Exception|Exit)\b")
"""How the last line of a traceback begins."""

MARK = "[ShareDataTest] "
POLL_S = 0.25
LOG_WIDTH = 110
"""Columns of the table where there is no terminal to ask."""
START_LIMIT_S = 600.0
"""Longest time to the first step, and between two; the runs have their own deadline for each other."""


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
                runs = play(args, console, stop)
                show(args, console, runs)
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


def show(args: argparse.Namespace, console: Console, runs: dict[str, launch.LaunchedRun]) -> None:
    """Write `summary.json` and show what is in it."""
    summary = summarise({name: run.steps for name, run in runs.items()}, args.scenario)
    summary["fault"] = str(args.fault) or None
    path = args.out / "summary.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    console.print(table(summary))
    console.print(Text(f"The exchange took {summary['exchange_s_per_step']:.2f} s a step. Figures: {path}"))
    console.print(Text(f"Logs: {launch.log_path(runs['a'].folder)} and {launch.log_path(runs['b'].folder)}"))
    tell_verdict(args)


def tell_verdict(args: argparse.Namespace) -> None:
    """Write and show the report, as a user would have it from the installed command.

    Raises:
        DemoFailed: it could not be made.
    """
    command = [str(Path(sys.executable).with_name("verl-crosscheck")), "report", str(args.out / "share")]
    command += ["--scenario", str(args.scenario), "--tokenizer", str(demo_task.MODEL_DIR)]
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
        choices=sorted(MODES),
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


def play(args: argparse.Namespace, console: Console, stop: Signals) -> dict[str, launch.LaunchedRun]:
    """Start both runs, show them until they have ended, and leave nothing of them running.

    Raises:
        DemoFailed: see `follow`.
        KeyboardInterrupt: a signal to stop; both runs have ended by then.
    """
    runs: dict[str, launch.LaunchedRun] = {}
    try:
        start(runs, args, stop)
        follow(runs, args.scenario, args.steps, console, stop)
    finally:
        if any(run.poll() is None for run in runs.values()):
            tell(console, Text("Ending both runs ..."))
        with ExitStack() as stack:
            for run in runs.values():
                run.terminate()
                stack.callback(run.close)
    return runs


def start(runs: dict[str, launch.LaunchedRun], args: argparse.Namespace, stop: Signals) -> None:
    """Start both runs in folders below `args.out`, each noted in `runs` as soon as it is there."""
    data = make_data.write(args.out / "data")
    ranks = {"a": args.a_ranks, "b": args.b_ranks}
    for name, mode in MODES[args.scenario].items():
        planted = args.fault if name == "a" else plan.FaultPlan()
        overrides = [
            *demo_task.overrides(data),
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
        stop.check()
        runs[name] = launch.start(args.out / name, overrides, env=plan.environment(planted))


def follow(runs: dict[str, launch.LaunchedRun], scenario: int, steps: int, console: Console, stop: Signals) -> None:
    """Show both runs until both have ended.

    Raises:
        DemoFailed: one ended with an error or before its last step, or neither got on for `START_LIMIT_S` seconds.
    """
    began_s = changed_s = time.monotonic()
    seen: list[str] = []
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while True:
            stop.check()
            states = {name: run.poll() for name, run in runs.items()}
            rows = [progress(name, MODES[scenario][name], run, steps) for name, run in runs.items()]
            live.update(side_by_side(rows, time.monotonic() - began_s))
            if (now := [" ".join(row) for row in rows]) != seen:
                report(now, seen, time.monotonic() - began_s, console)
                seen, changed_s = now, time.monotonic()
            require_success(runs, states)
            if None not in states.values():
                break
            if time.monotonic() - changed_s > START_LIMIT_S:
                raise DemoFailed(f"Nothing happened for {START_LIMIT_S:.0f} s. Run A:\n{tail(runs['a'])}")
            time.sleep(POLL_S)
    for name, run in runs.items():
        if len(run.steps) != steps:
            raise DemoFailed(f"Run {name.upper()} ended after {len(run.steps)} of {steps} steps:\n{tail(run)}")


def report(now: list[str], seen: list[str], elapsed_s: float, console: Console) -> None:
    """Where there is no terminal to redraw, what is new goes to the log."""
    if not console.is_terminal:
        for line in now:
            if line not in seen:
                console.print(Text(f"{elapsed_s:4.0f} s {line}"))


def require_success(runs: dict[str, launch.LaunchedRun], states: dict[str, int | None]) -> None:
    for name, status in states.items():
        if status not in (None, 0):
            raise DemoFailed(f"Run {name.upper()} ended with status {status}:\n{tail(runs[name])}")


def progress(name: str, mode: str, run: launch.LaunchedRun, steps: int) -> tuple[str, str, str, str]:
    """Run, mode, step and what it did last."""
    done = run.steps
    step = f"step {len(done)} of {steps}" if done else "starting"
    lines = [line for line in run.log().splitlines() if MARK in line]
    latest = lines[-1].split(MARK, 1)[1] if lines else "starting Ray and the workers"
    return f"run {name.upper()}", mode, step, latest.replace(str(run.folder.parent / "share") + "/", "")


def side_by_side(rows: list[tuple[str, str, str, str]], elapsed_s: float) -> Table:
    """What is shown while the runs go on."""
    shown = Table(title=f"{elapsed_s:.0f} s", title_justify="left", box=None, pad_edge=False)
    for heading in ("", "share_data", "", "exchange"):
        shown.add_column(heading, no_wrap=True)
    for row in rows:
        shown.add_row(*map(Text, row))
    return shown


def tail(run: launch.LaunchedRun, lines: int = 15) -> str:
    """The last error in a run's log, if one can be made out, its last lines, and where the rest is."""
    log = run.log().splitlines()
    errors = [number for number, line in enumerate(log) if ERROR_LINE.match(line)]
    shown = [log[errors[-1]], "..."] if errors and errors[-1] < len(log) - lines else []
    return "\n".join([*shown, *log[-lines:], f"The whole log: {launch.log_path(run.folder)}"])


def summarise(steps: dict[str, list[launch.Step]], scenario: int) -> dict[str, Any]:
    """The figures of `summary.json`. Times in seconds; `exchange_s` is null in the first step, see `ledger`."""
    times = {name: [LedgerStep.of(step.values) for step in each] for name, each in steps.items()}
    names = sorted(times, key=lambda name: MODES[scenario][name])  # "ckpt" before "rollout"
    costs = dict(zip(names, exchange_s(*(times[name] for name in names)), strict=True))
    summary: dict[str, Any] = {"scenario": scenario, "steps": len(steps["a"])}
    for name, each in steps.items():
        padded = [None, *costs[name]]
        entries = [entry(*of_step) for of_step in zip(each, times[name], padded, strict=True)]
        summary[name] = {"mode": MODES[scenario][name], "steps": entries}
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
