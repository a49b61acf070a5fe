# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Does the verdict name the right phase? Every planted fault in a real pair of runs, and healthy pairs beside them.

`faults` and `localised` count the sixteen lines of the catalogue, of which some have two switches; `healthy_steps` and
`false_accusations` count steps without a fault. With --ppo and so on the result has a name of its own. --quick plants
one fault of each phase in one pair. Exit status 1 if a fault was missed or a healthy run found at fault.
"""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from recipe.crosscheck.bench import pairs
from recipe.crosscheck.bench.harness import Benchmark, BenchResult, console
from recipe.crosscheck.bench.pairs import CRITIC, MANY_PROMPTS, NEW_WORKERS, Play, Played, all_faults, one_a_step
from recipe.crosscheck.faults import plan as plans
from recipe.crosscheck.faults.catalogue import Fault
from verl.crosscheck.diagnosis.findings import Phase, StepComparison, Verdict, VerdictEvidence
from verl.crosscheck.diagnosis.predictions import carried_on
from verl.crosscheck.diagnosis.thresholds import Thresholds
from verl.crosscheck.diagnosis.verdict import judge, judge_step
from verl.crosscheck.text import number

ONE_RANK, TWO_RANKS = "trainer.n_gpus_per_node=1", "trainer.n_gpus_per_node=2"
BF16_ENGINE = "actor_rollout_ref.rollout.dtype=bfloat16"
CONTROL_OF = {"healthy_bf16_engine": "control_bf16_engine"}
"""Pairs whose noise is beyond fixed limits, by design: the tiny model rounds more than those that limits come from. Two
healthy runs with the same engine measure it."""

QUICK = "stale_weights@2,train_temperature@3,gradient_scaled@4"


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
    confidence: str
    acted: bool
    """Whether run A's log says that it acted."""
    evidence: str
    """The strongest."""

    @property
    def localised(self) -> bool:
        return self.acted and self.verdict == self.expected and self.first_step == self.step


def _options(parser: ArgumentParser) -> None:
    pairs.options(parser)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these pairs alone, or pairs with these faults")
    parser.add_argument("--ppo", action="store_true", help="half the faults, with PPO and a critic")
    parser.add_argument("--new-workers", action="store_true", help="half the faults, with upstream's new workers")
    parser.add_argument("--unequal-ranks", action="store_true", help="faults of each phase, two ranks against one")
    parser.add_argument("--upstream-6345", action="store_true", help="a fault of upstream 0.7.1 itself")


def _result(args: Namespace) -> str:
    if args.upstream_6345 and args.made_up:
        raise ValueError("--upstream-6345 shows in real runs alone; leave --made-up out")
    if args.upstream_6345:
        return "upstream_6345"
    kinds = {"unequal_ranks": args.unequal_ranks, "ppo": args.ppo, "new_workers": args.new_workers}
    return "_".join(["faults", *(kind for kind, given in kinds.items() if given)])


def _run(args: Namespace, result: BenchResult) -> int:
    play_one = pairs.player(args, result)
    if args.upstream_6345:
        return upstream_6345(play_one, result)
    start_s = time.monotonic()
    tally = Tally()
    for play in chosen(args):
        tally.add(play_one(play))
        result.add(tally.summary(time.monotonic() - start_s))
    summary, shown = result.figures, console()
    shown.print(table(tally.tried))
    shown.print(
        f"{summary['localised']} of {summary['faults']} faults localised; {summary['healthy_steps']} healthy steps, "
        f"{summary['false_accusations']} found at fault {tally.accused or ''}; {summary['took_s'] / 60:.1f} minutes",
        markup=False,
    )
    for name, verdict in tally.healthy_pairs.items():
        shown.print(f"{name}: {verdict}")
    return 0 if tally.as_it_should_be else 1


class Tally:
    """What the pairs have shown so far.

    Attributes:
        tried: Each fault.
        accused: Healthy steps that were found at fault.
        healthy_pairs: The verdict on each pair without a fault.
    """

    def __init__(self) -> None:
        self.tried: list[Tried] = []
        self.accused: list[str] = []
        self.healthy_pairs: dict[str, str] = {}
        self._healthy_steps = 0
        self._played: dict[str, Played] = {}

    def add(self, done: Played) -> None:
        """Judge a pair."""
        play = done.play
        self._played[play.name] = done
        self.tried += [try_fault(done, planted.fault, planted.first) for planted in play.plan.faults]
        self._healthy_steps += len(done.reference)
        self.accused += accusations(done.reference, play.name, done.limits)
        if not play.plan and play.name not in CONTROL_OF.values():
            control = self._played.get(CONTROL_OF.get(play.name, ""))
            self.healthy_pairs[play.name] = clearance(done, control.reference if control else ())

    def summary(self, took_s: float) -> dict[str, Any]:
        lines = {each.line for each in self.tried}
        missed = {each.line for each in self.tried if not each.localised}
        return {
            "faults": len(lines),
            "localised": len(lines - missed),
            "switches": len(self.tried),
            "healthy_steps": self._healthy_steps,
            "false_accusations": len(self.accused),
            "accusations": list(self.accused),
            "took_s": round(took_s),
            "tried": [{**asdict(each), "localised": each.localised} for each in self.tried],
            "healthy_pairs": dict(self.healthy_pairs),
        }

    @property
    def as_it_should_be(self) -> bool:
        cleared = all(verdict.startswith(Phase.NO_FAULT.value) for verdict in self.healthy_pairs.values())
        return all(each.localised for each in self.tried) and not self.accused and cleared


def chosen(args: Namespace) -> list[Play]:
    """The pairs to run."""
    if args.unequal_ranks:
        plays = unequal_ranks()
    elif args.ppo or args.new_workers:
        both = (*(CRITIC if args.ppo else ()), *((NEW_WORKERS,) if args.new_workers else ()))
        plays = list(one_a_step(_result(args).removeprefix("faults_"), half(all_faults()), both))
    elif args.quick:
        plays = [Play("quick", plans.parse(QUICK), steps=5)]
    else:
        plays = [*one_a_step("faults", all_faults()), *healthy_pairs()]
    if args.only:
        wanted = set(args.only)
        plays = [each for each in plays if wanted & {each.name, *(planted.fault.name for planted in each.plan.faults)}]
    return plays[:1] if args.quick else plays


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


def try_fault(played: Played, fault: Fault, step: int) -> Tried:
    """How a fault was judged in its step, see `verdict_on`."""
    verdict = verdict_on(played, step)
    return Tried(
        fault=fault.name,
        line=fault.line,
        step=step,
        expected=fault.phase.value,
        verdict=verdict.phase.value,
        first_step=verdict.first_step,
        confidence=verdict.confidence.value,
        acted=f"planted fault {fault.name} acts in step {step}" in played.log,
        evidence=strongest(verdict),
    )


def verdict_on(played: Played, step: int) -> Verdict:
    """The verdict on a step, beside the healthy ones of its pair.

    Healthy steps show that B's rollout and training agree up to the last of them. B has no fault here, so for a step
    after that it counts as known, as by a control run.
    """
    steps = carried_on(sorted(played.comparisons.values(), key=lambda each: each.global_step))
    comparison = next(each for each in steps if each.global_step == step)
    if all(each.global_step < step for each in played.reference):
        return judge_step(comparison, True, played.limits)
    return judge(scenario_1=[*played.reference, comparison], limits=played.limits)


def strongest(verdict: Verdict) -> str:
    return one_line(verdict.evidence[0]) if verdict.evidence else ""


def one_line(evidence: VerdictEvidence) -> str:
    finding = evidence.finding
    value = "" if finding.value is None else f" {number(finding.value)}"
    limit = "" if finding.limit is None else f" (threshold {number(finding.limit)})"
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
    verdict = judge(scenario_1=played.reference, control=control, limits=played.limits)
    return f"{verdict.phase.value} ({verdict.confidence.value})"


def upstream_6345(play_one: Callable[[Play], Played], result: BenchResult) -> int:
    """Upstream 0.7.1 masks attention wrongly with `use_remove_padding=False` and its new workers (#6345)."""
    padded = "actor_rollout_ref.model.use_remove_padding=False"
    plays = {
        Play("upstream_6345_in_a", both=(NEW_WORKERS,), a_only=(padded,), steps=3): Phase.TRAINING_FORWARD,
        Play("upstream_6345_in_both", both=(NEW_WORKERS, padded), steps=3): Phase.INCONCLUSIVE,
    }
    for play, expected in plays.items():
        played = play_one(play)
        verdict = judge(scenario_1=list(played.comparisons.values()), limits=played.limits)
        result.add({play.name: _of_verdict(verdict, expected)})
    console().print_json(data=result.figures)
    return 0 if all(each["verdict"] == each["expected"] for each in result.figures.values()) else 1


def _of_verdict(verdict: Verdict, expected: Phase) -> Mapping[str, Any]:
    return {
        "verdict": verdict.phase.value,
        "expected": expected.value,
        "first_step": verdict.first_step,
        "confidence": verdict.confidence.value,
        "because": list(verdict.because),
        "evidence": [one_line(each) for each in verdict.evidence],
    }


def table(tried: Sequence[Tried]) -> Table:
    shown = Table(title="Every fault, in the step in which it first acts", title_justify="left")
    for heading in ("", "fault", "step", "verdict", "since", "sure", "strongest evidence"):
        shown.add_column(heading)
    for each in sorted(tried, key=lambda each: (each.line, each.fault)):
        mark = "ok" if each.localised else "MISSED" if each.acted else "DID NOT ACT"
        since = "" if each.first_step is None else str(each.first_step)
        shown.add_row(mark, each.fault, str(each.step), each.verdict, since, each.confidence, each.evidence)
    return shown


BENCHMARK = Benchmark(_options, _run, _result)
