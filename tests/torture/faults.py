# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that may go wrong around two runs, once each: disks, clocks, listings, and the other run.

After each fault either both runs end with the numbers of an undisturbed pair, or both end with an error that explains
itself, and a resumed pair ends with those numbers. Time goes `SPEED` times as fast where silence is waited for.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torture import disturbances
from torture.disturbances import (
    Failing,
    FullDisk,
    OldListings,
    PausedAt,
    ScaledClock,
    ShortWrites,
    Trouble,
)
from torture.kills import COURSE, VALIDATED, KillSetting, points_of, thinned
from torture.pair import MODES, ToyOutcome, ToyPair, new_pair, wait_for, wait_until
from torture.points import Point, Watch
from torture.toy import Course
from torture.zygote import Child, Task
from verl.crosscheck.exchange.layout import OTHER

SPEED = 60.0
SILENCE_S = 180.0
TRAVELS_S = 10.0
"""In this time the other run must have learnt of an error, and have ended with it."""
CHANGES = ("create", "write", "mkdir", "link", "rename", "open", "second half")
"""Operations that need space."""

Problems = list[str]


@dataclass(frozen=True)
class InjectedFault:
    """One trial.

    Args:
        kind: what the report counts it as.
        case: the rest of its name.
        trial: does it, and says what was wrong.
    """

    kind: str
    case: str
    trial: Callable[[], Problems]

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.case}"


def scaled() -> ScaledClock:
    return ScaledClock(SPEED)


# ---------------------------------------------------------------- one run fails, the other learns of it


def disturbed(
    setting: KillSetting,
    mode: str,
    watch: Watch,
    *,
    course: Course = COURSE,
    why: str = "",
    must_fail: bool = False,
    mute: bool = False,
) -> Problems:
    """One run has a fault. Both end well, or both end with words and go on when started again.

    Args:
        why: what the other run must be told.
        must_fail: whether the run that has the fault may not survive it.
        mute: whether it may be unable to tell, so that the other one may also learn by its silence.
    """
    clock = scaled if mute else None
    with new_pair(course, setting.scratch, template=setting.template) as pair:
        other = pair.start(OTHER[mode], clock=clock)
        wait_until(lambda: _places(pair, OTHER[mode]) > _places(pair, OTHER[mode], earlier=True))
        victim = pair.start(mode, watch, clock=clock)
        if not wait_for([victim]):
            return ["the run with the fault hung", pair.tail()]
        problems = []
        outcome = pair.outcome(mode)
        if outcome is None:
            problems.append("the run with the fault left no word")
        elif outcome.state is None:
            problems += _judge_failure(pair, mode, outcome, other, why, mute=mute)
        elif must_fail:
            problems.append("the fault did nothing")
        wait_for([other])
        problems += _go_on(pair, setting)
        return problems


def _judge_failure(pair: ToyPair, mode: str, failed: ToyOutcome, other: Child, why: str, *, mute: bool) -> Problems:
    """A run has ended with an error: is it one of ours, and does the other run learn of it?"""
    problems = [] if failed.ours or why else [f"the error is not of the cross-check's tree: {failed}"]
    if _places(pair, mode) == _places(pair, mode, earlier=True):
        other.kill()  # it waits for a run that could not even take its place, and would for hours
        return problems
    if not wait_for([other], TRAVELS_S):
        return [*problems, f"the other run did not end within {TRAVELS_S:.0f} s of: {failed}"]
    told = pair.outcome(OTHER[mode])
    if told is None or told.state or told.error == "DirectoryError" or (mute and told.error == "PeerSilentError"):
        return problems
    missing = [part for part in ("run ", f"mode {mode}", "pid ", why or failed.error) if part not in told.message]
    if told.error != "PeerFailedError" or missing:
        problems.append(f"the other run says {told}, in which {missing} is missing (the error was {failed})")
    return problems


def _places(pair: ToyPair, mode: str, *, earlier: bool = False) -> int:
    folder = pair.root / "sessions"
    return len(list(folder.glob(f"session_{'1' if earlier else '*'}/runs/{mode}_*/card.json")))


def _go_on(pair: ToyPair, setting: KillSetting) -> Problems:
    """Start again whoever has not finished, both if either failed; judge numbers and artefacts."""
    problems = pair.audit(earlier=setting.earlier)
    if pair.problems():
        children = pair.resume(MODES)
        if not wait_for(list(children.values())):
            problems.append("the resumed pair hung")
    found = pair.problems() + pair.audit(earlier=setting.earlier)
    found += [f"left over: {name}" for name in pair.left_over()]
    return problems + found + ([pair.tail()] if problems or found else [])


def disk_errors(setting: KillSetting, codes: Iterable[int], *, quick: bool = False) -> list[InjectedFault]:
    """An error at the first of each operation in each phase; or of each phase, and of each operation."""
    faults = []
    for mode in MODES:
        first = _first_points(points_of(mode, VALIDATED, setting))
        if quick:
            phases = thinned(first, 0, lambda point: point.split("/")[1])
            first = list(dict.fromkeys([*phases, *thinned(first, 0, lambda point: point.rpartition(":")[2])]))
        for code in codes:
            for point in first:
                operation = point.rpartition(":")[2]
                if code != errno.ENOSPC or operation in CHANGES:
                    kind = errno.errorcode[code]
                    faults.append(InjectedFault(kind, f"{mode} at {point}", _failing(setting, mode, point, code)))
    return faults


def _first_points(names: list[str]) -> list[str]:
    """The first point of each operation in each phase; in step 2, by which the runs have met, if there is one."""
    first: dict[tuple[str, str], str] = {}
    before = [name.partition("@")[0] for name in names if name.endswith("@before")]
    for point in sorted(before, key=lambda point: not point.startswith("2/")):
        _, phase, rest = point.split("/", 2)
        if phase != "own checkpoint":
            first.setdefault((phase, rest.partition(":")[2]), point)
    return list(first.values())


def _failing(setting: KillSetting, mode: str, point: str, code: int) -> Callable[[], Problems]:
    return lambda: disturbed(setting, mode, Failing(point, code), course=VALIDATED)


def short_writes(setting: KillSetting) -> list[InjectedFault]:
    return [
        InjectedFault("short writes", mode, partial(disturbed, setting, mode, ShortWrites(), course=VALIDATED))
        for mode in MODES
    ]


def full_disks(setting: KillSetting) -> list[InjectedFault]:
    """Writes that end half way."""
    return [
        InjectedFault(
            "full disk",
            f"{mode} with {free_bytes} bytes left",
            partial(disturbed, setting, mode, FullDisk(2, free_bytes), mute=True),
        )
        for mode in MODES
        for free_bytes in (0, 1, 700, 3000, 9000)
    ]


def errors_of_the_trainer(setting: KillSetting) -> list[InjectedFault]:
    """The trainer raises in each part of a step."""
    parts = {"ckpt": ("generate", "train", "load", "validate"), "rollout": ("train", "save")}
    return [
        InjectedFault(
            "error of the trainer",
            f"{mode} in {what}",
            partial(
                disturbed,
                setting,
                mode,
                Trouble(what, 3, disturbances.fail(f"boom in {what}")),
                course=VALIDATED,
                why=f"boom in {what}",
                must_fail=True,
            ),
        )
        for mode, whats in parts.items()
        for what in whats
    ]


# ---------------------------------------------------------------- both runs see the same world


def together(
    setting: KillSetting,
    watch: Callable[[str], Watch | None] = lambda mode: None,
    *,
    course: Course = VALIDATED,
    fast: bool = False,
    **start: Any,
) -> Problems:
    """Both runs have a fault that must not matter."""
    with new_pair(course, setting.scratch, template=setting.template) as pair:
        children = [pair.start(mode, watch(mode), clock=scaled if fast else None, **start) for mode in MODES]
        problems = [] if wait_for(children) else ["hung"]
        problems += pair.problems() + pair.audit(earlier=setting.earlier)
        return problems + ([pair.tail()] if problems else [])


def worlds(setting: KillSetting) -> list[InjectedFault]:
    """Clocks that jump, readers that are slow, listings of a minute ago."""
    faults = [
        InjectedFault(
            "jumping clock",
            "both",
            lambda: together(setting, watch=lambda mode: None, setup=disturbances.jumping_clock),
        ),
    ]
    for what in ("load", "train", "generate"):
        faults.append(InjectedFault("slow reader", what, partial(together, setting, partial(_slow, what))))
    for refetched in (True, False):
        old = partial(_old_listings, refetched)
        name = "own changes refetch" if refetched else "own changes are put in"
        faults.append(
            InjectedFault("listing lags 60 s", name, partial(together, setting, old, course=COURSE, fast=True))
        )
        for mode in MODES:
            faults.append(
                InjectedFault(
                    "listing lags 60 s",
                    f"{name}, {mode} begins while the other does",
                    partial(race_with_old_listing, setting, mode, refetched=refetched),
                )
            )
    return faults


def _slow(what: str, mode: str) -> Trouble:
    return Trouble(what, 3, disturbances.sleep(1.5))


def _old_listings(refetched: bool, mode: str) -> OldListings:
    return OldListings(60.0, scaled(), refetched=refetched)


class _StoppedBeforeItsPlace(OldListings):
    """Is stopped when it has looked whether there is a session, and is about to begin one."""

    def before(self, point: Point) -> None:
        if point.phase == "claim" and point.operation == "rename" and point.path and point.path.name[:7] == "session":
            disturbances.stop_this_process()


def race_with_old_listing(setting: KillSetting, mode: str, *, refetched: bool) -> Problems:
    """Both begin a session at once, and the loser's listing still shows none."""
    with new_pair(COURSE, setting.scratch, template=setting.template) as pair:
        loser = pair.start(mode, _StoppedBeforeItsPlace(60.0, scaled(), refetched=refetched), clock=scaled)
        wait_until(lambda: is_stopped(loser))
        winner = pair.start(OTHER[mode], OldListings(60.0, scaled(), refetched=refetched), clock=scaled)
        wait_until(lambda: _places(pair, OTHER[mode]) > _places(pair, OTHER[mode], earlier=True))
        while loser.poll(0.05) is None and winner.poll() is None:  # it is stopped before each attempt
            loser.signal(signal.SIGCONT)
        problems = [] if wait_for([loser, winner]) else ["hung"]
        problems += pair.problems() + pair.audit(earlier=setting.earlier)
        return problems + ([pair.tail()] if problems else [])


# ---------------------------------------------------------------- the other run is gone, or only seems so


def stopped_for(setting: KillSetting, mode: str, real_s: float, *, fast: bool) -> Problems:
    """A run is stopped for a while, and continued. Longer than the silence the other gives it up, and it must end."""
    with new_pair(COURSE, setting.scratch, template=setting.template) as pair:
        clock = scaled if fast else None
        watch = Trouble("train", 3, disturbances.stop_this_process)
        stopped, other = pair.start(mode, watch, clock=clock), pair.start(OTHER[mode], clock=clock)
        wait_until(lambda: is_stopped(stopped))
        given_up = real_s * (SPEED if fast else 1) > SILENCE_S
        other.poll(real_s)
        problems = []
        if given_up:
            said = pair.outcome(OTHER[mode])
            if said is None or said.error != "PeerSilentError" or f"mode {mode}" not in said.message:
                problems.append(f"the other run should have given it up, and says: {said}")
        stopped.signal(signal.SIGCONT)
        if not wait_for([stopped, other]):
            problems.append("hung")
        if given_up and ((came_back := pair.outcome(mode)) is None or came_back.error != "PeerFailedError"):
            problems.append(f"the run that came back should have learnt of it, and says: {came_back}")
        return problems + _go_on(pair, setting)


def gone(setting: KillSetting, mode: str) -> Problems:
    """A run is killed, and nobody starts it again: the other one ends after the silence."""
    with new_pair(COURSE, setting.scratch, template=setting.template) as pair:
        watch = Trouble("train", 3, lambda: os.kill(os.getpid(), signal.SIGKILL))
        victim, other = pair.start(mode, watch, clock=scaled), pair.start(OTHER[mode], clock=scaled)
        wait_for([victim])
        start_s = time.monotonic()
        wait_for([other])
        took_s, said = (time.monotonic() - start_s) * SPEED, pair.outcome(OTHER[mode])
        problems = []
        if said is None or said.error != "PeerSilentError" or not SILENCE_S * 0.8 < took_s < SILENCE_S + 120:
            problems.append(f"after {took_s:.0f} s of silence the other run says: {said}")
        return problems + _go_on(pair, setting)


def zombie(setting: KillSetting, mode: str, point: str) -> Problems:
    """A run of another host is stopped, given up, replaced, and comes back: it must end, and change nothing."""
    patient, brisk = {"share_data_silence_s": 3600.0}, {"share_data_silence_s": 15.0}
    with new_pair(COURSE, setting.scratch, template=setting.template, settings=patient) as pair:
        elsewhere = partial(pair.start, clock=scaled, setup=disturbances.on_another_host)
        first = elsewhere(mode, PausedAt(point))
        survivor = elsewhere(OTHER[mode])
        wait_until(lambda: is_stopped(first))
        if first.poll() is not None:
            survivor.kill()
            return [f"never came to {point}", pair.tail()]
        before = pair.claims()
        pair.settings = brisk
        second = elsewhere(mode, outcome="second.json")
        wait_until(lambda: pair.claims() > before)
        first.signal(signal.SIGCONT)
        problems = [] if wait_for([first, second, survivor]) else ["hung"]
        said = pair.outcome(mode)
        if said is None or said.error not in ("SessionError", "PublishError"):
            problems.append(f"the run that came back says: {said}")
        with suppress(FileNotFoundError):
            (pair.own(mode) / "second.json").replace(pair.own(mode) / "outcome.json")
        problems += pair.problems() + pair.audit(earlier=setting.earlier)
        return problems + ([pair.tail()] if problems else [])


def deleted_directory(setting: KillSetting, mode: str, what: str) -> Problems:
    """Somebody removes the exchange directory: both end within seconds, and say so."""
    with new_pair(COURSE, setting.scratch, template=setting.template) as pair:
        watch = Trouble(what, 3, disturbances.remove(pair.root))
        children = [pair.start(mode, watch), pair.start(OTHER[mode])]
        start_s, problems = time.monotonic(), []
        if not wait_for(children):
            problems.append("hung")
        if (took_s := time.monotonic() - start_s) > TRAVELS_S:
            problems.append(f"took {took_s:.0f} s")
        for each in MODES:
            outcome = pair.outcome(each)
            own = what == "load" and each == mode  # then it is the trainer's own reading that fails
            if outcome is None or not (outcome.ours or own) or str(pair.root) not in outcome.message:
                problems.append(f"{each} says: {outcome}")
        return problems + ([pair.tail()] if problems else [])


def no_heartbeat(setting: KillSetting, mode: str) -> Problems:
    watch = Failing("", errno.EIO, also=lambda point: point.phase == "beat")
    return disturbed(setting, mode, watch)


def no_word_on_the_end(setting: KillSetting, mode: str) -> Problems:
    """A run fails and cannot even say so: the other one ends after the silence."""

    class Mute(Trouble):
        def before(self, point: Point) -> None:
            if point.phase == "end":
                raise OSError(errno.EIO, os.strerror(errno.EIO))

    with new_pair(COURSE, setting.scratch, template=setting.template) as pair:
        watch = Mute("train", 3, disturbances.fail("boom"))
        children = [pair.start(mode, watch, clock=scaled), pair.start(OTHER[mode], clock=scaled)]
        problems = [] if wait_for(children) else ["hung"]
        said = pair.outcome(OTHER[mode])
        if said is None or said.error != "PeerSilentError":
            problems.append(f"the other run says: {said}")
        return problems + _go_on(pair, setting)


def peers(setting: KillSetting) -> list[InjectedFault]:
    """Faults of the other run."""
    faults = []
    for mode in MODES:
        faults += [
            InjectedFault("stopped, shorter than silence", mode, partial(stopped_for, setting, mode, 2.0, fast=False)),
            InjectedFault("stopped, longer than silence", mode, partial(stopped_for, setting, mode, 5.0, fast=True)),
            InjectedFault("killed for good", mode, partial(gone, setting, mode)),
            InjectedFault("no heartbeat", mode, partial(no_heartbeat, setting, mode)),
            InjectedFault("no word on the end", mode, partial(no_word_on_the_end, setting, mode)),
        ]
    for mode, what in (
        ("ckpt", "generate"),
        ("ckpt", "train"),
        ("ckpt", "load"),
        ("rollout", "train"),
        ("rollout", "save"),
    ):
        faults.append(
            InjectedFault("deleted directory", f"{mode} in {what}", partial(deleted_directory, setting, mode, what))
        )
    for mode in MODES:
        for point in _zombie_points(points_of(mode, COURSE, setting), ZOMBIES[mode]):
            faults.append(InjectedFault("zombie", f"{mode} at {point}", partial(zombie, setting, mode, point)))
    return faults


ZOMBIES = {
    "ckpt": ["publish rollout:create", "publish rollout:link", "publish rollout:unlink", "load ckpt:read"],
    "rollout": [
        "publish ckpt:mkdir",
        "fill ckpt:second half",
        "publish ckpt:write",
        "publish ckpt:rename",
        "delete:rename",
    ],
}
"""Phases and operations at which a run is stopped, and replaced."""


def _zombie_points(names: list[str], wanted: list[str]) -> list[str]:
    """The first point of each phase and operation in step 3."""
    points = [name.partition("@")[0] for name in names if name.startswith("3/")]
    found = []
    for each in wanted:
        phase, _, operation = each.partition(":")
        found.append(next(p for p in points if p.split("/")[1] == phase and p.endswith(f":{operation}")))
    return found


# ---------------------------------------------------------------- a real small disk


def small_disk(setting: KillSetting, size_kb: int) -> Problems:
    """A real file system gets full, is made larger, and the runs go on."""
    course = Course(steps=12, save_freq=2)
    with new_pair(course, setting.scratch) as pair:
        pair.root.mkdir(mode=0o700)
        mount(pair.root, size_kb)
        try:
            children = [pair.start(mode) for mode in MODES]
            problems = [] if wait_for(children) else ["hung"]
            for mode in MODES:
                outcome = pair.outcome(mode)
                if outcome is None or (outcome.state is None and not outcome.ours):
                    problems.append(f"{mode} says: {outcome}")
            problems += pair.audit()
            subprocess.run(["mount", "-o", "remount,size=8m", str(pair.root)], check=True)
            return problems + _go_on(pair, KillSetting(setting.scratch, setting.template, {}))
        finally:
            subprocess.run(["umount", "-l", str(pair.root)], check=True)


def mount(folder: Path, size_kb: int) -> None:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_kb}k,mode=700", "tmpfs", str(folder)]
    subprocess.run(command, check=True, capture_output=True)


def can_mount(scratch: Path) -> str:
    """Why no small disk can be had here; empty if it can."""
    folder = scratch / "disk"
    folder.mkdir()
    try:
        mount(folder, 64)
    except (OSError, subprocess.CalledProcessError) as e:
        return f"no tmpfs can be mounted here: {getattr(e, 'stderr', b'') or e}"
    subprocess.run(["umount", str(folder)], check=True)
    return ""


def small_disks(setting: KillSetting, sizes_kb: Iterable[int]) -> list[InjectedFault]:
    return [InjectedFault("small disk", f"{size_kb} kB", partial(small_disk, setting, size_kb)) for size_kb in sizes_kb]


# ---------------------------------------------------------------- all of it


def is_stopped(child: Child) -> bool:
    """Whether a process is stopped by a signal; also if it has ended."""
    try:
        return Path(f"/proc/{child.pid}/stat").read_bytes().rpartition(b")")[2].split()[0] in (b"T", b"Z")
    except OSError:
        return True


def tasks(faults: Iterable[InjectedFault]) -> list[Task]:
    return [Task(partial(_result, fault), fault.name) for fault in faults]


def _result(fault: InjectedFault) -> dict[str, Any]:
    start_s = time.monotonic()
    problems = fault.trial()
    result = {"name": fault.name, "kind": fault.kind, "took_s": round(time.monotonic() - start_s, 2)}
    return result | ({"problems": problems} if problems else {})


def everything_else(setting: KillSetting) -> list[InjectedFault]:
    """All faults but the errors of disks at each point, which are many, and the small disks, which need a privilege."""
    return [
        *short_writes(setting),
        *full_disks(setting),
        *errors_of_the_trainer(setting),
        *worlds(setting),
        *peers(setting),
    ]
