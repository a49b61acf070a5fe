# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A session that version 0.1.0 recorded is read by every command; see README.md beside this file.

That a run replays it is tested in tests/special_e2e.
"""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RECORDED = Path(__file__).with_name("session_0_1_0")
COMMAND = Path(sys.executable).with_name("verl-crosscheck")
SESSION = "2d4462c3d4de6b46"


@pytest.fixture
def root(tmp_path):
    copy = tmp_path / "share"
    shutil.copytree(RECORDED, copy)
    copy.chmod(0o700)
    return copy


def verl_crosscheck(*arguments, status=0):
    done = subprocess.run(
        [str(COMMAND), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout


IMPORTED = """
import atexit, sys
from _verl_overlay.command import main
heavy = ("torch", "ray", "transformers", "tensordict")
atexit.register(lambda: print("imported:", *(name for name in heavy if name in sys.modules)))
sys.argv[0] = "verl-crosscheck"
main()
"""


@pytest.mark.parametrize(
    ("command", "status"),
    [
        (["report", ".", "-o", "page.html"], 10),
        (["report", ".", "--recompute", "--json"], 10),
        (["report", ".", "--lang", "zh"], 10),
        (["status", "."], 0),
        (["status", ".", "--json"], 0),
        (["clean", ".", "--all"], 0),
        (["doctor", ".", "--megabytes", "1"], 0),
        (["show", "rollout_0"], 0),
        (["show", "sessions/session_1"], 0),
        (["show", "sessions/session_1/runs/ckpt_1"], 0),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_whoever_reads_imports_no_torch(root, command, status):
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *command], capture_output=True, text=True, check=False, timeout=120, cwd=root
    )
    assert done.returncode == status, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "imported:", done.stderr


def test_report(root):
    found = json.loads(verl_crosscheck("report", root, "--json", status=10))
    verdict = found["verdict"]
    assert (verdict["phase"], verdict["first_step"], verdict["steps"]) == ("rollout", 2, 3)
    assert (verdict["confidence"], verdict["because"]) == ("high", ["weights_not_in_engine"])
    strongest = verdict["evidence"][0]["finding"]
    assert (strongest["quantity"], strongest["value"]) == ("tensors_out_of_sync", 27.0)


@pytest.mark.parametrize("source", ["logged", "recomputed"])
def test_the_comparisons_of_the_runs_and_those_made_anew_are_the_same(root, source):
    arguments = ["--recompute"] if source == "recomputed" else []
    found = json.loads(verl_crosscheck("report", root, "--json", *arguments, status=10))
    steps = {each["finding"]["quantity"]: each["finding"]["value"] for each in found["verdict"]["evidence"]}
    assert steps["k3"] == pytest.approx(0.00161, rel=0.01)


def test_page_in_both_languages(root, tmp_path):
    pages = {}
    for language in ("en", "zh"):
        page = tmp_path / f"{language}.html"
        verl_crosscheck("report", root, "--lang", language, "-o", page, status=10)
        pages[language] = page.read_text(encoding="utf-8")
    assert "Rollout" in pages["en"] and "since step 2" in pages["en"]
    text = re.sub(r"<(style|script|code|pre)\b.*?</\1>|<[^>]+>", " ", pages["zh"], flags=re.DOTALL)
    assert "推理" in text and "置信度" in text
    # A sentence of English would have several plain words in a row; names, keys and commands have not.
    assert re.findall(r"\b(?:the|is|are|of|was|were|not|and|from) [a-z]+ [a-z]+", text) == []


def test_status(root):
    found = json.loads(verl_crosscheck("status", root, "--json"))
    assert (found["session"]["id"], found["attention"]) == (SESSION, False)
    assert [(run["mode"], run["state"], run["global_step"]) for run in found["runs"]] == [
        ("ckpt", "finished", 3),
        ("rollout", "finished", 3),
    ]


def test_show(root):
    rollout = json.loads(verl_crosscheck("show", root / "rollout_1", "--json"))
    assert (rollout["about"]["global_step"], rollout["distinct_prompts"]) == (2, 16)
    assert {"prompts", "responses", "response_mask", "rollout_log_probs"} <= {c["name"] for c in rollout["columns"]}
    ckpt = json.loads(verl_crosscheck("show", root / "ckpt_2", "--json"))
    assert (ckpt["about"]["format"], ckpt["about"]["session"]) == ("native", SESSION)
    session = json.loads(verl_crosscheck("show", root / "sessions" / "session_1", "--json"))
    assert session["runs"] == ["ckpt_1", "rollout_1"]
    assert "finished" in verl_crosscheck("show", root / "sessions" / "session_1" / "runs" / "ckpt_1")


def test_clean(root):
    assert json.loads(verl_crosscheck("clean", root, "--json"))["plan"]["items"] == []
    planned = json.loads(verl_crosscheck("clean", root, "--all", "--json"))["plan"]["items"]
    assert [item["path"] for item in planned] == [
        *("rollout_0", "rollout_1", "rollout_2", "ckpt_1", "ckpt_2"),
        "sessions/session_1",
    ]
    verl_crosscheck("clean", root, "--all", "--yes")
    assert not list(root.glob("rollout_*")) and not list(root.glob("ckpt_*"))
