# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every benchmark in its quick form, as `scripts/bench` runs it; those of real runs judge made-up evidence here.

Their real quick forms are in `tests/special_e2e/test_bench_on_cpu.py`.
"""

import json
import os
import signal
from pathlib import Path

import pytest

from recipe.crosscheck.bench import __main__ as command
from recipe.crosscheck.bench import engines, harness, pairs
from recipe.crosscheck.bench.pairs import Play
from recipe.crosscheck.bench.synthetic import start_run
from recipe.crosscheck.launch import Step
from verl.crosscheck.exchange.session.liveness import this_process

BENCH = Path(command.__file__).parent
KEYS = {
    "engines": {"hf, float32"},
    "evidence": {"rows", "rows_kept", "tokens_kept", "file_bytes", "bytes_per_token", "elapsed_s", "cpu_s"},
    "exchange": {
        *("rows", "batch_bytes", "file_bytes", "file_ratio", "load_speedup", "load_speedup_of_fastest"),
        *("load_ours_ms_median", "load_upstream_ms_median", "save_ours_ms_median", "save_upstream_ms_median"),
        *("hand_off_ms_median", "hand_off_ms_max", "save_extra_memory_ratio", "save_extra_memory_ratio_upstream"),
        *("startup_ms", "heartbeat_us", "report_us", "look_us", "signs_of_life_percent_of_core"),
        *("ckpt_bytes", "ckpt_fixed_ms", "ckpt_overhead_over_flushed_copy", "ckpt_overhead_over_copy_in_memory"),
        *(f"ckpt_{way}_s_{of}" for way in ("copy", "copy_flushed", "hand_off") for of in ("median", "fastest")),
        "ckpt_overhead_over_flushed_copy_by_rounds",
    },
    "faults": {
        *("faults", "localised", "switches", "healthy_steps", "false_accusations", "accusations", "took_s", "tried"),
        "healthy_pairs",
    },
    "portable": {
        *("mib", "native_times_portable_bytes", "portable_writer_extra_mib", "portable_reader_extra_mib"),
        *(f"{way}_{part}_s" for way in ("portable", "safetensors", "torch") for part in ("write", "flush", "read")),
        *(f"times_{way}{of}" for way in ("safetensors", "torch") for of in ("", "_in_memory")),
        *(f"times_{way}{of}_rounds" for way in ("safetensors", "torch") for of in ("", "_in_memory")),
    },
    "report": {"wall_s", "cpu_s", "peak_mb", "page_mb", "steps", "rows", "tokens", "recompute"},
    "sensitivity": {"rotary_base", "gradient_scaled"},
}
"""Of a finished result."""
WITHOUT_RUNS = {"engines", "faults", "sensitivity"}


@pytest.fixture(autouse=True)
def importable_for_children(monkeypatch):
    """As `scripts/bench` has it."""
    monkeypatch.setenv("PYTHONPATH", str(BENCH.parents[2]))


def quick(name, out, *options):
    made_up = ["--made-up"] if name in WITHOUT_RUNS else []
    return command.main([name, "--quick", *made_up, "--out", str(out), *options])


def test_every_benchmark_is_listed_and_tried(capsys):
    modules = {path.stem for path in BENCH.glob("*.py") if "\nBENCHMARK = " in path.read_text()}
    assert command.BENCHMARKS.keys() == KEYS.keys() == modules
    assert command.main(["--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == sorted(modules)


@pytest.mark.parametrize("name", KEYS)
def test_it_runs_from_any_folder_and_writes_what_it_found(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert quick(name, f"{name}.json") == 0
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert found.keys() == KEYS[name]
    (folder,) = (tmp_path / name).iterdir()
    assert json.loads((folder / f"{name}.json").read_text()) == found


def test_faults_are_judged_step_by_step(tmp_path):
    assert quick("faults", tmp_path / "faults.json") == 0
    found = json.loads((tmp_path / "faults.json").read_text())
    assert (found["faults"], found["localised"], found["healthy_steps"], found["false_accusations"]) == (3, 3, 2, 0)
    assert [(each["fault"], each["step"], each["verdict"]) for each in found["tried"]] == [
        ("stale_weights", 2, "rollout"),
        ("train_temperature", 3, "training_forward"),
        ("gradient_scaled", 4, "training_update"),
    ]


def test_a_missed_fault_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr(pairs, "STAND_INS", dict.fromkeys(pairs.STAND_INS, ""))
    assert quick("faults", tmp_path / "faults.json") == 1
    assert json.loads((tmp_path / "faults.json").read_text())["localised"] == 0


@pytest.mark.parametrize(
    ("option", "name"),
    [(["--unequal-ranks"], "faults_unequal_ranks"), (["--ppo", "--new-workers"], "faults_ppo_new_workers")],
)
def test_other_pairs_have_results_of_their_own(option, name, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "OUTPUTS", tmp_path)
    command.main(["faults", "--quick", "--made-up", *option])
    assert json.loads((tmp_path / f"{name}.json").read_text())["faults"] > 0


def interrupted_after(monkeypatch, pairs_done):
    """Let a signal come while the pair after so many is made."""
    make_up, done = pairs.make_up, []

    def made_up(play, out):
        if len(done) == pairs_done:
            os.kill(os.getpid(), signal.SIGTERM)
        done.append(play.name)
        return make_up(play, out)

    monkeypatch.setattr(pairs, "make_up", made_up)


def test_an_interrupted_one_keeps_its_finished_parts_and_can_be_run_again(tmp_path, monkeypatch):
    out = tmp_path / "faults.json"
    with monkeypatch.context() as patch:
        interrupted_after(patch, 2)
        assert command.main(["faults", "--made-up", "--out", str(out)]) == 130
    found = json.loads(out.read_text())
    assert found[harness.UNFINISHED] is True
    assert 0 < found["faults"] < 16
    with monkeypatch.context() as patch:
        interrupted_after(patch, 0)
        assert command.main(["faults", "--made-up", "--out", str(out)]) == 130
    assert not out.exists(), "figures of the earlier run would be taken for this one's"
    assert quick("faults", out) == 0
    assert json.loads(out.read_text())["faults"] == 3
    assert len(list((tmp_path / "faults").iterdir())) == 3


def test_a_run_is_found_in_the_session_that_it_joined(tmp_path):
    (tmp_path / "share").mkdir(mode=0o700)
    first = start_run(tmp_path / "share", "ckpt")
    first.end(None)
    again = start_run(tmp_path / "share", "ckpt")
    assert again.slot.names.folder != first.slot.names.folder
    assert pairs.joined(tmp_path / "share", "ckpt", this_process()["pid"]) == again.slot.names
    with pytest.raises(harness.BenchFailed, match="no session has a run of mode ckpt with pid 1;"):
        pairs.joined(tmp_path / "share", "ckpt", 1)
    with pytest.raises(harness.BenchFailed, match="no session"):
        pairs.joined(tmp_path / "elsewhere", "rollout", 1)


def test_a_failing_run_is_told(tmp_path, monkeypatch, capsys):
    def fail(play, out):
        raise command.RunFailed("a: ended with exit code 1")

    monkeypatch.setattr(pairs, "make_up", fail)
    assert quick("faults", tmp_path / "faults.json") == 1
    assert "faults failed: a: ended with exit code 1" in " ".join(capsys.readouterr().out.split())


def step(number, value):
    return Step(number, dict.fromkeys(engines.QUANTITIES.values(), value))


def test_the_floor_is_the_median_without_the_step_that_warms_up():
    found = engines.floor([step(1, 100.0), step(2, 3.0), step(3, 1.0), step(4, 2.0)])
    assert found == dict.fromkeys(engines.QUANTITIES, 2.0)


def test_a_metric_that_a_run_does_not_have_is_not_made_up():
    with pytest.raises(KeyError, match="rollout_probs_diff_mean"):
        engines.floor([step(1, 1.0), Step(2, {})])


def test_engines_stand_side_by_side():
    found = {name: dict.fromkeys(engines.QUANTITIES, value) for name, value in (("hf", 1.0), ("vllm", 7e-7))}
    shown = engines.table(found)
    assert [column.header for column in shown.columns] == ["", "hf", "vllm"]
    assert list(shown.columns[2].cells) == ["7e-07"] * len(engines.QUANTITIES)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["engines", "--steps", "1"], "at least 2"),
        (["engines", "--engines", "vllm"], "--engines hf"),
        (["faults", "--upstream-6345", "--made-up"], "leave --made-up out"),
        (["sensibility"], "choose from"),
        ([], "expected the name of a benchmark"),
    ],
)
def test_what_cannot_work_is_said_before_a_run(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.setattr(engines, "find_spec", lambda name: None)
    monkeypatch.setattr(command, "OUTPUTS", tmp_path / "bench")
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "bench").exists()


def test_every_step_of_a_plan_that_is_not_planted_is_healthy():
    play = Play("pair", pairs.plans.parse("stale_weights@2,dropout@4"), steps=5)
    assert play.healthy_steps() == [1, 3, 5]
