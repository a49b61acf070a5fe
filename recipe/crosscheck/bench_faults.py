# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Does the verdict name the right phase? Every planted fault in a real pair of runs, and healthy pairs beside them.

    python -m recipe.crosscheck.bench_faults [--out DIR] [--only NAME ...]
        [--ppo] [--new-workers] [--unequal-ranks] [--upstream-6345] [--sensitivity]

Prints a table and writes `faults.json` (with the options `faults_ppo.json` and so on): `faults` and `localised` count
the sixteen lines of the catalogue, of which some have two switches; `healthy_steps` and `false_accusations` count
steps without a fault.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from recipe.crosscheck.bench_pairs import (
    CRITIC,
    MANY_PROMPTS,
    NEW_WORKERS,
    Play,
    Played,
    all_faults,
    one_a_step,
    perform,
)
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.faults.catalogue import Fault
from recipe.crosscheck.launch import RunFailed
from verl.crosscheck import installation
from verl.crosscheck.diagnosis.findings import Phase, StepComparison, Verdict, VerdictEvidence
from verl.crosscheck.diagnosis.thresholds import Thresholds, limits_for
from verl.crosscheck.diagnosis.verdict import judge
from verl.crosscheck.text import number

ONE_RANK, TWO_RANKS = "trainer.n_gpus_per_node=1", "trainer.n_gpus_per_node=2"
BF16_ENGINE = "actor_rollout_ref.rollout.dtype=bfloat16"
CONTROL_OF = {"healthy_bf16_engine": "control_bf16_engine"}
"""Pairs whose noise is beyond fixed limits, by design: the tiny model rounds more than those that limits come from. Two
healthy runs with the same engine measure it."""

DEFAULT_OUT = Path(__file__).parents[2] / "outputs" / "bench"


@dataclass(frozen=True)
class Tried:
    """One fault, in the step in which it first acted."""

    fault: str
    line: int
    """Of the catalogue."""
    step: int
    expected: str
    verdict: str
    first_step: int | None
    sureness: str
    acted: bool
    """Whether run A's log says that it acted."""
    evidence: str
    """The strongest."""

    @property
    def localised(self) -> bool:
        return self.acted and self.verdict == self.expected and self.first_step == self.step


def main() -> int:
    installation.require_active()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the pair of the moment is ended, too
    args = parse()
    console = Console(width=140)
    args.out.mkdir(parents=True, exist_ok=True)
    start_s = time.monotonic()
    if args.sensitivity:
        from recipe.crosscheck.bench_sensitivity import measure

        return measure(args.out, console)
    if args.upstream_6345:
        return upstream_6345(args.out, console)
    name, plays = chosen(args)
    tried: list[Tried] = []
    healthy, accused = 0, []
    cleared: dict[str, str] = {}
    played: dict[str, Played] = {}
    for play in plays:
        done = tell(play, args.out, console)
        played[play.name] = done
        tried += [try_fault(done, planted.fault, planted.first) for planted in play.plan.faults]
        healthy += len(done.reference)
        accused += accusations(done.reference, play.name, limits_of(done))
        if not play.plan and play.name not in CONTROL_OF.values():
            control = played.get(CONTROL_OF.get(play.name, ""))
            cleared[play.name] = clearance(done, control.reference if control else ())
    summary = summarise(tried, healthy, accused, time.monotonic() - start_s) | {"healthy_pairs": cleared}
    path = args.out / f"{name}.json"
    path.write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    console.print(table(tried))
    console.print(
        f"{summary['localised']} of {summary['faults']} faults localised; {healthy} healthy steps, {len(accused)} "
        f"accusations {accused or ''}; {summary['took_s'] / 60:.1f} minutes. Figures: {path}"
    )
    for name, verdict in cleared.items():
        console.print(f"{name}: {verdict}")
    as_it_should_be = all(verdict.startswith(Phase.NO_FAULT.value) for verdict in cleared.values())
    return 0 if summary["localised"] == summary["faults"] and not accused and as_it_should_be else 1


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Every planted fault, and healthy runs, against the verdict.")
    parser.add_argument("--out", type=Path, default=DEFAULT_OUT, help="folder for all files (default: outputs/bench)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these pairs alone, or pairs with these faults")
    parser.add_argument("--ppo", action="store_true", help="half the faults, with PPO and a critic")
    parser.add_argument("--new-workers", action="store_true", help="half the faults, with upstream's new workers")
    parser.add_argument("--unequal-ranks", action="store_true", help="faults of each phase, two ranks against one")
    parser.add_argument("--upstream-6345", action="store_true", help="a fault of upstream 0.7.1 itself")
    parser.add_argument("--sensitivity", action="store_true", help="how small may each kind of fault be")
    return parser.parse_args()


def chosen(args: argparse.Namespace) -> tuple[str, list[Play]]:
    """Name of the result, and the pairs to run."""
    if args.unequal_ranks:
        name, plays = "faults_unequal_ranks", unequal_ranks()
    elif args.ppo or args.new_workers:
        both = (*(CRITIC if args.ppo else ()), *((NEW_WORKERS,) if args.new_workers else ()))
        name = "_".join(["faults", *(["ppo"] if args.ppo else []), *(["new_workers"] if args.new_workers else [])])
        plays = list(one_a_step(name.removeprefix("faults_"), half(all_faults()), both))
    else:
        name, plays = "faults", [*one_a_step("faults", all_faults()), *healthy_pairs()]
    if args.only:
        wanted = set(args.only)
        plays = [
            play for play in plays if play.name in wanted or wanted & {each.fault.name for each in play.plan.faults}
        ]
    return name, plays


def half(faults: Sequence[Fault]) -> list[Fault]:
    """Of each second line of the catalogue the first switch."""
    lines = {fault.line: fault for fault in reversed(faults)}
    return [lines[line] for line in sorted(lines) if line % 2 == 0]


def healthy_pairs() -> list[Play]:
    return [
        Play("healthy_usual", steps=5, prompts=MANY_PROMPTS),
        # The tiny model in bfloat16 is noisy: means over fewer tokens leave the range of a control by chance.
        Play("control_bf16_engine", both=(BF16_ENGINE,), steps=4, prompts=MANY_PROMPTS),
        Play("healthy_bf16_engine", a_only=(BF16_ENGINE,), steps=4, prompts=MANY_PROMPTS),
        Play(
            "healthy_other_order",
            both=("trainer.share_data_strict=False",),
            a_only=("trainer.balance_batch=False",),
            steps=3,
        ),
        Play("healthy_unequal_ranks", both=(NEW_WORKERS,), a_only=(TWO_RANKS,), steps=4),
    ]


def unequal_ranks() -> list[Play]:
    """Pairs whose weights travel in the portable form. Each keeps its own optimizer, so what a fault of training did to
    A's stays: such a fault comes last."""
    texts = {
        "forward": "stale_weights@2,rotary_base@3,position_shift@4,perturbed_layer@5",
        "update": "tensor_not_synced@2,cut_responses@3,gradient_scaled@4",
    }
    layouts = {"2_and_1": ((NEW_WORKERS,), (TWO_RANKS,)), "1_and_2": ((NEW_WORKERS, TWO_RANKS), (ONE_RANK,))}
    return [
        Play(f"ranks_{layout}_{last}", plan := plans.parse(text), both, a_only, steps=len(plan.faults) + 1)
        for layout, (both, a_only) in layouts.items()
        for last, text in texts.items()
    ]


def tell(play: Play, out: Path, console: Console) -> Played:
    console.print(f"{play.name}: {play.steps} steps, planted: {play.plan or 'nothing'}", highlight=False)
    try:
        played = perform(play, out)
    except RunFailed as e:
        raise SystemExit(f"{play.name} failed: {e}") from None
    console.print(f"  {played.took_s:.0f} s", highlight=False)
    return played


def limits_of(played: Played) -> Thresholds:
    """The limits that the runs themselves went by."""
    return limits_for(*played.sampling)


def try_fault(played: Played, fault: Fault, step: int) -> Tried:
    """The verdict on a fault's step, beside the healthy ones of its pair."""
    steps = [*played.reference, played.comparisons[step]]
    verdict = judge(scenario_1=steps, limits=limits_of(played))
    return Tried(
        fault=fault.name,
        line=fault.line,
        step=step,
        expected=fault.phase.value,
        verdict=verdict.phase.value,
        first_step=verdict.first_step,
        sureness=verdict.sureness.value,
        acted=f"planted fault {fault.name} acts in step {step}" in played.log,
        evidence=strongest(verdict),
    )


def strongest(verdict: Verdict) -> str:
    return told(verdict.evidence[0]) if verdict.evidence else ""


def told(evidence: VerdictEvidence) -> str:
    finding = evidence.finding
    value = "" if finding.value is None else f" {number(finding.value)}"
    limit = "" if finding.limit is None else f" (limit {number(finding.limit)})"
    where = f" {finding.reason}" if finding.value is None else ""
    return f"{finding.aspect.value}/{finding.quantity}{value}{limit}{where}"


def accusations(comparisons: Iterable[StepComparison], where: str, limits: Thresholds) -> list[str]:
    """Healthy steps in which a phase is accused, beside the others of their pair or alone, without a control."""
    steps = list(comparisons)
    found = []
    for beside, chosen in (("", steps), *((f", step {step.global_step} alone", [step]) for step in steps)):
        verdict = judge(scenario_1=chosen, limits=limits)
        if verdict.phase not in (Phase.NO_FAULT, Phase.INCONCLUSIVE):
            found.append(f"{where}{beside}: {verdict.phase.value}, {strongest(verdict)}")
    return found


def clearance(played: Played, control: Sequence[StepComparison]) -> str:
    """The verdict on a healthy pair; it should be "no fault seen"."""
    verdict = judge(scenario_1=played.reference, control=control, limits=limits_of(played))
    return f"{verdict.phase.value} ({verdict.sureness.value})"


def upstream_6345(out: Path, console: Console) -> int:
    """Upstream 0.7.1 masks attention wrongly with `use_remove_padding=False` and its new workers (#6345)."""
    padded = "actor_rollout_ref.model.use_remove_padding=False"
    alone = tell(Play("upstream_6345_in_a", both=(NEW_WORKERS,), a_only=(padded,), steps=3), out, console)
    both = tell(Play("upstream_6345_in_both", both=(NEW_WORKERS, padded), steps=3), out, console)
    verdicts = {
        played.play.name: judge(scenario_1=list(played.comparisons.values()), limits=limits_of(played))
        for played in (alone, both)
    }
    expected = {"upstream_6345_in_a": Phase.TRAINING_FORWARD, "upstream_6345_in_both": Phase.INCONCLUSIVE}
    result = {
        name: {
            "verdict": verdict.phase.value,
            "expected": expected[name].value,
            "first_step": verdict.first_step,
            "sureness": verdict.sureness.value,
            "because": list(verdict.because),
            "evidence": [told(each) for each in verdict.evidence],
        }
        for name, verdict in verdicts.items()
    }
    (out / "upstream_6345.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    console.print_json(data=result)
    return 0 if all(verdicts[name].phase is phase for name, phase in expected.items()) else 1


def summarise(tried: Sequence[Tried], healthy: int, accused: Sequence[str], took_s: float) -> dict[str, Any]:
    lines = {each.line for each in tried}
    missed = {each.line for each in tried if not each.localised}
    return {
        "faults": len(lines),
        "localised": len(lines - missed),
        "switches": len(tried),
        "healthy_steps": healthy,
        "false_accusations": len(accused),
        "accusations": list(accused),
        "took_s": round(took_s),
        "tried": [{**asdict(each), "localised": each.localised} for each in tried],
    }


def table(tried: Sequence[Tried]) -> Table:
    shown = Table(title="Every fault, in the step in which it first acts", title_justify="left")
    for heading in ("", "fault", "step", "verdict", "since", "sure", "strongest evidence"):
        shown.add_column(heading)
    for each in sorted(tried, key=lambda each: (each.line, each.fault)):
        mark = "ok" if each.localised else "MISSED" if each.acted else "DID NOT ACT"
        since = "" if each.first_step is None else str(each.first_step)
        shown.add_row(mark, each.fault, str(each.step), each.verdict, since, each.sureness, each.evidence)
    return shown


if __name__ == "__main__":
    sys.exit(main())
