# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From what two runs left in a directory to what a report shows."""

import json
import os
import shutil
import stat

import numpy as np
import pytest

from recipe.crosscheck.bench.synthetic import (
    FORWARD,
    GRADIENT,
    STALE,
    SyntheticPlan,
    record_steps,
    responses_of_step,
    start_run,
    start_runs,
)
from verl.crosscheck.diagnosis.findings import Aspect, Confidence, Phase
from verl.crosscheck.errors import DirectoryError, SettingsError
from verl.crosscheck.exchange import documents
from verl.crosscheck.exchange.session.run_files import Start
from verl.crosscheck.report import load
from verl.crosscheck.report.load import MadeWith, ReportRequest, is_alike, load_report

PLAN = SyntheticPlan(rows=32, tokens=16)
STEPS = range(1, 6)


def a_session(root, plan=PLAN, steps=STEPS, ended=True, **kwargs):
    runs = start_runs(root, gpu_memory_utilization=0.5, seed=3)
    record_steps(runs, plan, steps, **kwargs)
    for run in runs.values() if ended else ():
        run.end(None)
    return root


@pytest.fixture(scope="module")
def stale(tmp_path_factory):
    return a_session(tmp_path_factory.mktemp("stale"), rollouts=True)


def of(root, scenario=1, **kwargs):
    return load_report(ReportRequest({scenario: root}, **kwargs))


def test_stale_weights_are_a_fault_of_the_rollout_from_their_step_on(stale):
    found = of(stale)
    assert (found.verdict.phase, found.verdict.first_step) == (Phase.ROLLOUT, 3)
    (scenario,) = found.scenarios
    assert [step.global_step for step in scenario.steps] == [1, 2, 3, 4, 5]
    assert (scenario.number, scenario.recomputed, scenario.lacking, scenario.problems) == (1, 0, (), {})
    assert [(run.letter, run.mode, run.host, run.ending) for run in scenario.runs] == [
        ("A", "ckpt", "npu-7", "finished"),
        ("B", "rollout", "gpu-1", "finished"),
    ]


@pytest.mark.parametrize(("fault", "phase"), [(FORWARD, Phase.TRAINING_FORWARD), (GRADIENT, Phase.TRAINING_UPDATE)])
def test_faults_of_training_in_either_scenario(tmp_path, fault, phase):
    for scenario, suspect in ((1, "ckpt"), (2, "rollout")):
        root = a_session(tmp_path / suspect, SyntheticPlan(rows=32, tokens=16, fault=fault, suspect=suspect))
        found = of(root, scenario)
        assert found.verdict.phase is phase
        assert found.scenarios[0].runs[0].mode == suspect


def test_both_scenarios_together(stale, tmp_path):
    second = a_session(tmp_path / "2", SyntheticPlan(rows=32, tokens=16, fault=""))
    found = load_report(ReportRequest({1: stale, 2: second}))
    assert found.verdict.phase is Phase.ROLLOUT
    assert "reference_shown_by_scenario_2" in found.verdict.because
    assert found.verdict.confidence is Confidence.MEDIUM  # thresholds of other models: these runs predict no noise
    assert [each.number for each in found.scenarios] == [1, 2]


def test_what_was_not_logged_is_compared_now_and_gives_the_same(stale, tmp_path):
    logged = of(stale)
    copy = shutil.copytree(stale, tmp_path / "copy")
    for folder in copy.rglob("comparison"):
        (folder / "step_2.json").unlink()
        (folder / "step_4.json").write_text("{")
    found = of(copy)
    assert found.scenarios[0].recomputed == 2
    assert list(found.scenarios[0].problems) == ["sessions/session_1/runs/ckpt_1/comparison/step_4.json"]
    assert found.verdict == logged.verdict
    anew = of(stale, recompute=True)
    assert anew.scenarios[0].recomputed == 5
    assert anew.verdict == logged.verdict


def oversized(path, monkeypatch):
    monkeypatch.setattr(documents, "MAX_SIZE_BYTES", path.stat().st_size - 1)


def deep(path, monkeypatch):
    path.write_text('{"deep": ' + "[" * 100 + "]" * 100 + "}")


def of_another_user(path, monkeypatch):
    real, inode = os.fstat, path.stat().st_ino

    def fstat(descriptor):
        found = real(descriptor)
        if found.st_ino != inode:
            return found
        values = list(found)
        values[stat.ST_UID] += 1
        return os.stat_result(values)

    monkeypatch.setattr(documents.os, "fstat", fstat)


def linked(path, monkeypatch):
    path.symlink_to(path.rename(path.with_name("elsewhere")))


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (oversized, "is not a regular file of at most"),
        (deep, "nests deeper than 64 levels"),
        (of_another_user, "belongs to user"),
        (linked, "a symbolic link is never followed"),
    ],
)
def test_a_comparison_that_no_run_would_write_is_not_used(stale, tmp_path, monkeypatch, spoil, words):
    copy = shutil.copytree(stale, tmp_path / "copy")
    path = max(copy.rglob("comparison/step_*.json"), key=lambda each: each.stat().st_size)
    spoil(path, monkeypatch)
    (scenario,) = of(copy).scenarios
    assert words in scenario.problems[str(path.relative_to(copy))]
    assert scenario.recomputed >= 1


def test_nothing_but_the_shown_steps_is_read_where_comparisons_were_logged(stale, monkeypatch):
    read = []
    original = load.load_evidence
    monkeypatch.setattr(load, "load_evidence", lambda *args: read.append(args[1:]) or original(*args))
    of(stale, with_rows=False)
    assert read == [("ckpt", 1), ("rollout", 1)]  # for the precision that limits depend on


def test_limits_of_a_file_change_states_without_comparing_anew(stale, tmp_path):
    file = tmp_path / "limits.yaml"
    file.write_text("logprob_abs_diff_mean: 1\nprob_abs_diff_mean: 1\nexp_abs_diff_mean: 2\nk3: 1\n")
    found = of(stale, limits=file)
    assert found.verdict.phase is Phase.NO_FAULT
    assert found.scenarios[0].recomputed == 0
    limits = {each.limit for step in found.scenarios[0].steps for each in step.findings if each.quantity == "k3"}
    assert limits == {1.0}
    file.write_text("nonsense: 1\n")
    with pytest.raises(SettingsError, match="nonsense"):
        of(stale, limits=file)


def test_a_control_sets_limits_and_shows_the_reference(stale, tmp_path):
    control = a_session(tmp_path / "control", SyntheticPlan(rows=32, tokens=16, fault=""), range(1, 10))
    found = of(stale, control=control)
    assert found.verdict.phase is Phase.ROLLOUT
    assert found.verdict.confidence is Confidence.HIGH
    assert len(found.control.steps) == 9
    taker = [each for each in found.scenarios[0].steps[0].findings if each.aspect is Aspect.ROLLOUT_TAKER]
    mean = next(each for each in taker if each.quantity == "logprob_abs_diff_mean")
    assert 0.01 <= mean.limit < 0.05  # below the profile's


def test_the_newest_record_of_a_step_counts_after_a_resume(tmp_path):
    runs = start_runs(tmp_path)
    record_steps(runs, PLAN, range(1, 5))
    runs["ckpt"].end(RuntimeError("lost"))
    start = Start(global_step=2, calls=2, updates=2, session=runs["ckpt"].slot.session.id)
    again = {**runs, "ckpt": start_run(tmp_path, "ckpt", start)}
    record_steps(again, SyntheticPlan(rows=32, tokens=16, fault=""), range(3, 5))
    found = of(tmp_path)
    assert again["ckpt"].slot.number == 2
    assert found.verdict.phase is Phase.NO_FAULT
    assert [step.global_step for step in found.scenarios[0].steps] == [1, 2, 3, 4]


def test_a_session_that_was_put_aside(stale, tmp_path):
    session = shutil.copytree(stale / "sessions" / "session_1", tmp_path / "session_1")
    for path in stale.glob("rollout_*"):
        shutil.copy(path, session)
    found = of(session)
    assert found.verdict.first_step == 3
    assert {row.decoded for row in found.rows} == {"ids"}


def test_steps_that_one_run_alone_recorded_are_told(tmp_path):
    runs = start_runs(tmp_path)
    record_steps(runs, PLAN, range(1, 3))
    names = runs["rollout"].slot.names
    shutil.copy(names.evidence(2), names.evidence(3))
    assert of(tmp_path).scenarios[0].lacking == (3,)


def test_damaged_evidence_is_told_and_its_step_not_compared(tmp_path):
    a_session(tmp_path, SyntheticPlan(rows=32, tokens=16, fault=FORWARD), logged=False)
    path = next(tmp_path.rglob("rollout_1/evidence/step_3"))
    path.write_bytes(path.read_bytes()[:-9])
    found = of(tmp_path)
    assert found.scenarios[0].lacking == (3,)
    assert list(found.scenarios[0].problems) == [str(path.relative_to(tmp_path))]
    assert found.verdict.first_step == 4


def test_evidence_that_no_run_would_write_is_told_and_its_step_not_compared(tmp_path):
    root = a_session(tmp_path, SyntheticPlan(rows=8, tokens=16), range(1, 3), logged=False)
    folder = root / "sessions" / "session_1" / "runs" / "rollout_1" / "evidence"
    (folder / "step_1").replace(folder / "step_2")  # says that it is of step 1
    found = of(root)
    assert found.scenarios[0].lacking == (1, 2)
    assert "step 2 of the sampler and step 1 of the taker" in str(found.scenarios[0].problems)


def test_a_session_without_evidence_is_inconclusive(tmp_path):
    start_runs(tmp_path)
    found = of(tmp_path)
    assert (found.verdict.phase, found.verdict.steps) == (Phase.INCONCLUSIVE, 0)


def test_logged_limits_count_where_evidence_was_removed(stale, tmp_path):
    copy = shutil.copytree(stale, tmp_path / "copy")
    for folder in list(copy.rglob("evidence")):
        shutil.rmtree(folder)
    found = of(copy)
    assert found.verdict.first_step == 3
    assert found.rows == ()


def test_no_session_is_an_error(tmp_path):
    with pytest.raises(DirectoryError, match="holds no session"):
        of(tmp_path)


# ---------------------------------------------------------------- settings


def test_settings_that_differ_and_secrets_that_were_left_out(stale):
    found = {each.key: each for each in of(stale).scenarios[0].settings}
    memory = found["actor_rollout_ref.rollout.gpu_memory_utilization"]
    assert (memory.a, memory.b, memory.must_agree) == ("0.5", "", False)
    assert found["actor_rollout_ref.rollout.seed"].must_agree
    assert (found["torch"].a, found["torch"].b, found["torch"].must_agree) == ("2.8.0", "2.9.0", False)


# ---------------------------------------------------------------- worst rows


def test_worst_rows_are_those_of_the_first_step_at_fault_token_by_token(stale):
    rows = of(stale).rows
    assert 3 <= len(rows) <= 6
    assert rows[0].global_step == 3
    assert len({(row.global_step, row.row_id) for row in rows}) == len(rows)
    for row in rows:
        assert row.decoded == "ids"
        assert row.prompt == "5 7 9"
        responses, ids = responses_of_step(PLAN, row.global_step)
        response = responses[int(np.flatnonzero(ids == np.uint64(row.row_id))[0])]
        assert [int(token.text) for token in row.tokens] == response.tolist()
        assert row.length == len(response)
        assert max(token.apart for token in row.tokens) == pytest.approx(row.logprob_abs_diff_max, rel=1e-5)


def test_tokens_are_decoded_so_that_their_pieces_make_the_text(stale):
    rows = of(stale, decode=lambda ids: " ".join(f"<{each}>" for each in ids)).rows
    assert {row.decoded for row in rows} == {"text"}
    responses, ids = responses_of_step(PLAN, rows[0].global_step)
    response = responses[int(np.flatnonzero(ids == np.uint64(rows[0].row_id))[0])]
    assert "".join(token.text for token in rows[0].tokens) == " ".join(f"<{each}>" for each in response)
    assert rows[0].prompt == "<5> <7> <9>"


def test_positions_stand_where_the_rollout_is_gone(stale, tmp_path):
    copy = shutil.copytree(stale, tmp_path / "copy")
    for path in copy.glob("rollout_*"):
        path.unlink()
    row = of(copy).rows[0]
    assert row.decoded == "positions"
    assert [token.text for token in row.tokens] == [str(at) for at in range(row.length)]


def test_a_long_response_is_cut_around_its_worst_token(tmp_path):
    a_session(tmp_path, SyntheticPlan(rows=4, tokens=1000, fault=STALE, faulty_from=1), range(1, 2))
    for row in of(tmp_path).rows:
        assert len(row.tokens) == 160
        assert row.length >= 500
        assert 0 <= row.first <= row.length - 160
        assert max(token.apart for token in row.tokens) == pytest.approx(row.logprob_abs_diff_max, rel=1e-5)


def test_no_rows_are_read_if_nobody_shows_them(stale):
    assert of(stale, with_rows=False).rows == ()


def test_logged_comparisons_are_plain_json(stale):
    path = next(stale.rglob("comparison/step_3.json"))
    assert json.loads(path.read_text())["kind"] == "step_comparison"


def test_a_control_is_alike_if_its_runs_are_made_with_the_same():
    gpu = MadeWith("cuda", {"engine": "vllm", "rollout_dtype": "bfloat16", "train_dtype": "bfloat16"})
    other_engine = MadeWith("cuda", {**gpu.sampling, "engine": "sglang"})
    npu = MadeWith("npu", gpu.sampling)
    assert is_alike([(gpu, gpu)], (gpu, gpu))
    assert is_alike([(gpu, npu), (npu, gpu)], (npu, gpu))
    assert not is_alike([(npu, gpu)], (gpu, gpu))
    assert not is_alike([(other_engine, gpu)], (gpu, gpu))
    assert not is_alike([(MadeWith("cuda", None), gpu)], (gpu, gpu))
