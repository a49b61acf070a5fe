# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck doctor`: its notes, exit status and options, and what it says of the two runs."""

import socket

import pytest

from verl.crosscheck.exchange.layout import Layout, is_of_kind, staged_of_kind
from verl.crosscheck.inspection import doctor_checks, doctor_notes


def test_the_command_leaves_a_note_and_nothing_else(tmp_path, call):
    result = call("doctor", tmp_path / "share", "--megabytes", 1)
    assert result.exit_code == 0
    assert "Usable" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    below = [path.relative_to(tmp_path / "share").as_posix() for path in (tmp_path / "share").rglob("*")]
    assert sorted(below) == ["doctor", f"doctor/{socket.gethostname()}.json"]
    assert (tmp_path / "share").stat().st_mode & 0o777 == 0o700


def test_hosts_see_each_other(tmp_path, call_json, monkeypatch):
    def visit(host):
        monkeypatch.setattr(socket, "gethostname", lambda: host)
        exit_code, found = call_json("doctor", tmp_path, "--megabytes", 1)
        assert exit_code == 0
        return {each["note"]["host"]: each for each in found["notes"]}

    assert visit("gpu-1") == {}
    seen = visit("npu-7")
    assert set(seen) == {"gpu-1"}
    assert seen["gpu-1"]["sees_this_host"] is None  # nobody has seen this host's note yet
    assert 0 <= seen["gpu-1"]["age_s"] < 60
    assert visit("gpu-1")["npu-7"]["sees_this_host"] is True
    assert visit("gpu-1")["npu-7"]["sees_this_host"] is False  # of the visit before
    assert visit("npu-7")["gpu-1"]["sees_this_host"] is True


def test_a_note_that_cannot_be_used_is_told(tmp_path, call):
    call("doctor", tmp_path, "--megabytes", 1)
    (tmp_path / "doctor" / "other.json").write_text("{}")
    result = call("doctor", tmp_path, "--megabytes", 1, columns=200)
    assert "other.json: cannot be used" in result.stdout
    assert result.exit_code == 0


@pytest.mark.parametrize("host", ["../../etc", ".hidden", "a/b", "x" * 300, "[bold]"])
def test_odd_host_names_stay_in_their_folder(tmp_path, host):
    note = Layout(tmp_path).doctor_note(host)
    assert note.parent == tmp_path / "doctor"
    assert not note.name.startswith(".")
    doctor_notes.leave_note(Layout(tmp_path), doctor_notes.Note(host, "1", "now", "ext4", {}))
    assert note.is_file()


def test_no_run_takes_the_scratch_folder_for_its_own(tmp_path):
    with doctor_checks.scratch(Layout(tmp_path)) as folder:
        names = [folder.name]
        assert not staged_of_kind(names, "rollout") + staged_of_kind(names, "ckpt")
        assert not any(is_of_kind(folder.name, kind) for kind in ("rollout", "ckpt"))


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, SystemExit])
def test_the_scratch_folder_goes_however_it_ends(tmp_path, error):
    with pytest.raises(error), doctor_checks.scratch(Layout(tmp_path)) as folder:
        (folder / "large").write_bytes(b"x")
        raise error
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_in_the_middle_leaves_nothing(tmp_path, call, monkeypatch):
    def interrupted(bench):
        (bench.folder / "large").write_bytes(b"x")
        raise KeyboardInterrupt

    monkeypatch.setitem(doctor_checks._CHECKS, "throughput", interrupted)
    result = call("doctor", tmp_path / "share")
    assert result.exit_code == 1
    assert list((tmp_path / "share").iterdir()) == []


def test_a_failed_check_is_the_exit_status(tmp_path, call):
    result = call("doctor", tmp_path, "--megabytes", 1, "--parameters", "1e15")
    assert result.exit_code == 1
    assert "are missing: free them" in " ".join(result.stdout.split())
    assert "36000.0 TB needed: 3 checkpoints of 12000.0 TB" in " ".join(result.stdout.split())


def test_a_directory_that_a_run_would_refuse_is_refused_with_the_same_words(tmp_path, call):
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "file").touch()
    for name, words in (("open", "can be written by other users"), ("file", "is a file, expected a directory")):
        result = call("doctor", tmp_path / name)
        assert result.exit_code == 2
        assert words in result.stderr


@pytest.mark.parametrize(
    "options",
    [
        ["--keep-all"],
        ["--keep", 1],
        ["--megabytes", 0],
        ["--parameters", "many"],
        ["--model", "nowhere"],
        ["--model", ".", "--parameters", 1],
    ],
)
def test_wrong_options_are_told_before_anything_is_made(tmp_path, call, options):
    result = call("doctor", tmp_path / "share", *options)
    assert result.exit_code == 2
    assert not (tmp_path / "share").exists()


def test_it_is_harmless_beside_live_runs(pair, call, call_json):
    a = pair.start("ckpt")
    pair.rollout(a, 0)
    assert call("doctor", pair.root, "--megabytes", 1).exit_code == 0
    _, found = call_json("status", pair.root)
    assert (found["holdings"]["rollouts"], found["holdings"]["other"], found["holdings"]["staged"]) == (1, [], [])


def a_config(mode, ranks, **actor):
    return {
        "trainer": {"share_data": mode, "nnodes": 1, "n_gpus_per_node": ranks, "use_legacy_worker_impl": "disable"},
        "data": {"train_batch_size": 64},
        "actor_rollout_ref": {"actor": {"strategy": "fsdp2", "ppo_mini_batch_size": 64, **actor}},
    }


def of_the_pair(found):
    return {each["name"]: (each["verdict"], each["found"]) for each in found["checks"][-2:]}


def test_two_runs_that_suit_each_other(pair, call_json):
    for mode, ranks in (("ckpt", 16), ("rollout", 8)):
        pair.start(mode, world_size=ranks, config=a_config(mode, ranks))
    exit_code, found = call_json("doctor", pair.root, "--megabytes", 1)
    assert exit_code == 0
    assert of_the_pair(found) == {
        "checkpoints": ("ok", "exchanged in the portable form: world size 16 here, 8 there"),
        "updates": ("ok", "both runs do the same update on the same rows, whatever their layout"),
    }


def test_two_runs_whose_updates_or_checkpoints_do_not_suit(pair, call_json):
    for mode, ranks in (("ckpt", 16), ("rollout", 8)):
        config = a_config(mode, ranks, ppo_mini_batch_size=16)
        config["trainer"]["share_data_ckpt_format"] = "native"
        pair.start(mode, world_size=ranks, config=config)
    exit_code, found = call_json("doctor", pair.root, "--megabytes", 1)
    checks = of_the_pair(found)
    assert exit_code == 1
    assert checks["checkpoints"][0] == "failed" and "share_data_ckpt_format=auto" in checks["checkpoints"][1]
    assert checks["updates"][0] == "warning" and "4 mini-batches of other rows" in checks["updates"][1]


def test_one_run_alone_is_no_pair(pair, call_json):
    pair.start("ckpt")
    assert call_json("doctor", pair.root, "--megabytes", 1)[1]["checks"][-1]["name"] == "free space"


@pytest.mark.parametrize(("option", "each"), [([], 12), (["--portable"], 4)])
def test_space_for_either_form_of_checkpoint(tmp_path, call_json, option, each):
    found = call_json("doctor", tmp_path / "share", "--megabytes", 1, "--parameters", "1e6", *option)[1]["estimate"]
    assert (found["bytes_each"], found["checkpoint_bytes"], found["needed_bytes"]) == (
        each,
        each * 10**6,
        3 * each * 10**6,
    )
