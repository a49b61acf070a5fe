# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The short form of `scripts/torture`: a kill in each phase, each fault once, each damage, some hundred steps."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torture import toy
from torture.kills import one_of_each_phase, operation, thinned

ROOT = Path(__file__).resolve().parents[2]
Figures = dict[str, Any]

PHASES = {
    "acknowledge",
    "agree",
    "announce",
    "claim",
    "delete",
    "end",
    "facts",
    "fill ckpt",
    "find mark",
    "load ckpt",
    "load rollout",
    "mark",
    "own checkpoint",
    "publish ckpt",
    "publish rollout",
    "put aside",
    "report",
    "wait",
}


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> Figures:
    """What the short form found, all of it in one process that imports torch once."""
    out = tmp_path_factory.mktemp("torture") / "torture.json"
    memory = Path("/dev/shm")
    scratch = memory if os.access(memory, os.W_OK) else out.parent
    command = [
        sys.executable,
        "-m",
        "torture",
        "--quick",
        "--out",
        str(out),
        "--scratch",
        str(scratch),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert out.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    found: Figures = json.loads(out.read_text())
    assert done.returncode == bool(found["lost"] or found["damaged_inputs"] != found["refused"])
    return found


@pytest.mark.slow
def test_nothing_is_lost_by_a_kill_in_any_phase(figures: Figures) -> None:
    assert not figures["kills"]["failures"], figures["kills"]["failures"]
    assert figures["kill_points"] == figures["survived"] >= 36
    assert figures["kills"]["phases"].keys() >= PHASES


@pytest.mark.slow
def test_each_fault_is_survived_or_told(figures: Figures) -> None:
    assert not figures["faults"]["failures"], figures["faults"]["failures"]
    # Right when they were tried again. A stall of the machine hits several at once.
    assert len(figures["faults"]["unsteady"]) <= 3, json.dumps(figures["faults"]["unsteady"])
    assert figures["faults_injected"] >= 70
    assert {"EIO", "full disk", "listing lags 60 s", "zombie", "jumping clock"} <= figures["faults"]["kinds"].keys()


@pytest.mark.slow
def test_each_damaged_file_is_refused(figures: Figures) -> None:
    assert not figures["damage"]["problems"]
    assert figures["damaged_inputs"] == figures["refused"] >= 1000


@pytest.mark.slow
def test_neither_memory_nor_files_grow(figures: Figures) -> None:
    assert not figures["endurance"]["problems"]
    files = figures["endurance"]["files"]
    assert (files["rollouts"], files["checkpoints"]) == (300, 2)
    assert files["others"] == 1


@pytest.mark.slow
def test_signs_of_life_cost_next_to_nothing(figures: Figures) -> None:
    assert figures["cost"]["signs_of_life_percent_of_core"] < 0.5  # 0.1 on an idle machine


def test_each_number_depends_on_all_before_it() -> None:
    undisturbed = toy.sequence(toy.Course(5, test_freq=3))
    assert [(made.kind, made.step) for made in undisturbed.rollouts] == [
        ("validation", 0),
        ("training", 1),
        ("training", 2),
        ("training", 3),
        ("validation", 3),
        ("training", 4),
        ("training", 5),
        ("validation", 5),
    ]
    assert len(set(undisturbed.checkpoints)) == 5
    assert toy.sequence(toy.Course(5)).checkpoints == undisturbed.checkpoints
    assert toy.train(undisturbed.checkpoints[0], [[1]], 2, "healthy") != undisturbed.checkpoints[1]


def test_a_checkpoint_with_one_other_byte_is_not_taken_for_it(tmp_path: Path) -> None:
    toy.write_checkpoint(tmp_path, "f" * 32, lambda operation, path: None)
    assert toy.read_checkpoint(tmp_path) == "f" * 32
    shard = tmp_path / toy.shard_names()[1]
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(AssertionError, match="is not as it was written"):
        toy.read_checkpoint(tmp_path)


def test_points_are_thinned_evenly_and_none_of_a_kind_is_left_out() -> None:
    names = [f"1/publish/{number}:write@before" for number in range(100)] + ["1/end/1:link@after"]
    kept = thinned(names, 0.1, operation)
    assert kept[0] == names[0]
    assert kept[-1] == names[-1]
    assert 10 <= len(kept) <= 13
    assert one_of_each_phase(names) == [names[50], names[100]]
