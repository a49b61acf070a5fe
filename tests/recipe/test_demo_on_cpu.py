# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the demo does with folders and paths, without training anything."""

import io
import os
import signal
from dataclasses import replace

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf
from rich.console import Console

from recipe.crosscheck import demo
from recipe.crosscheck.launch import ENVIRONMENT, override
from verl.crosscheck.inspection.run_state import WatchedRun
from verl.crosscheck.pair.watch import PairOutcome

PATHS = ["/plain", "/with space", "/\u00e4/\u4e2d", "/it's", "/a,b=c", "~/x", "/(x)#&[y]{z}"]
BACKSLASHES_AND_DOLLARS = ["/back\\slash\\", "/odd\\'", "/${x}", "/y\\${z}'"]


@pytest.mark.parametrize("path", PATHS + BACKSLASHES_AND_DOLLARS)
def test_hydra_reads_any_path_as_it_is(path):
    parsed = OverridesParser.create().parse_override(override("trainer.share_data_dir", path))
    assert parsed.key_or_group == "trainer.share_data_dir"
    assert OmegaConf.create({"path": parsed.value()}).path == path


def claim(out):
    with demo.claimed(out):
        pass


def test_a_fresh_folder_is_made_and_an_earlier_demos_is_emptied(tmp_path):
    out = tmp_path / "new" / "out"
    claim(out)
    (out / "a").mkdir()
    (out / "a" / "run.log").touch()
    (out / "summary.json").touch()
    (out / "notes").touch()
    claim(out)
    assert sorted(path.name for path in out.iterdir()) == [demo.MARKER, "notes"]


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path):
    (tmp_path / "share").mkdir()
    (tmp_path / "share" / "thesis").write_text("precious")
    with pytest.raises(demo.DemoFailed, match="not empty, and not of an earlier demo"):
        claim(tmp_path)
    assert (tmp_path / "share" / "thesis").read_text() == "precious"


def test_a_link_in_an_earlier_demos_folder_is_not_followed(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "thesis").touch()
    claim(tmp_path / "out")
    (tmp_path / "out" / "a").symlink_to(tmp_path / "elsewhere")
    claim(tmp_path / "out")
    assert (tmp_path / "elsewhere" / "thesis").exists()


def test_two_demos_do_not_share_a_folder(tmp_path):
    with demo.claimed(tmp_path):
        (tmp_path / "a").mkdir()
        with pytest.raises(demo.DemoFailed, match="Another demo is running"):
            claim(tmp_path)
        assert (tmp_path / "a").exists()


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(demo.DemoFailed, match="cannot be used"):
        claim(tmp_path / "file")


def test_a_folder_that_reads_as_a_pattern_is_refused(capsys):
    with pytest.raises(SystemExit):
        demo.parse(["--out", "/tmp/g[1]"])
    assert "Name another folder" in capsys.readouterr().err


def test_a_fault_is_planted_in_run_a_unless_told_otherwise(tmp_path):
    external = "actor_rollout_ref.model.external_lib=recipe.crosscheck.faults.planted"
    cases = {
        "stale_weights@2-": [],
        "untempered_log_probs@3": ["--fault", "untempered_log_probs@3"],
        "": ["--fault", "none"],
    }
    for text, arguments in cases.items():
        args = demo.parse(["--out", str(tmp_path), *arguments])
        assert str(args.fault) == text
        (a, env_a), (b, env_b) = ((side.overrides, side.env) for side in demo.pair_of(args).sides)
        assert (external in a) is bool(text) and external not in b
        assert env_a.get("VERL_CROSSCHECK_FAULTS", "") == text and env_b == ENVIRONMENT
        hot = "actor_rollout_ref.rollout.temperature=1.3"
        assert (hot in a) is (hot in b) is text.startswith("untempered")


def test_a_fault_that_is_not_there_is_explained(capsys):
    with pytest.raises(SystemExit):
        demo.parse(["--fault", "stale"])
    assert "--fault: there is no fault 'stale'. There are: temperature" in capsys.readouterr().err


def test_what_is_not_finite_is_shown_as_such():
    """Upstream's file logger writes null for it."""
    step = {"step": 1, "grad_norm": None, "loss": 1e-3, "reward": 0.5}
    step |= dict.fromkeys(("work_s", "wait_s", "save_s", "load_s", "exchange_s"), 1.0)
    run = {"mode": "ckpt", "steps": [step]}
    cells = [cell for column in demo.table({"a": run, "b": run}).columns for cell in column.cells]
    assert cells.count("not finite") == 2 and cells.count("+1.00e-03") == 2


def test_a_signal_is_acted_upon_where_nothing_is_half_done():
    with demo.Signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            stop.check()


def test_what_nohup_ignores_stays_ignored():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with demo.Signals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            stop.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def outcome_of(out, **changes):
    pair = demo.pair_of(demo.parse(["--out", str(out)]))
    runs = tuple(WatchedRun(side.mode) for side in pair.sides)
    found = PairOutcome(pair, ok=False, words="", elapsed_s=1.0, codes=(1, None), runs=runs, compared=False)
    return replace(found, **changes, cause=pair.sides[0])


def test_the_last_error_of_a_long_log_is_shown(tmp_path):
    lines = tuple(f"line {i}" for i in range(15))
    outcome = outcome_of(tmp_path, words="Run A ended with status 1", error="ValueError: the cause", tail=lines)
    shown = demo.why(outcome).splitlines()
    assert shown[:4] == ["Run A ended with status 1:", "ValueError: the cause", "...", "line 0"]
    assert str(tmp_path) in shown[-1]


def test_a_pair_that_stalls_is_told_with_the_end_of_a_log(tmp_path):
    pair = demo.pair_of(demo.parse(["--out", str(tmp_path)]))
    pair.sides[0].log.write_text("the last line\n")
    shown = demo.why(replace(outcome_of(tmp_path), pair=pair, cause=None)).splitlines()
    assert shown == ["Nothing happened for 600 s. Run A:", "the last line", f"The whole log: {pair.sides[0].log}"]


def test_a_long_log_line_leaves_the_other_columns_whole():
    out = io.StringIO()
    rows = [(f"run {name}", "rollout", "step 4 of 4", "weights differ " * 20) for name in "AB"]
    Console(file=out, width=60).print(demo.side_by_side(rows, 3.0))
    assert out.getvalue().count("rollout     step 4 of 4") == 2
