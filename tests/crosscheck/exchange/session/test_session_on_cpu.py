# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Places in a session, also when two runs reach for one at the same moment. `test_live_on_cpu.py` has whole runs."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from verl.crosscheck.clock import ManualClock
from verl.crosscheck.errors import DamagedError, DirectoryError, SessionError
from verl.crosscheck.exchange import artefacts, filesystem
from verl.crosscheck.exchange.layout import Layout, RunNames
from verl.crosscheck.exchange.session import claim, run_files
from verl.crosscheck.exchange.session.liveness import this_process
from verl.crosscheck.exchange.session.own_run import attach, open_run
from verl.crosscheck.exchange.session.run_files import Card, End, EndState, Start


def make_card(mode, run_id="0123456789abcdef", start=None):
    return Card(run_id, "", mode, "here", this_process(), "today", {}, "cpu", 1, "fsdp2", start or Start(), 0, {"a": 1})


def take(root, mode, **kwargs):
    return claim.claim(root, make_card(mode, **kwargs), silence_s=20.0, clock=ManualClock())


class Meanwhile(filesystem.Filesystem):
    """Lets something happen just before a folder gets its name, once."""

    def __init__(self, happens):
        self._happens = happens

    def rename(self, source: Path, target: Path) -> None:
        happens, self._happens = self._happens, None
        if happens:
            happens()
        super().rename(source, target)


def test_two_modes_share_the_first_session(tmp_path):
    one, other = take(tmp_path, "ckpt"), take(tmp_path, "rollout")
    assert (one.session, one.number, other.session, other.number) == (other.session, 1, one.session, 1)
    assert one.stamp == {"session": one.session.id, "producer": "0123456789abcdef"}
    one.require_current()


def test_two_that_begin_at_the_same_moment_end_in_one_session(tmp_path):
    taken = []
    with filesystem.replaced(Meanwhile(lambda: taken.append(take(tmp_path, "rollout")))):
        one = take(tmp_path, "ckpt")
    assert one.session == taken[0].session
    assert [each.number for each in claim.sessions(tmp_path)] == [1]
    assert sorted(path.name for path in (tmp_path / "sessions").iterdir()) == ["session_1"]  # no staging left


def test_of_two_in_one_mode_at_the_same_moment_one_is_refused(tmp_path):
    with filesystem.replaced(Meanwhile(lambda: take(tmp_path, "ckpt"))), pytest.raises(SessionError, match="two runs"):
        take(tmp_path, "ckpt")


def test_one_that_joins_while_a_new_session_begins_follows(tmp_path):
    a, b = take(tmp_path, "ckpt"), take(tmp_path, "rollout")

    def begins_anew():
        run_files.write_end(b.names, End(EndState.FAILED))
        take(tmp_path, "rollout")

    run_files.write_end(a.names, End(EndState.FAILED))
    with filesystem.replaced(Meanwhile(begins_anew)):
        again = take(tmp_path, "ckpt")
    assert (again.session.number, again.number) == (2, 1)
    left = run_files.read_end(claim.read_session(tmp_path / "sessions" / "session_1").run("ckpt", 2))
    assert left.message == "joined the session that followed instead"


def test_a_run_that_goes_on_keeps_its_indexes_and_one_that_does_not_loses_them(tmp_path):
    a, _ = take(tmp_path, "ckpt"), take(tmp_path, "rollout")
    run_files.write_end(a.names, End(EndState.FAILED))
    here = take(tmp_path, "ckpt", start=Start(3, 4, 3, a.session.id))
    assert run_files.read_card(here.names).start == Start(3, 4, 3, a.session.id)
    run_files.write_end(here.names, End(EndState.FAILED))
    elsewhere = take(tmp_path, "ckpt", start=Start(0, 7, 7, "another session"))
    assert run_files.read_card(elsewhere.names).start == Start()


def test_a_place_in_an_old_session_is_lost(tmp_path):
    a = take(tmp_path, "ckpt")
    run_files.write_end(a.names, End(EndState.FAILED))
    take(tmp_path, "ckpt")
    with pytest.raises(SessionError, match="a new session has begun"):
        a.require_current()


def test_the_trainer_finds_the_place_that_the_main_program_took(tmp_path):
    run = open_run(tmp_path, make_card("rollout"), silence_s=20.0, clock=ManualClock())
    run.report("waiting", global_step=3)
    same = attach(run.slot.names.folder)
    assert (same.slot, same.card, same.progress) == (run.slot, run.card, run.progress)


@pytest.mark.parametrize("folder", ["nowhere", "sessions/session_1/runs/ckpt_9", "elsewhere/ckpt_1"])
def test_no_other_folder_passes_for_a_place(tmp_path, folder):
    place = take(tmp_path, "ckpt")
    (tmp_path / "elsewhere" / "ckpt_1").mkdir(parents=True)
    (tmp_path / "elsewhere" / "ckpt_1" / "card.json").write_bytes(place.names.card.read_bytes())
    with pytest.raises(SessionError):
        attach(tmp_path / folder)


def test_a_folder_that_is_no_session_is_refused(tmp_path):
    take(tmp_path, "ckpt")
    (tmp_path / "sessions" / "session_2").mkdir()
    (tmp_path / "sessions" / "session_2" / "session.json").write_text("{}")
    with pytest.raises(DamagedError, match=r"session_2/session\.json"):
        take(tmp_path, "rollout")


def test_a_disk_that_fails_is_told_with_the_key(tmp_path):
    class Full(filesystem.Filesystem):
        def mkdir(self, path):
            raise OSError(28, "No space left on device")

    with filesystem.replaced(Full()), pytest.raises(DirectoryError, match=r"share_data_dir=.*No space left"):
        open_run(tmp_path, make_card("ckpt"), silence_s=20.0, clock=ManualClock())


def test_putting_aside_never_replaces(tmp_path):
    for content in (b"first", b"second"):
        (tmp_path / "rollout_0").write_bytes(content)
        place = take(tmp_path, "ckpt")
        assert artefacts.put_aside(place) == 1
        run_files.write_end(place.names, End(EndState.FAILED))
    kept = sorted(path.read_bytes() for path in Layout(tmp_path).unknown.iterdir())
    assert kept == [b"first", b"second"]


def test_a_name_like_a_run_with_another_number_is_none(tmp_path):
    place = take(tmp_path, "ckpt")
    runs = place.names.folder.parent
    for name in ("ckpt_0", "ckpt_01", "ckpt_x", "ckpt", ".staging-ckpt_2-1", "rollout_-1"):
        (runs / name).mkdir()
    place.require_current()
    assert place.session.newest("rollout") is None
    assert [number for number, _ in place.session.runs("ckpt")] == [1]


def test_a_card_of_a_run_says_its_session(tmp_path):
    place = take(tmp_path, "ckpt")
    card = run_files.read_card(RunNames(place.names.folder))
    assert replace(card, session_id="") == make_card("ckpt")
    assert card.session_id == place.session.id
