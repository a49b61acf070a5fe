# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck doctor`: on a good file system, and on file systems that lack one thing each."""

import errno
import fcntl
import os
import socket

import pytest

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.filesystem import Filesystem
from verl.crosscheck.exchange.layout import Layout, is_of_kind, staged_of_kind
from verl.crosscheck.inspection import doctor_checks, doctor_notes
from verl.crosscheck.inspection.doctor_checks import CheckContext, CheckResult, run_checks


@pytest.fixture
def checks(tmp_path):
    """Verdict and words of every check, on a file system."""

    def checks(disk=None, **bench):
        folder = tmp_path / f"bench-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        with filesystem.replaced(disk or Filesystem()):
            return {each.name: each for each in run_checks(CheckContext(folder, ManualClock(), 2_000_000, **bench))}

    return checks


def failed(found):
    return {name for name, check in found.items() if check.verdict is not CheckResult.OK}


def test_a_local_disk_passes(checks):
    found = checks()
    assert failed(found) == set()
    assert found["throughput"].measured["write_bytes_per_s"] > 0
    assert set(found["flush to the disk"].measured) == {"fsync_median_s", "fsync_max_s"}


class NoLinks(Filesystem):
    def link(self, source, target):
        raise OSError(errno.EPERM, "Operation not permitted")


class LinksReplace(Filesystem):
    def link(self, source, target):
        target.unlink(missing_ok=True)
        super().link(source, target)


class NotExclusive(Filesystem):
    def raw(self, path):
        path.touch()
        return open(path, "r+b", buffering=0)  # noqa: PTH123


class FoldersReplace(Filesystem):
    def rename(self, source, target):
        if target.is_dir():
            self.remove(target)
        super().rename(source, target)


class RenameCopies(Filesystem):
    def rename(self, source, target):
        if source.is_dir():
            super().rename(source, target)
        else:
            target.write_bytes(source.read_bytes())


class Stale(Filesystem):
    """Shows new names never."""

    def names(self, folder):
        return []


class LateHeartbeat(Filesystem):
    def overwrite(self, path, content):
        pass


class OthersFiles(Filesystem):
    def raw(self, path):
        file = super().raw(path)
        os.chown(path, 12345, -1)
        return file


class OthersMayWrite(Filesystem):
    def raw(self, path):
        file = super().raw(path)
        path.chmod(0o666)
        return file


class NoFlush(Filesystem):
    def flush(self, descriptor):
        raise OSError(errno.EIO, "Input/output error")


BROKEN = {
    NoLinks: ("hard link", CheckResult.WARNING, "there are none here"),
    LinksReplace: ("hard link", CheckResult.FAILED, "a link took a name that was taken"),
    NotExclusive: ("create, name taken", CheckResult.FAILED, "created a second time"),
    FoldersReplace: ("rename a folder", CheckResult.FAILED, "took the name of another"),
    RenameCopies: ("rename a file", CheckResult.FAILED, "left both"),
    Stale: ("list a folder", CheckResult.FAILED, "was not shown for 5 s"),
    LateHeartbeat: ("write over a file", CheckResult.FAILED, "is not read back"),
    OthersFiles: ("create a file", CheckResult.FAILED, "belongs to user 12345"),
    OthersMayWrite: ("create a file", CheckResult.FAILED, "others may write it"),
    NoFlush: ("flush to the disk", CheckResult.FAILED, "Input/output error"),
}


@pytest.mark.parametrize("kind", BROKEN, ids=lambda kind: kind.__name__)
def test_what_a_file_system_lacks_is_found(checks, kind):
    if kind is OthersFiles and os.geteuid():
        pytest.skip("only root gives files away")
    name, verdict, words = BROKEN[kind]
    found = checks(kind())[name]
    assert found.verdict is verdict
    assert words in found.found
    assert found.advice


def test_locks_that_do_not_hold_are_a_warning(checks, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    assert "let two in" in checks()["lock"].found

    def refuse(file, how):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    found = checks()["lock"]
    assert (found.verdict, "No locks available" in found.found) == (CheckResult.WARNING, True)


@pytest.mark.parametrize(
    ("ahead_s", "verdict"), [(0, CheckResult.OK), (30, CheckResult.OK), (-600, CheckResult.WARNING)]
)
def test_the_clock_of_the_files_is_held_against_this_hosts(checks, tmp_path, ahead_s, verdict):
    (tmp_path / "now").touch()
    now_s = (tmp_path / "now").stat().st_mtime
    found = checks(wall_s=lambda: now_s - ahead_s)["clock"]
    assert found.verdict is verdict
    assert found.measured["skew_s"] == pytest.approx(ahead_s, abs=5)


def test_an_altered_block_is_found(checks, monkeypatch):
    class Altering(Filesystem):
        def flush(self, descriptor):
            if os.fstat(descriptor).st_size > 1_000_000:
                os.pwrite(descriptor, b"?", 1_000_000)

    assert "came back altered" in checks(Altering())["throughput"].found


# ---------------------------------------------------------------- the command


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
