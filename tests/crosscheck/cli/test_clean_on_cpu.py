# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""`verl-crosscheck clean`: what goes, and all that must stay."""

import os

import pytest

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.filesystem import Filesystem
from verl.crosscheck.exchange.session.liveness import beat, this_process


def content(root):
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


@pytest.fixture
def used(pair):
    """A directory that two sessions have used, with what a crash left; both runs of the second have finished."""
    a, b = pair.start("ckpt"), pair.start("rollout")
    pair.rollout(a, 0), pair.ckpt(b, 0)
    pair.finish(a, b)
    c = pair.start("ckpt")  # the old rollout goes aside
    pair.rollout(c, 0), pair.rollout(c, 1)
    pair.finish(c)
    (pair.root / ".staging-rollout_2-99-ab").write_bytes(b"half")
    (pair.root / "sessions" / ".staging-session_3-99-ab").mkdir()
    (pair.root / "sessions" / "unknown").mkdir()
    (pair.root / "sessions" / "unknown" / "rollout_7").write_bytes(b"whose?")
    (pair.root / "notes.txt").write_text("mine")
    return pair


LEFTOVERS = {
    "sessions/session_1",
    "sessions/unknown",
    "ckpt_0",
    ".staging-rollout_2-99-ab",
    "sessions/.staging-session_3-99-ab",
}


def test_the_dry_run_lists_and_changes_nothing(used, call, call_json):
    before = content(used.root)
    page = call("clean", used.root).stdout
    assert "Nothing was deleted: --yes does it." in page
    assert "of session 1, an earlier one" in " ".join(page.split())
    assert max(map(len, page.splitlines())) <= 80
    _, found = call_json("clean", used.root)
    assert {item["path"] for item in found["plan"]["items"]} == LEFTOVERS
    assert not found["done"]
    assert content(used.root) == before


def test_yes_deletes_what_earlier_sessions_left_and_no_more(used, call, call_json):
    result = call("clean", used.root, "--yes")
    assert result.exit_code == 0
    assert f"Deleted {len(LEFTOVERS)} of {len(LEFTOVERS)} items." in result.stdout
    assert {path.name for path in used.root.iterdir()} == {"rollout_0", "rollout_1", "sessions", "notes.txt"}
    assert {path.name for path in (used.root / "sessions").iterdir()} == {"session_2"}
    assert "Nothing to delete." in call("clean", used.root, "--yes").stdout
    assert call_json("status", used.root)[1]["session"]["number"] == 2


def test_all_leaves_what_is_not_the_runs(used, call, call_json):
    call("doctor", used.root, "--megabytes", 1)
    exit_code, found = call_json("clean", used.root, "--all", "--yes")
    assert exit_code == 0
    assert {"sessions/session_2", "rollout_0", "rollout_1", "doctor"} < set(found["deleted"])
    assert content(used.root) == ["notes.txt"]
    assert call("clean", used.root).exit_code == 2


def test_a_run_starts_in_a_cleaned_directory(used, call, call_json):
    call("clean", used.root, "--all", "--yes")
    run = used.start("ckpt")
    used.rollout(run, 0)
    assert call_json("status", used.root)[1]["session"]["number"] == 1


# ---------------------------------------------------------------- what lives


@pytest.mark.parametrize("options", [[], ["--all"]])
def test_nothing_goes_while_a_run_of_this_host_lives(used, call, options):
    used.start("rollout")
    before = content(used.root)
    result = call("clean", used.root, "--yes", *options)
    assert result.exit_code == 1
    assert "lives in" in result.stderr
    assert "nothing was deleted" in result.stderr
    assert content(used.root) == before
    assert "lives, and nothing is deleted before it has ended" in " ".join(call("clean", used.root).stdout.split())


@pytest.fixture
def clock(monkeypatch):
    def clock(events=None):
        made = ManualClock(events)
        monkeypatch.setattr("verl.crosscheck.cli.clean.SystemClock", lambda: made)
        return made

    return clock


def test_a_run_of_another_host_is_watched_and_found_alive(used, call, clock):
    run = used.start("rollout", "elsewhere")
    clock({90.0: lambda: beat(run.slot.names.heartbeat, 5)})
    before = content(used.root)
    assert "may live on its host" in " ".join(call("clean", used.root).stdout.split())
    result = call("clean", used.root, "--all", "--yes")
    assert result.exit_code == 1
    assert "looking for up to 180 s whether it lives" in result.stderr
    assert content(used.root) == before


def test_a_run_of_another_host_that_shows_nothing_is_taken_for_dead(used, call, clock):
    used.start("rollout", "elsewhere")
    made = clock()
    result = call("clean", used.root, "--all", "--yes", "--silence", 20)
    assert result.exit_code == 0
    assert made.monotonic_s() >= 20
    assert content(used.root) == ["notes.txt"]


def test_a_run_of_an_earlier_session_that_still_lives_here_keeps_its_folder(pair, call_json, replaced_card):
    given_up = pair.start("ckpt", "gone")
    pair.finish(pair.start("ckpt"))  # begins a second session
    replaced_card(given_up, process=this_process())
    exit_code, found = call_json("clean", pair.root, "--yes")
    assert exit_code == 1
    assert found["failed"] == {"sessions/session_1": "its run ckpt_1 still lives on this host"}
    assert given_up.slot.names.card.is_file()


def test_a_session_that_begins_meanwhile_ends_the_cleaning(used, call):
    class Meanwhile(Filesystem):
        begun = False

        def rename(self, source, target):
            super().rename(source, target)
            if not self.begun and source.name == "session_1":
                self.begun = True
                used.start("ckpt")

    with filesystem.replaced(Meanwhile()):
        result = call("clean", used.root, "--all", "--yes")
    assert result.exit_code == 1
    assert "a run has started" in result.stderr
    assert (used.root / "sessions" / "session_2").is_dir()


# ---------------------------------------------------------------- what is not ours


@pytest.mark.parametrize("options", [[], ["--all", "--yes"]])
def test_a_directory_that_no_session_used_is_refused(tmp_path, call, options):
    (tmp_path / "rollout_0").write_text("a letter")
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "thesis.tex").touch()
    before = content(tmp_path)
    result = call("clean", tmp_path, *options)
    assert result.exit_code == 2
    assert "holds no session of two runs" in result.stderr
    assert content(tmp_path) == before


def test_links_stay_and_are_not_followed(used, call, tmp_path):
    treasure = tmp_path / "treasure"
    treasure.mkdir()
    (treasure / "gold").touch()
    (used.root / "ckpt_5").symlink_to(treasure)
    (used.root / "sessions" / "session_1" / "inside").symlink_to(treasure)
    result = call("clean", used.root, "--all", "--yes")
    assert result.exit_code == 1
    assert (used.root / "ckpt_5").is_symlink()
    assert "is a symbolic link" in " ".join(result.stdout.split())
    assert (treasure / "gold").exists()


def test_a_linked_folder_of_sessions_is_refused(used, call, tmp_path):
    (used.root / "sessions").rename(tmp_path / "elsewhere")
    (used.root / "sessions").symlink_to(tmp_path / "elsewhere")
    before = content(tmp_path)
    assert call("clean", used.root, "--all", "--yes").exit_code == 2
    assert content(tmp_path) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_somebody_elses_files_stay(used, call):
    os.chown(used.root / "sessions" / "session_1" / "session.json", 12345, -1)
    result = call("clean", used.root, "--yes")
    assert result.exit_code == 1
    assert "session.json belongs to user 12345" in " ".join(result.stdout.split())
    assert (used.root / "sessions" / "session_1").is_dir()
    assert not (used.root / "sessions" / "unknown").exists()
    os.chown(used.root, 12345, -1)
    assert call("clean", used.root, "--yes").exit_code == 2


def test_what_cannot_be_deleted_is_told_and_the_rest_goes(used, call):
    class Stubborn(Filesystem):
        def rename(self, source, target):
            if source.name == "ckpt_0":
                raise OSError(16, "Device or resource busy")
            super().rename(source, target)

    with filesystem.replaced(Stubborn()):
        result = call("clean", used.root, "--yes")
    assert result.exit_code == 1
    assert "ckpt_0 could not be deleted: Device or resource busy" in result.stdout
    assert (used.root / "ckpt_0").is_dir()
    assert not (used.root / "sessions" / "session_1").exists()


class Interrupted(Filesystem):
    """Ctrl-C at the n-th change."""

    def __init__(self, at):
        self.left = at

    def _count(self):
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def rename(self, source, target):
        self._count()
        super().rename(source, target)

    def unlink(self, path):
        self._count()
        super().unlink(path)

    def rmdir(self, path):
        self._count()
        super().rmdir(path)


@pytest.mark.parametrize("at", range(0, 40, 2))
def test_an_interrupted_cleaning_can_be_done_again(used, call, at):
    with filesystem.replaced(Interrupted(at)):
        first = call("clean", used.root, "--all", "--yes")
    if content(used.root) in (["notes.txt"], ["notes.txt", "sessions"]):  # so late that all had gone
        return
    assert first.exit_code == 1
    again = call("clean", used.root, "--all", "--yes")
    assert (again.exit_code, again.stderr) == (0, "")
    assert content(used.root) == ["notes.txt"]


def test_damage_in_the_current_session_is_an_error_and_nothing_goes(used, call):
    (used.root / "sessions" / "session_2" / "session.json").write_text("{")
    before = content(used.root)
    result = call("clean", used.root, "--all", "--yes")
    assert result.exit_code == 2
    assert "is not JSON" in result.stderr
    assert content(used.root) == before
