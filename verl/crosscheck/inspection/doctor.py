# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What `verl-crosscheck doctor` finds out of a directory: all checks in order, and the report that they make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from verl.crosscheck.agreement.batch_split import batch_split_of, why_other_updates
from verl.crosscheck.agreement.compare import flatten
from verl.crosscheck.errors import CrossCheckError, MismatchError
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.session import run_files
from verl.crosscheck.exchange.session.claim import current_session
from verl.crosscheck.exchange.session.run_files import Card
from verl.crosscheck.inspection.doctor_checks import Check, CheckContext, CheckResult, run_checks
from verl.crosscheck.inspection.doctor_notes import Found
from verl.crosscheck.inspection.estimate import Estimate
from verl.crosscheck.inspection.mounts import Mount
from verl.crosscheck.run.ckpt_format import choose
from verl.crosscheck.settings import MODES
from verl.crosscheck.text import data_size

SCHEMA = "verl-crosscheck/doctor"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class DoctorReport:
    """The result of all checks; `--json` prints it."""

    directory: str
    host: str
    result: CheckResult = field(metadata={"key": "verdict"})
    checks: tuple[Check, ...]
    mount: Mount | None
    estimate: Estimate | None
    notes: tuple[Found, ...]
    schema: str = SCHEMA
    schema_version: int = SCHEMA_VERSION


def all_checks(
    root: Path, warnings: list[str], mount: Mount | None, context: CheckContext, wanted: Estimate | None
) -> Iterator[Check]:
    """Yield each check of the directory `root` as soon as it is done: its owner, file system, room, and the two runs.

    Args:
        warnings: what opening the directory warned of.
        mount: the file system that it lies on.
        wanted: what a pair of runs needs; None if nobody said.
    """
    yield _directory_check(warnings)
    yield _mount_check(mount)
    yield from run_checks(context)
    yield _space_check(filesystem.active().free_bytes(root), wanted)
    yield from pair_checks(root)


def _directory_check(warnings: list[str]) -> Check:
    if warnings:
        return Check("directory", CheckResult.WARNING, "; ".join(warnings), "Harmless where there is no other user")
    return Check("directory", CheckResult.OK, "is this user's, and nobody else can write in it or replace it")


def _mount_check(mount: Mount | None) -> Check:
    if mount is None:
        return Check("file system", CheckResult.OK, "the kernel does not name it")
    dubious = mount.kind in ("tmpfs", "ramfs", "overlay", "cifs", "smb3")
    result = CheckResult.WARNING if dubious else CheckResult.OK
    return Check("file system", result, f"{mount.kind} from {mount.source}", mount.caveat)


def _space_check(free_bytes: int, wanted: Estimate | None) -> Check:
    free = f"{data_size(free_bytes)} free"
    measured = {"free_bytes": float(free_bytes)}
    if wanted is None:
        advice = "--model PATH or --parameters N holds it against what a pair needs"
        return Check("free space", CheckResult.OK, free, advice, measured)
    needed = f"{free}, {data_size(wanted.needed_bytes)} needed: {_formula(wanted)}"
    if free_bytes < wanted.needed_bytes:
        missing = data_size(wanted.needed_bytes - free_bytes)
        return Check("free space", CheckResult.FAILED, needed, f"{missing} are missing: free them", measured)
    if free_bytes < 1.1 * wanted.needed_bytes:
        return Check("free space", CheckResult.WARNING, needed, "This is tight", measured)
    return Check("free space", CheckResult.OK, needed, "", measured)


def _formula(wanted: Estimate) -> str:
    number = wanted.steps if wanted.keep is None else wanted.keep + 1
    text = (
        f"{number} checkpoints of {data_size(wanted.checkpoint_bytes)} ({_in_words(wanted.parameters)} parameters, "
        f"from {wanted.source}, {wanted.bytes_each} bytes each)"
    )
    if wanted.rollout_bytes:
        return f"{text} and {wanted.steps} rollouts of {data_size(wanted.rollout_bytes)}"
    return f"{text}; rollouts are not counted"


def _in_words(number: int) -> str:
    return f"{number / 1e9:.3g} billion" if number >= 1e8 else f"{number:,}"


def pair_checks(root: Path) -> Iterator[Check]:
    """Yield whether the two runs of the current session suit each other; nothing before both have taken part."""
    try:
        pair = _pair(root)
    except (CrossCheckError, OSError) as e:
        yield Check("the two runs", CheckResult.WARNING, f"what they say of themselves cannot be read: {e}")
        return
    if pair is None:
        return
    try:
        choice = choose(*pair)
    except MismatchError as e:
        yield Check("checkpoints", CheckResult.FAILED, str(e))
    else:
        yield Check("checkpoints", CheckResult.OK, f"exchanged in the {choice.format.value} form: {choice.reason}")
    why = why_other_updates(*(batch_split_of(flatten(card.config)) for card in pair))
    if why:
        yield Check("updates", CheckResult.WARNING, f"the verdict will not compare them: {why}")
    else:
        yield Check("updates", CheckResult.OK, "both runs do the same update on the same rows, whatever their layout")


def _pair(root: Path) -> tuple[Card, Card] | None:
    """Return the cards of the current runs, mode `ckpt` first: the texts call that run "here"."""
    session = current_session(root)
    names = [None if session is None else session.newest(mode) for mode in MODES]
    ckpt, rollout = names
    return None if ckpt is None or rollout is None else (run_files.read_card(ckpt), run_files.read_card(rollout))
