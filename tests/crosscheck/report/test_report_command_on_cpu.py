# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck report`: what it prints, writes and leaves as its exit status."""

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from recipe.crosscheck.bench.synthetic import (
    FORWARD,
    GRADIENT,
    STALE,
    SyntheticPlan,
    record_steps,
    start_run,
    start_runs,
)
from verl.crosscheck.cli import main
from verl.crosscheck.diagnosis.findings import Phase
from verl.crosscheck.diagnosis.findings_json import comparison_from_json, verdict_from_json
from verl.crosscheck.report.as_json import EXIT_STATUS
from verl.crosscheck.report.texts import texts_of

MODEL = Path(__file__).parents[3] / "recipe" / "crosscheck" / "model"


@pytest.fixture(scope="module")
def sessions(tmp_path_factory):
    """Directories by the fault that is planted in A, in mode `ckpt`; `always` from the first step on."""
    root = tmp_path_factory.mktemp("sessions")
    faults = {"": "", "rollout": STALE, "forward": FORWARD, "update": GRADIENT, "always": STALE}
    for name, fault in faults.items():
        runs = start_runs(root / (name or "healthy"))
        first = 1 if name == "always" else 3
        record_steps(
            runs, SyntheticPlan(rows=24, tokens=12, fault=fault, faulty_from=first), range(1, 5), rollouts=True
        )
    return root


def call(*arguments):
    result = CliRunner(env={"COLUMNS": "80"}).invoke(main, ["report", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit | click.exceptions.Exit):
        raise result.exception
    return result


def test_a_pair_is_neither_its_own_control_nor_both_scenarios(sessions):
    faulty, healthy = sessions / "rollout", sessions / "healthy"
    for arguments in ((faulty, faulty), (faulty, "--control", faulty), (faulty, healthy, "--control", healthy)):
        result = call(*arguments)
        assert (result.exit_code, "is named twice" in result.output) == (2, True)
        assert str(arguments[-1]) in result.output.replace("\n", "")


@pytest.mark.parametrize(
    ("name", "status"), [("healthy", 0), ("rollout", 10), ("forward", 11), ("update", 12), ("always", 14)]
)
def test_the_exit_status_is_that_of_the_verdict(sessions, name, status):
    result = call(sessions / name)
    assert result.exit_code == status
    phase = next(phase for phase, each in EXIT_STATUS.items() if each == status)
    assert texts_of("en").phases[phase].name in " ".join(result.stdout.split())
    assert "\x1b" not in result.stdout
    longest = max(len(line) for line in result.stdout.splitlines() if not line.startswith("   "))  # but for commands
    assert longest <= 80


def test_every_verdict_has_a_status_of_its_own():
    assert set(EXIT_STATUS) == set(Phase)
    assert sorted(EXIT_STATUS.values()) == [0, 10, 11, 12, 13, 14, 15, 16]


def test_the_text_says_since_when_by_how_much_and_what_to_do(sessions):
    said = " ".join(call(sessions / "rollout").stdout.split())
    assert "Rollout of A is at fault since step 3" in said
    assert "Rollout A to training B ✓✓✕✓" in said
    assert "Training A to training B ✓✓✓✓" in said
    assert "times the threshold" in said
    assert (
        f"verl-crosscheck report {sessions / 'rollout'} --control {sessions / 'rollout'}-control -o report.html" in said
    )
    assert "What was not compared - Reference A to reference B" in said


def test_chinese(sessions):
    said = call(sessions / "rollout", "--lang", "zh").stdout
    assert "始于第 3 步" in said
    assert "What" not in said
    assert "Rollout A" not in said


def test_json_is_complete_and_can_be_read_back(sessions):
    result = call(sessions / "update", "--json")
    found = json.loads(result.stdout)
    assert (found["schema"], found["schema_version"]) == ("verl-crosscheck/report", 1)
    assert result.exit_code == found["exit_status"] == 12
    verdict = verdict_from_json(found["verdict"])
    assert (verdict.phase, verdict.first_step) == (Phase.TRAINING_UPDATE, 3)
    (scenario,) = found["scenarios"]
    assert [comparison_from_json(step).global_step for step in scenario["steps"]] == [1, 2, 3, 4]
    assert [run["letter"] for run in scenario["runs"]] == ["A", "B"]


def test_the_page_is_written_and_named(sessions, tmp_path):
    page = tmp_path / "out.html"
    result = call(sessions / "rollout", "-o", page, "--tokenizer", MODEL)
    assert result.exit_code == 10
    assert "The page is" in result.stdout
    text = page.read_text(encoding="utf-8")
    assert text.startswith("<!DOCTYPE html>")
    assert 'class="tokens"' in text  # decoded
    assert list(tmp_path.iterdir()) == [page]


def test_the_page_on_standard_output(sessions):
    result = call(sessions / "rollout", "-o", "-")
    assert result.stdout.startswith("<!DOCTYPE html>")
    assert result.stdout.rstrip().endswith("</html>")


def test_a_page_that_cannot_be_written_is_status_1(sessions, tmp_path):
    result = call(sessions / "rollout", "-o", tmp_path / "nowhere" / "out.html")
    assert result.exit_code == 1
    assert "cannot be written" in result.stderr


def test_which_run_is_the_suspect(sessions):
    for option in (("--suspect", "rollout"), ("--scenario", "2")):
        found = json.loads(call(sessions / "update", *option, "--json").stdout)
        assert [each["number"] for each in found["scenarios"]] == [2]
        assert [run["mode"] for run in found["scenarios"][0]["runs"]] == ["rollout", "ckpt"]
    both = json.loads(call(sessions / "rollout", sessions / "healthy", "--json").stdout)
    assert [Path(each["directory"]).name for each in both["scenarios"]] == ["rollout", "healthy"]
    turned = json.loads(call(sessions / "healthy", sessions / "rollout", "--scenario", "2", "--json").stdout)
    assert turned["verdict"] == both["verdict"]


def test_a_control(sessions):
    result = call(sessions / "always", "--control", sessions / "healthy", "--json")
    assert result.exit_code == 10
    assert json.loads(result.stdout)["control"] == {
        "directory": str(sessions / "healthy"),
        "steps": 4,
        "alike": True,
    }


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--suspect", "rollout", "--scenario", "1"], "--suspect rollout is scenario 2, not 1"),
        (["--json", "-o", "-"], "both take standard output"),
        (["--limits", "nowhere.yaml"], "cannot be read"),
        (["--tokenizer", "/nowhere"], "cannot be loaded"),
        (["--lang", "fr"], "'fr' is not one of"),
        (["--control", "/nowhere"], "does not exist"),
    ],
)
def test_wrong_usage_is_status_2(sessions, options, words):
    result = call(sessions / "rollout", *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())


def test_a_directory_without_a_session_is_status_2(tmp_path):
    result = call(tmp_path)
    assert result.exit_code == 2
    assert "holds no session" in result.stderr


def test_a_pair_without_a_step_says_which_run_is_missing_and_where_to_look(tmp_path):
    (tmp_path / "one").mkdir()
    start_run(tmp_path / "one", "rollout")
    start_runs(tmp_path / "two")
    for name, missing in (("one", "run A (mode ckpt): it has not taken part"), ("two", "no run has finished a step")):
        result = call(tmp_path / name)
        assert result.exit_code == 14
        words = " ".join(result.stdout.split())
        assert missing in words
        assert f"verl-crosscheck status {tmp_path / name}" in result.stdout.replace("\n", "").replace("  ", "") + words
    assert "run B" not in " ".join(call(tmp_path / "one").stdout.split()).partition("What was not compared")[2]


def test_a_tokenizer_that_is_not_there_is_told(sessions):
    result = call(sessions / "healthy", "--tokenizer", "/nowhere/model")
    assert result.exit_code == 2
    assert "'/nowhere/model' cannot be loaded: there is no such folder" in result.stderr


def test_an_inconclusive_report_begins_with_what_decides_it(sessions):
    words = " ".join(call(sessions / "always").stdout.split())
    assert "The evidence is not enough for a verdict. To decide it: " in words


def test_names_from_files_are_no_markup_for_the_terminal(tmp_path):
    runs = start_runs(tmp_path / "[bold red]\x1b[31mx")
    record_steps(runs, SyntheticPlan(rows=24, tokens=12), range(1, 4))
    result = call(runs["ckpt"].slot.root)
    assert "\x1b" not in result.stdout
    assert "[bold red]\\x1b[31mx" in result.stdout


def test_other_commands_import_nothing_of_it():
    code = (
        "import sys; sys.argv = ['verl-crosscheck', '--help']\nfrom _verl_overlay.command import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'jinja2', 'matplotlib', 'numpy', 'torch', 'verl.crosscheck.diagnosis', 'verl.crosscheck.report'}\n"
        "print(sorted(heavy & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_its_modules_import_neither_torch_nor_matplotlib():
    code = (
        "import sys; from _verl_overlay.command import _put_light_package_in_place as light; light()\n"
        "import verl.crosscheck.report.load, verl.crosscheck.report.page, verl.crosscheck.report.text\n"
        "import verl.crosscheck.report.worst_rows, verl.crosscheck.diagnosis.compare\n"
        "print(sorted({'torch', 'matplotlib', 'ray'} & sys.modules.keys()))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
