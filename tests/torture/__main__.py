# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Proof that the exchange can be trusted: two fake runs through the real code, killed, starved and lied to.

Runs the whole torture, prints a table, and writes the figures as JSON. Ends with status 1 if anything was lost.

scripts/torture [--quick] [--every-point] [--out outputs/bench/torture.json]
"""

from __future__ import annotations

import argparse
import errno
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torture import damage, endurance, faults, kills
from torture.kills import KillSetting
from torture.pair import warm_up
from torture.zygote import Child, Task, fork, in_parallel

WORKERS = 3
"""Pairs at a time that are killed."""
PATIENT_WORKERS = 6
"""Pairs at a time that have a fault: those wait most of the time."""
SHARE = 0.1
"""Of all kill points, unless `--every-point` is given; of each operation in each phase at least the first."""
STEPS = 10_000
QUICK_STEPS = 300
TIDY_SHARE = 0.3
"""Of the steps, with rollouts cleared away."""
ENDURANCE_PATIENCE_S = 1200.0
SMALL_DISKS_KB = (160, 224, 288, 416)
SHOWN = 10

Figures = dict[str, Any]


def run(setting: KillSetting, arguments: argparse.Namespace, tell: Callable[[str], None]) -> Figures:
    """Everything; figures by part."""
    quick = arguments.quick
    share = 1.0 if arguments.every_point else 0.0 if quick else SHARE
    figures: Figures = {}
    endured = setting.scratch / "endurance.json"
    steps = QUICK_STEPS if quick else STEPS
    child = fork(lambda: endured.write_text(json.dumps(_endurance(setting, steps))), setting.scratch / "endurance.log")
    parts: list[tuple[str, Callable[[], Figures]]] = [
        ("damage", lambda: _damage(setting)),
        ("faults", lambda: _faults(setting, tell, quick=quick)),
        ("kills", lambda: _kills(setting, share, tell, quick=quick)),
        ("endurance", lambda: _result_of(child, endured)),
        ("cost", lambda: _cost(setting, quick=quick)),
    ]
    if not quick and not arguments.without_runs:
        parts.append(("runs", lambda: _runs(setting)))
    for name, part in parts:
        start_s = time.monotonic()
        figures[name] = part()
        figures[name]["took_s"] = round(time.monotonic() - start_s, 1)
        tell(f"{name} took {figures[name]['took_s']} s")
    return figures


def _kills(setting: KillSetting, share: float, tell: Callable[[str], None], *, quick: bool) -> Figures:
    planned = kills.plan_kills(setting, share, quick=quick)
    tell(f"killing {len(planned)} times")
    return kills.summary(kills.run_kills(setting, planned, WORKERS, _teller(tell, len(planned))))


def _faults(setting: KillSetting, tell: Callable[[str], None], *, quick: bool) -> Figures:
    codes = [errno.EIO] if quick else [errno.EIO, errno.ENOSPC]
    chosen = [*faults.disk_errors(setting, codes, quick=quick), *faults.everything_else(setting)]
    reason = faults.can_mount(setting.scratch)
    if not reason:
        chosen += faults.small_disks(setting, SMALL_DISKS_KB[: 1 if quick else None])
    tell(f"injecting {len(chosen)} faults")
    results = in_parallel(faults.tasks(chosen), PATIENT_WORKERS, setting.scratch, _teller(tell, len(chosen)))
    wrong = [result for result in results if "problems" in result or "broken" in result]
    unsteady: list[dict[str, Any]] = []
    if quick and wrong:  # where tests run, others run as well: what fails once is tried again, and told
        names = {result["name"] for result in wrong}
        again = in_parallel(
            [task for task in faults.tasks(chosen) if task.name in names], PATIENT_WORKERS, setting.scratch
        )
        unsteady, wrong = wrong, [result for result in again if "problems" in result or "broken" in result]
    by_kind = Counter(result.get("kind", "?") for result in results)
    return {
        "faults_injected": len(results),
        "lost": len(wrong),
        "kinds": dict(by_kind),
        "not_run": {"small disk": reason} if reason else {},
        "slowest_s": {r["name"]: r["took_s"] for r in sorted(results, key=lambda r: -r.get("took_s", 0))[:3]},
        "failures": wrong,
        "unsteady": unsteady,
    }


def _damage(setting: KillSetting) -> Figures:
    folder = setting.scratch / "damage"
    folder.mkdir(mode=0o700)
    task = Task(lambda: damage.run_damages(folder), "damage", 300)
    found: Figures = in_parallel([task], 1, setting.scratch)[0]
    if "broken" in found:
        found = {"damaged_inputs": 1, "refused": 0, "kinds": {}, "problems": [found["broken"]]}
    return found


def _cost(setting: KillSetting, *, quick: bool) -> Figures:
    from recipe.crosscheck.bench.exchange import measure_checkpoint, measure_signs_of_life

    size_bytes = 64 * 2**20 if quick else 2 * 2**30
    return {**measure_checkpoint(setting.scratch, size_bytes), **measure_signs_of_life(setting.scratch)}


def _runs(setting: KillSetting) -> Figures:
    """Real training runs, killed in turn while they save, wait and load, and started again."""
    from torture.interrupted import run_cases

    folder = setting.scratch / "runs"
    folder.mkdir(mode=0o700)
    outcomes = run_cases(folder)
    return {
        "killed": len(outcomes),
        "same_metrics": sum(not outcome.different for outcome in outcomes),
        "cases": [asdict(outcome) for outcome in outcomes],
        "problems": [f"{outcome.case}: {outcome.different[:5]}" for outcome in outcomes if outcome.different],
    }


def _result_of(child: Child, out: Path) -> Figures:
    """What a child that has worked all the while has found."""
    child.poll(ENDURANCE_PATIENCE_S)
    if child.status is None:
        child.kill()
    if child.status == 0:
        found: Figures = json.loads(out.read_text())
        return found
    return {
        "steps": 0,
        "problems": [f"ended with status {child.status}: {out.with_suffix('.log').read_text()[-2000:]}"],
    }


def _endurance(setting: KillSetting, steps: int) -> Figures:
    """Thousands of steps, besides everything else: what a step takes is told by its CPU time."""
    kept = endurance.endure(steps, setting.scratch, ENDURANCE_PATIENCE_S)
    tidy = endurance.endure(int(steps * TIDY_SHARE), setting.scratch, 300, tidy=True)
    problems = [*kept.pop("problems"), *(f"rollouts cleared away: {problem}" for problem in tidy.pop("problems"))]
    return {**kept, "rollouts_cleared_away": tidy, "problems": problems}


def _teller(tell: Callable[[str], None], total: int) -> Callable[[Any], None]:
    done = [0]

    def told(result: Any) -> None:
        done[0] += 1
        if "problems" in result or "broken" in result:
            tell(f"LOST: {result['name']}: {(result.get('problems') or [result.get('broken')])[0]}")
        if done[0] % 100 == 0:
            tell(f"{done[0]} of {total}")

    return told


def report(figures: Figures) -> Figures:
    """What is written: totals first, and everything else below."""
    endured, damaged, injected, killed = (figures[name] for name in ("endurance", "damage", "faults", "kills"))
    runs = figures.get("runs", {"problems": []})
    lost = killed["lost"] + injected["lost"] + len(endured["problems"]) + len(runs["problems"])
    return {
        "kill_points": killed["kill_points"],
        "survived": killed["survived"],
        "lost": lost,
        "faults_injected": injected["faults_injected"],
        "damaged_inputs": damaged["damaged_inputs"],
        "refused": damaged["refused"],
        **figures,
    }


def table(figures: Figures) -> str:
    """For people."""
    lines = [f"{name:18}{figures[name]:>8}" for name in list(figures)[:6]]
    lines += ["", f"{'phase':20}{'kills':>8}{'survived':>10}"]
    for phase, counts in sorted(figures["kills"]["phases"].items()):
        lines.append(f"{phase:20}{counts['kill_points']:>8}{counts['survived']:>10}")
    lines += ["", f"{'fault':32}{'injected':>8}"]
    lines += [f"{kind:32}{count:>8}" for kind, count in figures["faults"]["kinds"].items()]
    lines += [f"{kind:32}not run: {reason}" for kind, reason in figures["faults"]["not_run"].items()]
    lines += ["", f"{'damaged':20}{'inputs':>8}{'refused':>10}"]
    for kind, counts in figures["damage"]["kinds"].items():
        lines.append(f"{kind:20}{counts['damaged_inputs']:>8}{counts['refused']:>10}")
    endured = figures["endurance"]
    lines += ["", f"{endured['steps']} steps: first, middle and last of"]
    for mode, each in endured.get("runs", {}).items():
        lines += [f"  {mode:8}{name:20}{value}" for name, value in each.items()]
    lines += ["", *(f"{name:40}{value:>12.5g}" for name, value in figures["cost"].items())]
    if "runs" in figures:
        lines += ["", f"real runs killed {figures['runs']['killed']}, same metrics {figures['runs']['same_metrics']}"]
    for part in ("kills", "faults", "damage", "endurance", *(["runs"] if "runs" in figures else [])):
        lines += [f"LOST: {problem}" for problem in _problems(figures[part])[:SHOWN]]
    return "\n".join(lines)


def _problems(part: Figures) -> list[str]:
    failures = [
        f"{each['name']}: {'; '.join(map(str, each.get('problems', [each.get('broken')])))[:2000]}"
        for each in part.get("failures", [])
    ]
    return [*failures, *part.get("problems", [])]


def parser() -> argparse.ArgumentParser:
    """Return what reads the options."""
    parser = argparse.ArgumentParser(prog="scripts/torture", description="Tries to make the exchange lose something.")
    parser.add_argument("--quick", action="store_true", help="a short form of everything, about a minute")
    parser.add_argument("--every-point", action="store_true", help="kill at every point: about ten minutes more")
    parser.add_argument("--without-runs", action="store_true", help="no real training runs: about ten minutes less")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench/torture.json"), help="where the figures go")
    parser.add_argument("--scratch", type=Path, help="directory on the disk under test (default: the temporary one)")
    return parser


def main() -> None:
    arguments = parser().parse_args()
    warm_up()
    start_s = time.monotonic()

    def tell(line: str) -> None:
        sys.stdout.write(f"[{time.monotonic() - start_s:5.0f} s] {line}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
        figures = report(run(KillSetting.make(Path(scratch)), arguments, tell))
    figures["total_s"] = round(time.monotonic() - start_s, 1)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    sys.stdout.write(f"{table(figures)}\nwritten to {arguments.out}\n")
    if figures["lost"] or figures["damaged_inputs"] != figures["refused"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
