# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck status` on directories as runs leave them."""

import json
import os
import shutil

import pytest

from verl.crosscheck.exchange.session.run_files import Start


def by_mode(found):
    return {run["mode"]: run for run in found["runs"]}


def test_two_runs_that_live(pair, call, call_json):
    a, b = pair.start("ckpt"), pair.start("rollout")
    for index in range(3):
        pair.rollout(a, index, at_s=1_000_000 + 600 * index)
    pair.ckpt(b, 1), pair.ckpt(b, 2)
    a.report("waiting for ckpt_3", global_step=4)
    b.report("saving ckpt_3", global_step=4)
    assert call("status", pair.root).exit_code == 0
    exit_code, found = call_json("status", pair.root)
    assert exit_code == 0
    assert found["summary"].startswith("The ckpt run waits for ckpt_3; the rollout run is saving it (0.")
    runs = by_mode(found)
    assert {run["state"] for run in runs.values()} == {"running"}
    assert {run["evidence"] for run in runs.values()} == {"process"}
    assert runs["ckpt"]["phase"] == "waiting for ckpt_3"
    assert (runs["ckpt"]["global_step"], runs["ckpt"]["total_steps"]) == (4, 10)
    assert runs["ckpt"]["published"] == {"rollout": 3}
    assert found["holdings"]["rollouts"] == 3
    assert [(each["index"], each["complete"]) for each in found["holdings"]["checkpoints"]] == [(1, True), (2, True)]
    assert all(each["size_bytes"] > 1000 for each in found["holdings"]["checkpoints"])
    pace = found["holdings"]["pace"]
    assert pace == {"steps_per_hour": 6.0, "steps": 2, "first": "rollout_0", "last": "rollout_2"}
    assert found["agreement"]["agrees"]
    assert not found["agreement"]["facts_compared"]
    assert [each["key"] for each in found["agreement"]["may_differ"]] == ["trainer.share_data"]
    assert (found["schema"], found["schema_version"]) == ("verl-crosscheck/status", 1)


def test_the_page_fits_in_80_columns_and_has_no_colours_in_a_pipe(pair, call):
    versions = {"torch": "2.8.0+" + "x" * 100, "a" * 90: "1"}
    a, b = pair.start("ckpt", host="h" * 200), pair.start("rollout", versions=versions)
    pair.rollout(a, 0)
    b.end(RuntimeError("x" * 500 + "\n[bold red]not markup[/] \x1b[31mred\x07"))
    for columns in (80, 120, 40):
        result = call("status", pair.root, columns=columns)
        assert max(map(len, result.stdout.splitlines())) <= columns
        assert "\x1b" not in result.stdout
        assert "not markup[/]" in "".join(result.stdout.split("\n"))
        assert "\\x1b[31mred\\x07" in "".join(result.stdout.split("\n")) or columns == 40
    assert result.exit_code == 1


def test_a_failure_is_shown_with_its_message_and_the_exit_status_says_so(pair, call):
    a, b = pair.start("ckpt"), pair.start("rollout")
    a.report("waiting for ckpt_0", global_step=1)
    b.report("training", global_step=1)
    b.end(RuntimeError("out of memory"))
    result = call("status", pair.root, columns=200)
    assert result.exit_code == 1
    assert "which will not come. The rollout run failed while training in step 1: RuntimeError: out of memory" in (
        result.stdout
    )


@pytest.mark.parametrize(
    ("error", "state", "exit_code"), [(None, "finished", 0), (KeyboardInterrupt(), "interrupted", 1)]
)
def test_other_ends(pair, call_json, error, state, exit_code):
    runs = pair.start("ckpt"), pair.start("rollout")
    pair.finish(*runs, error=error)
    status, found = call_json("status", pair.root)
    assert status == exit_code
    assert {run["state"] for run in found["runs"]} == {state}


def test_a_process_that_is_gone_from_this_host_died(pair, call_json):
    pair.start("ckpt", "gone")
    exit_code, found = call_json("status", pair.root)
    assert exit_code == 1
    assert by_mode(found)["ckpt"]["state"] == "died"
    assert "kill -9" in found["summary"]


def test_a_directory_before_its_first_run(pair, tmp_path, call, call_json):
    exit_code, found = call_json("status", tmp_path)
    assert (exit_code, found["session"], found["summary"]) == (0, None, "No run has taken part here yet.")
    assert "No run has taken part here yet." in call("status", tmp_path).stdout
    (tmp_path / "notes.txt").touch()
    assert call_json("status", tmp_path)[1]["holdings"]["other"] == ["notes.txt"]


def test_one_run_waits_for_a_peer_that_never_came(pair, call):
    a = pair.start("ckpt")
    a.report("waiting for ckpt_0", global_step=1)
    result = call("status", pair.root, columns=200)
    assert "no run in mode rollout has started: start one with trainer.share_data=rollout" in result.stdout
    assert "no run yet" in result.stdout


def test_a_restarted_run_and_what_it_goes_on_with(pair, call):
    a, b = pair.start("ckpt"), pair.start("rollout")
    a.end(ValueError("no"))
    pair.start("ckpt", start=Start(3, 3, 3, a.slot.session.id))
    page = call("status", pair.root, columns=100).stdout
    assert "restarted once, resumed after step 3" in page
    b.end(None)


# ---------------------------------------------------------------- what differs


def test_versions_and_settings_that_differ(pair, call, call_json):
    pair.start("ckpt", trainer={"lr": 1})
    pair.start("rollout", trainer={"lr": 2}, versions={"verl-crosscheck": "0.1.0", "torch": "2.8.0", "torch_npu": "2"})
    _, found = call_json("status", pair.root)
    assert found["version_differences"] == {
        "torch": {"ckpt": "2.9.0", "rollout": "2.8.0"},
        "torch_npu": {"ckpt": "", "rollout": "2"},
    }
    assert found["agreement"]["must_agree"] == [{"key": "trainer.lr", "ckpt": 1, "rollout": 2, "reason": ""}]
    page = call("status", pair.root).stdout
    assert "1 setting must agree and does not:" in page
    assert "not there" in page


def test_facts_are_compared_once_both_runs_have_told_them(pair, call_json):
    a, b = pair.start("ckpt"), pair.start("rollout")
    a.report_facts({"model": {"size": 1}})
    assert not call_json("status", pair.root)[1]["agreement"]["facts_compared"]
    b.report_facts({"model": {"size": 2}})
    agreement = call_json("status", pair.root)[1]["agreement"]
    assert agreement["facts_compared"]
    assert [each["key"] for each in agreement["must_agree"]] == ["model.size"]


def test_long_lists_are_cut_on_the_page_and_whole_in_json(pair, call, call_json):
    pair.start("ckpt", trainer={f"key{i}": 1 for i in range(9)})
    pair.start("rollout", trainer={f"key{i}": 2 for i in range(9)})
    assert "and 4 more: --json has all" in call("status", pair.root).stdout
    assert len(call_json("status", pair.root)[1]["agreement"]["must_agree"]) == 9


# ---------------------------------------------------------------- what lies there


def test_earlier_sessions_leftovers_and_foreign_names_are_told_apart(pair, call, call_json):
    a, b = pair.start("ckpt"), pair.start("rollout")
    pair.rollout(a, 0), pair.ckpt(b, 0)
    pair.finish(a, b)
    c = pair.start("ckpt")  # puts the old rollout aside; the old checkpoint waits for its own kind's writer
    pair.rollout(c, 0)
    (pair.root / ".staging-ckpt_4-1-ab").mkdir()
    (pair.root / ".staging-ckpt_4-1-ab" / "half").write_bytes(b"x" * 77)
    (pair.root / "plot.png").touch()
    _, found = call_json("status", pair.root)
    held = found["holdings"]
    assert found["session"]["number"] == 2
    assert held["of_earlier_session"] == ["ckpt"]
    assert [each["path"] for each in held["earlier"]] == ["sessions/session_1"]
    assert held["staged"] == [{"path": ".staging-ckpt_4-1-ab", "size_bytes": 77}]
    assert held["other"] == ["plot.png"]
    page = call("status", pair.root).stdout
    assert "an earlier session's" in page
    earlier = call_json("status", pair.root / "sessions" / "session_1")[1]
    assert (earlier["session"]["number"], earlier["holdings"]["rollouts"]) == (1, 1)


def test_damage_is_a_line_and_not_a_traceback(pair, call, call_json):
    a, b = pair.start("ckpt"), pair.start("rollout")
    pair.rollout(a, 0).write_bytes(b"not a record")
    a.slot.names.progress.write_text("{}")
    exit_code, found = call_json("status", pair.root)
    assert exit_code == 1
    assert by_mode(found)["ckpt"]["state"] == "unreadable"
    assert "progress.json" in by_mode(found)["ckpt"]["problem"]
    assert "progress.json" in call("status", pair.root).stdout
    (b.slot.session.folder / "session.json").write_text("{")
    result = call("status", pair.root)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert "is not JSON" in result.stderr


def test_a_rate_needs_two_steps_of_training(pair, call_json):
    a = pair.start("ckpt")
    pair.rollout(a, 0, step=1, at_s=1000), pair.rollout(a, 1, step=1, at_s=2000)
    assert call_json("status", pair.root)[1]["holdings"]["pace"] is None
    pair.rollout(a, 2, step=2, at_s=4600)
    assert call_json("status", pair.root)[1]["holdings"]["pace"]["steps_per_hour"] == pytest.approx(1.0)


def test_odd_paths(tmp_path, call, call_json):
    folder = tmp_path / "[bold] a\tb\x1b[31m é"
    folder.mkdir()
    assert call("status", folder).exit_code == 0
    assert "[bold] a" in "".join(call("status", folder, columns=400).stdout.split("\n"))
    assert "\x1b" not in call("status", folder).stdout
    assert call_json("status", folder)[1]["directory"] == str(folder)
    undecodable = tmp_path / os.fsdecode(b"\xff")
    undecodable.mkdir()
    assert "\\udcff" in call("status", undecodable, columns=400).stdout


@pytest.mark.parametrize("name", ["missing", "file"])
def test_what_is_no_directory_is_refused_in_one_line(tmp_path, call, name):
    (tmp_path / "file").touch()
    result = call("status", tmp_path / name)
    assert result.exit_code == 2
    assert "Traceback" not in result.stderr
    assert str(tmp_path / name) in result.stderr


# ---------------------------------------------------------------- --watch


class Ending:
    """A clock that ends the watching as Ctrl-C does, after some looks; what happens before each."""

    def __init__(self, *happens):
        self._happens, self._now_s = list(happens), 0.0

    def monotonic_s(self):
        return self._now_s

    def sleep(self, duration_s):
        self._now_s += duration_s
        if not self._happens:
            raise KeyboardInterrupt
        self._happens.pop(0)()


@pytest.fixture
def watched(monkeypatch, call):
    def watched(root, *happens, options=()):
        monkeypatch.setattr("verl.crosscheck.cli.status.SystemClock", lambda: Ending(*happens))
        return call("status", root, "--watch", *options, columns=200)

    return watched


def test_watching_in_a_pipe_tells_what_changes_and_ctrl_c_is_no_error(pair, watched):
    a = pair.start("ckpt")
    steps = [
        lambda: a.report("generating", global_step=1),
        lambda: None,
        lambda: a.report("waiting for ckpt_0", global_step=1),
        lambda: a.end(RuntimeError("boom")),
    ]
    result = watched(pair.root, *steps)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len(lines) == 4
    assert "is generating in step 1" in lines[1]
    assert "waits for ckpt_0" in lines[2]
    assert "failed" in lines[3]


def test_watching_as_json_prints_an_object_a_line(pair, watched):
    a = pair.start("ckpt")
    result = watched(pair.root, lambda: a.report("generating", global_step=1), options=["--json"])
    assert result.exit_code == 0
    assert [json.loads(line)["runs"][0]["phase"] for line in result.stdout.splitlines()] == ["starting", "generating"]


def test_watching_ends_with_an_error_when_the_directory_goes(pair, watched):
    pair.start("ckpt")
    result = watched(pair.root, lambda: shutil.rmtree(pair.root))
    assert result.exit_code == 2
    assert str(pair.root) in result.stderr
