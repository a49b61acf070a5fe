# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""How small may a fault be and still be found? One family of faults after the other, in steps of one pair each.

Writes for each family its amounts, whether the right phase was named, and how far the strongest evidence is beyond its
threshold; and a picture of that, `sensitivity.svg`, beside the figures. --quick tries one amount of two families.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from recipe.crosscheck.bench import pairs
from recipe.crosscheck.bench.faults import verdict_on
from recipe.crosscheck.bench.harness import Benchmark, BenchResult, console
from recipe.crosscheck.bench.pairs import LONGEST, MANY_PROMPTS, PROMPTS, TOLD_FROM_CHANCE, Play, Played
from recipe.crosscheck.faults import plan as plans
from verl.crosscheck.diagnosis.assess import strength
from verl.crosscheck.diagnosis.findings import VerdictEvidence

FAMILIES: Mapping[str, Sequence[float]] = {
    "temperature": (1.05, 1.1, 1.2, 1.3),
    "top_k": (6, 4, 3, 2),
    "kv_cache_rounded": (16, 12, 10, 8),
    "rotary_base": (0.999, 0.99, 0.9, 0.5),
    "cut_responses": (0.01, 0.03, 0.1),
    "train_temperature": (1.0005, 1.002, 1.01, 1.05),
    "dropout": (1e-4, 1e-3, 1e-2),
    "perturbed_layer": (1e-5, 1e-4, 1e-3, 1e-2),
    "gradient_scaled": (1.001, 1.01, 1.03, 1.1),
    "learning_rate": (1.01, 1.05, 1.1, 1.5),
    "bf16_update": (23, 20, 16, 12),
}
"""Amounts of each, from the smallest fault to the largest."""


QUICK = ("rotary_base", "gradient_scaled")


def _run(args: Namespace, result: BenchResult) -> int:
    families = {name: FAMILIES[name][-1:] for name in QUICK} if args.quick else FAMILIES
    play_one = pairs.player(args, result)
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in families}
    for play in plays(families):
        played = play_one(play)
        for planted in play.plan.faults:
            found[planted.fault.name].append(tried(played, planted))
        result.add(found)
    draw(found, result.out.with_suffix(".svg"))
    console().print(table(found))
    return 0


def plays(families: Mapping[str, Sequence[float]]) -> list[Play]:
    """Pairs of at most `LONGEST` steps, a fault in each but the first."""
    items = [f"{name}:{amount:g}" for name, amounts in families.items() for amount in amounts]
    found = []
    for number, start in enumerate(range(0, len(items), LONGEST - 1), start=1):
        chosen = items[start : start + LONGEST - 1]
        text = ",".join(f"{item}@{step}" for step, item in enumerate(chosen, start=2))
        # In the order of the families, those that chance can hide come first.
        prompts = MANY_PROMPTS if any(item.partition(":")[0] in TOLD_FROM_CHANCE for item in chosen) else PROMPTS
        found.append(Play(f"sensitivity_{number}", plans.parse(text), steps=max(len(chosen) + 1, 3), prompts=prompts))
    return found


def tried(played: Played, planted: plans.PlantedFault) -> dict[str, Any]:
    """The verdict on one amount."""
    verdict = verdict_on(played, planted.first)
    strongest: VerdictEvidence | None = verdict.evidence[0] if verdict.evidence else None
    return {
        "amount": planted.amount,
        "found": verdict.phase is planted.fault.phase,
        "verdict": verdict.phase.value,
        "strongest": None if strongest is None else f"{strongest.finding.aspect.value}/{strongest.finding.quantity}",
        "times_its_limit": None if strongest is None else strength(strongest.finding),
    }


def table(found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    shown = Table(title="How small may a fault be", title_justify="left")
    for heading in ("fault", "found at", "not found at", "by"):
        shown.add_column(heading)
    for name, each in found.items():
        seen, unseen = ([one for one in each if one["found"] is wanted] for wanted in (True, False))
        by = dict.fromkeys(one["strongest"] for one in seen)
        shown.add_row(name, amounts(seen), amounts(unseen), ", ".join(map(str, by)))
    return shown


def amounts(each: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{one['amount']:g}" for one in each)


def draw(found: Mapping[str, Sequence[Mapping[str, Any]]], path: Path) -> None:
    """One small plot a family: a mark an amount, full if the right phase was named."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    matplotlib.rcParams.update({"svg.hashsalt": "sensitivity", "font.size": 9})
    columns = 4
    rows = -(-len(found) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(11, 2.1 * rows), layout="constrained")
    for plot, (name, each) in zip(axes.flat, found.items(), strict=False):
        places = range(len(each))
        heights = [min(max(one["times_its_limit"] or 0.1, 0.1), 1e6) for one in each]
        colours = ["#1a7f5a" if one["found"] else "#ffffff" for one in each]
        plot.plot(places, heights, color="#9aa5b1", linewidth=1, zorder=1)
        plot.scatter(places, heights, c=colours, edgecolors="#1a7f5a", zorder=2)
        plot.axhline(1, color="#b3261e", linewidth=1, linestyle="--")
        plot.set_yscale("log")
        plot.set_title(name)
        plot.set_xticks(list(places), [f"{one['amount']:g}" for one in each])
        plot.spines[["top", "right"]].set_visible(False)
    for plot in axes.flat[len(found) :]:
        plot.set_visible(False)
    figure.supylabel("strongest evidence, times its threshold")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


BENCHMARK = Benchmark(pairs.options, _run, lambda args: "sensitivity")
