# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the exchange costs: hand-offs of a rollout and of a checkpoint, file size, load time, memory while saving,
signs of life, interpreter start.

    python -m recipe.crosscheck.bench_exchange [--rows 2048] [--out outputs/bench/exchange.json]

The batch is what a rollout of single-turn text gives: `rows` prompts of up to 1024 tokens, padded on the left, and
responses of up to 3072, padded on the right (0.37 GB for 2048 rows). Upstream's `DataProto.save_to_disk` and
`load_from_disk` run in the same process on the same batch, taking turns with ours. Needs Linux (`/proc`).
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROMPT_TOKENS = 1024
RESPONSE_TOKENS = 3072
VOCABULARY = 150_000
PAD_ID = 0
LOAD_ROUNDS = 7
LOADS_IN_A_ROW = 3
START_ROUNDS = 41
HAND_OFF_ROWS = 64
HAND_OFF_PAUSES_S = [0.1, 0.3, 1.0, 3.0] * 5
"""How long the consumer waits before each hand-off: it looks less often the longer it has waited."""

CHECKPOINT_BYTES = 2 * 2**30
CHECKPOINT_FILES = 8
CHECKPOINT_ROUNDS = 7
SIGNS = 2000
REPORTS_A_STEP = 5
"""Generating, published, waiting, loading, taken: mode `ckpt`, without validation. Mode `rollout` makes four."""
SHORT_STEP_S = 4.0
"""A step of the demo on a CPU; those on accelerators take ten times as long and more."""

Figures = dict[str, float]


@dataclass(frozen=True)
class BenchSetting:
    """What the measurements share."""

    rows: int
    scratch: Path
    """An empty directory on the disk under test."""


# ---------------------------------------------------------------- the batch


def rollout_batch(rows: int) -> Any:
    """A rollout as upstream's DataProto: tensors (rows, tokens), object arrays (rows,), meta."""
    import torch

    from verl import DataProto

    random = torch.Generator().manual_seed(20260101)
    prompt_length = torch.randint(60, PROMPT_TOKENS, (rows, 1), generator=random)
    response_length = torch.randint(100, RESPONSE_TOKENS + 1, (rows, 1), generator=random)
    at_prompt, at_response = torch.arange(PROMPT_TOKENS), torch.arange(RESPONSE_TOKENS)
    prompt_mask = (at_prompt >= PROMPT_TOKENS - prompt_length).long()
    response_mask = (at_response < response_length).long()
    ids = torch.randint(1, VOCABULARY, (rows, PROMPT_TOKENS + RESPONSE_TOKENS), generator=random)
    attention_mask = torch.cat([prompt_mask, response_mask], dim=1)
    input_ids = torch.where(attention_mask.bool(), ids, PAD_ID)
    scores = torch.zeros(rows, RESPONSE_TOKENS)
    scores.scatter_(1, response_length - 1, torch.rand(rows, 1, generator=random))
    log_probs = -torch.rand(rows, RESPONSE_TOKENS, generator=random) * response_mask
    tensors = {
        "prompts": input_ids[:, :PROMPT_TOKENS].contiguous(),
        "responses": input_ids[:, PROMPT_TOKENS:].contiguous(),
        "response_mask": response_mask,
        "input_ids": input_ids,
        "attention_mask": attention_mask,
        "position_ids": (attention_mask.cumsum(dim=1) - 1).clamp(min=0),
        "rollout_log_probs": log_probs,
        "rm_scores": scores,
    }
    return DataProto.from_dict(tensors, _non_tensors(rows), meta_info={"global_steps": 7, "temperature": 1.0})


def _non_tensors(rows: int) -> dict[str, Any]:
    """Object arrays as a data set of word problems gives; no two rows share an object."""
    import numpy as np

    story = "A farmer sells eggs at the market, and each egg costs more than the one before. "
    columns: dict[str, list[Any]] = {
        "raw_prompt": [[{"role": "user", "content": f"{i}: {story * 6}"}] for i in range(rows)],
        "reward_model": [{"style": "rule", "ground_truth": str(i)} for i in range(rows)],
        "extra_info": [
            {
                "split": "train",
                "index": i,
                "question": story * 3,
                "answer": f"{story * 4} #### {i}",
                "weights": [0.5, None],
            }
            for i in range(rows)
        ],
        "uid": [f"{i:08x}-0000-4000-8000-000000000000" for i in range(rows)],
        "data_source": ["openai/gsm8k"] * rows,
        "multi_modal_inputs": [{} for _ in range(rows)],
    }
    arrays = {name: np.empty(rows, dtype=object) for name in columns}
    for name, values in columns.items():
        for row, value in enumerate(values):
            arrays[name][row] = value
    return {**arrays, "__num_turns__": np.full(rows, 2, dtype=np.int32)}


def batch_bytes(batch: Any) -> int:
    """Size of the batch's tensors."""
    return sum(tensor.nbytes for tensor in batch.batch.values())


# ---------------------------------------------------------------- what is compared


def save_ours(batch: Any, path: Path) -> None:
    """Saves a DataProto as a record."""
    from verl.crosscheck.exchange.record.record import Record, write_record

    record = Record(dict(batch.batch.items()), batch.non_tensor_batch, batch.meta_info, {"kind": "benchmark"})
    with path.open("wb") as file:
        write_record(file, record)


def load_ours(path: Path) -> Any:
    """Loads a record as a DataProto."""
    from verl import DataProto
    from verl.crosscheck.exchange.record.record import read_record

    record = read_record(path)
    return DataProto.from_dict(dict(record.tensors), dict(record.arrays), meta_info=dict(record.meta))


def save_upstream(batch: Any, path: Path) -> None:
    """Saves a DataProto as upstream does."""
    batch.save_to_disk(str(path))


def load_upstream(path: Path) -> Any:
    """Loads a DataProto as upstream does."""
    from verl import DataProto

    return DataProto.load_from_disk(str(path))


# ---------------------------------------------------------------- measurements


def measure_files(setting: BenchSetting) -> Figures:
    """Size on disk, and time to load and save, upstream and ours taking turns.

    Each side loads a few times in a row: a virtual machine takes up to 0.3 s to give back memory that it had lent away,
    which the first load after a pause pays for. The fastest loads are shown as well, for a busy machine only adds time.
    """
    batch = rollout_batch(setting.rows)
    ours, upstream = setting.scratch / "ours.safetensors", setting.scratch / "upstream.pkl"
    seconds: dict[str, list[float]] = {"load_ours": [], "load_upstream": [], "save_ours": [], "save_upstream": []}
    for _ in range(3):
        seconds["save_upstream"].append(_seconds(lambda: save_upstream(batch, upstream)))
        seconds["save_ours"].append(_seconds(lambda: save_ours(batch, ours)))
    _require_equal(batch, load_ours(ours))
    for _ in range(LOAD_ROUNDS):
        for _ in range(LOADS_IN_A_ROW):
            seconds["load_upstream"].append(_seconds(lambda: load_upstream(upstream)))
        for _ in range(LOADS_IN_A_ROW):
            seconds["load_ours"].append(_seconds(lambda: load_ours(ours)))
    median = {name: statistics.median(values) for name, values in seconds.items()}
    return {
        "batch_bytes": batch_bytes(batch),
        "file_bytes": ours.stat().st_size,
        "file_ratio": ours.stat().st_size / upstream.stat().st_size,
        "load_speedup": median["load_upstream"] / median["load_ours"],
        "load_speedup_of_fastest": min(seconds["load_upstream"]) / min(seconds["load_ours"]),
        **{f"{name}_ms_median": value * 1000 for name, value in median.items()},
    }


def _seconds(call: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = call()
    taken = time.perf_counter() - start
    del result
    return taken


def _require_equal(batch: Any, loaded: Any) -> None:
    """Stops the benchmark when what was loaded is not what was saved."""
    for name, tensor in batch.batch.items():
        other = loaded.batch[name]
        if other.dtype != tensor.dtype or not bool((other == tensor).all()):
            raise SystemExit(f"bench_exchange: {name} came back different")
    for name, array in batch.non_tensor_batch.items():
        if array.tolist() != loaded.non_tensor_batch[name].tolist():
            raise SystemExit(f"bench_exchange: {name} came back different")


def measure_memory(setting: BenchSetting) -> Figures:
    """Peak memory on top of the batch while saving, each in a process of its own, as a share of the batch."""
    found = {}
    for side in ("ours", "upstream"):
        command = [sys.executable, __file__, "--rows", str(setting.rows), "--memory-of", side]
        output = subprocess.run(command, check=True, capture_output=True, text=True, cwd=setting.scratch).stdout
        found[side] = float(output.strip().splitlines()[-1])
    return {"save_extra_memory_ratio": found["ours"], "save_extra_memory_ratio_upstream": found["upstream"]}


def memory_while_saving(side: str, rows: int) -> float:
    """Runs in the child: saves once, and compares the kernel's peak of resident memory with what it was before.

    A small batch is saved first, so that imports and pools are not charged.
    """
    save = {"ours": save_ours, "upstream": save_upstream}[side]
    with tempfile.TemporaryDirectory(dir=".") as scratch:
        save(rollout_batch(8), Path(scratch, "warm"))
        batch = rollout_batch(rows)
        gc.collect()
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _memory_bytes("VmRSS")
        save(batch, Path(scratch, "batch"))
        return (_memory_bytes("VmHWM") - before) / batch_bytes(batch)


def _memory_bytes(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_start(setting: BenchSetting) -> Figures:
    """What the overlay's `.pth` adds to the start of an interpreter.

    Each round starts two fresh interpreters without site processing (`-S`) and has `site` process a directory whose
    `.pth` gives the overlay's path; in one of them its second line is that of the installed `.pth`.
    The figure is the difference of the medians of the time inside the interpreter.
    """
    import _verl_overlay  # type: ignore[import-not-found]

    path_line = f"{Path(_verl_overlay.__file__).parents[1]}\n"
    installed_line = (Path(__file__).parents[2] / "overlay" / "verl_overlay.pth").read_text()
    lines = {"with": path_line + installed_line, "without": path_line}
    probe = (
        "import os, site, sys, time; start = time.perf_counter(); site.addsitedir(sys.argv[1]); "
        "print(time.perf_counter() - start, '_verl_overlay' in sys.modules)"
    )
    taken: dict[str, list[float]] = {name: [] for name in lines}
    for name, text in lines.items():
        (setting.scratch / name).mkdir()
        (setting.scratch / name / "verl_overlay.pth").write_text(text)
    for _ in range(START_ROUNDS):
        for name in lines:
            command = [sys.executable, "-S", "-c", probe, str(setting.scratch / name)]
            seconds, imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            if imported != str(name == "with"):
                raise SystemExit(f"bench_exchange: the overlay's .pth was not processed as expected ({name})")
            taken[name].append(float(seconds))
    return {"startup_ms": (statistics.median(taken["with"]) - statistics.median(taken["without"])) * 1000}


def measure_hand_off(setting: BenchSetting) -> Figures:
    """From the call that publishes a small rollout until another process, waiting for it, has it as a batch in memory.

    Both processes read the system's one monotonic clock.
    """
    from verl.crosscheck.exchange.layout import Layout
    from verl.crosscheck.run.rollouts import identify_call, save_rollout

    batch, layout = rollout_batch(HAND_OFF_ROWS), Layout(setting.scratch)
    command = [sys.executable, __file__, "--consume-from", str(setting.scratch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as consumer:
        assert consumer.stdout is not None
        consumer.stdout.readline()  # it is ready
        milliseconds = []
        for index, pause_s in enumerate(HAND_OFF_PAUSES_S):
            time.sleep(pause_s)
            start = time.monotonic()
            save_rollout(layout.rollout(index), identify_call(index, batch), batch, batch)
            milliseconds.append((float(consumer.stdout.readline()) - start) * 1000)
    if consumer.returncode:
        raise SystemExit(f"bench_exchange: the consumer ended with status {consumer.returncode}")
    return {"hand_off_ms_median": statistics.median(milliseconds), "hand_off_ms_max": max(milliseconds)}


def consume(directory: Path) -> None:
    """Runs in the child: waits for each rollout, loads it, and prints when it had it."""
    from verl.crosscheck.exchange.layout import Layout
    from verl.crosscheck.exchange.session.wait import Wait
    from verl.crosscheck.run.rollouts import identify_call, load_rollout

    own, layout, wait = rollout_batch(HAND_OFF_ROWS), Layout(directory), Wait(60.0, lambda waiting: None)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    for index in range(len(HAND_OFF_PAUSES_S)):
        call = identify_call(index, own)
        wait.until_listed(layout.rollout(index))
        load_rollout(layout.rollout(index), call, own, "")
        sys.stdout.write(f"{time.monotonic()}\n")
        sys.stdout.flush()


def measure_checkpoint(scratch: Path, size_bytes: int = CHECKPOINT_BYTES, rounds: int = CHECKPOINT_ROUNDS) -> Figures:
    """A checkpoint of `CHECKPOINT_FILES` files: published and checked, against plain copies of the same files.

    Three ways take turns, each into a new folder, the disk being idle before: `shutil.copytree` as it is, which returns
    while the bytes are in memory only; the same and an fsync of each file and of the folder, which is what being safe
    on the disk costs anybody; and ours, filled by the same `copytree`, with manifest, flush, rename, and the reader's
    check.
    """
    source, target = scratch / "source", scratch / "ckpt_0"
    source.mkdir()
    block = os.urandom(min(size_bytes // CHECKPOINT_FILES, 2**24))
    for number in range(CHECKPOINT_FILES):
        with (source / f"model_world_size_8_rank_{number}.pt").open("wb") as file:
            for _ in range(size_bytes // CHECKPOINT_FILES // len(block)):
                file.write(block)
    ways: dict[str, Callable[[], object]] = {
        "copy": lambda: shutil.copytree(source, target),
        "copy_flushed": lambda: _copy_flushed(source, target),
        "hand_off": lambda: _hand_off(source, target),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name in [*ways, *ways][number % len(ways) :][: len(ways)]:
            os.sync()
            seconds = _seconds(ways[name])
            shutil.rmtree(target)
            if number:  # the first round reads the source into memory
                taken[name].append(seconds)
    shutil.rmtree(source)
    median = {name: statistics.median(values) for name, values in taken.items()}
    pairs = zip(taken["hand_off"], taken["copy_flushed"], strict=True)
    return {
        "ckpt_bytes": size_bytes,
        **{f"ckpt_{name}_s_median": value for name, value in median.items()},
        **{f"ckpt_{name}_s_fastest": min(values) for name, values in taken.items()},
        "ckpt_overhead_over_flushed_copy": median["hand_off"] / median["copy_flushed"] - 1,
        "ckpt_overhead_over_flushed_copy_by_rounds": statistics.median(ours / other for ours, other in pairs) - 1,
        "ckpt_overhead_over_copy_in_memory": median["hand_off"] / median["copy"] - 1,
        **_without_the_copy(scratch),
    }


def _copy_flushed(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    for path in (*sorted(target.iterdir()), target):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def _hand_off(source: Path, target: Path) -> None:
    from verl.crosscheck.exchange.manifest import read_checked
    from verl.crosscheck.exchange.publish import publish_folder

    publish_folder(
        target, lambda stage: shutil.copytree(source, stage, dirs_exist_ok=True), {"kind": "ckpt", "index": 0}
    )
    read_checked(target)


def _without_the_copy(scratch: Path) -> Figures:
    """What publishing and checking take with next to nothing to copy: all that does not grow with the bytes."""
    source, target, seconds = scratch / "small", scratch / "ckpt_1", []
    source.mkdir()
    for number in range(CHECKPOINT_FILES):
        (source / f"model_world_size_8_rank_{number}.pt").write_bytes(b"x")
    for _ in range(20):
        seconds.append(_seconds(lambda: _hand_off(source, target)) - _seconds(lambda: shutil.rmtree(target)))
    return {"ckpt_fixed_ms": statistics.median(seconds) * 1000}


def measure_signs_of_life(scratch: Path) -> Figures:
    """CPU time of this thread, the system's included, that heartbeats and reports of progress take, in percent of one
    core with a heartbeat every few seconds and steps as short as the demo's; and that a look at the other run takes."""
    from verl.crosscheck.clock import SystemClock
    from verl.crosscheck.exchange.session.cards import Card, Start
    from verl.crosscheck.exchange.session.heartbeat import beat
    from verl.crosscheck.exchange.session.own_run import open_run
    from verl.crosscheck.exchange.session.peer import Peer
    from verl.crosscheck.exchange.session.processes import this_process
    from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S

    root = scratch / "signs"
    root.mkdir(mode=0o700)
    card = Card("r" * 16, "", "ckpt", "host", this_process(), "now", {}, "cpu", 1, "fsdp", Start(), 0, {})
    run = open_run(root, card, silence_s=180.0, clock=SystemClock())
    peer = Peer(run.place.session.folder, "ckpt", 180.0, SystemClock())
    beat_s = _thread_seconds(lambda: beat(run.place.names.heartbeat, 1))
    report_s = _thread_seconds(lambda: run.report_published("rollout", 0, "training"))
    look_s = _thread_seconds(peer.look)
    shutil.rmtree(root)
    return {
        "heartbeat_us": beat_s * 1e6,
        "report_us": report_s * 1e6,
        "look_us": look_s * 1e6,
        "signs_of_life_percent_of_core": (beat_s / HEARTBEAT_INTERVAL_S + REPORTS_A_STEP * report_s / SHORT_STEP_S)
        * 100,
    }


def _thread_seconds(call: Callable[[], object]) -> float:
    """CPU time of one call, on average over many."""
    call()
    start_s = time.thread_time()
    for _ in range(SIGNS):
        call()
    return (time.thread_time() - start_s) / SIGNS


def _checkpoint(setting: BenchSetting) -> Figures:
    return measure_checkpoint(setting.scratch)


def _signs_of_life(setting: BenchSetting) -> Figures:
    return measure_signs_of_life(setting.scratch)


MEASUREMENTS: list[Callable[[BenchSetting], Figures]] = [
    measure_hand_off,
    measure_files,
    measure_memory,
    measure_start,
    _signs_of_life,
    _checkpoint,
]


# ---------------------------------------------------------------- command line


def main() -> None:
    """Runs every measurement, prints a table, and writes the figures as JSON."""
    parser = argparse.ArgumentParser(description="Measures what the exchange between two runs costs.")
    parser.add_argument("--rows", type=int, default=2048, help="rows of the batch (default 2048: 0.37 GB)")
    parser.add_argument("--out", type=Path, default=Path("outputs/bench/exchange.json"), help="where the figures go")
    parser.add_argument("--scratch", type=Path, help="directory on the disk under test (default: the temporary one)")
    parser.add_argument("--memory-of", choices=["ours", "upstream"], help=argparse.SUPPRESS)
    parser.add_argument("--consume-from", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.consume_from:
        consume(arguments.consume_from)
        return
    if arguments.memory_of:
        sys.stdout.write(f"{memory_while_saving(arguments.memory_of, arguments.rows)}\n")
        return
    figures: Figures = {"rows": arguments.rows}
    for measure in MEASUREMENTS:
        with tempfile.TemporaryDirectory(dir=arguments.scratch) as scratch:
            figures |= measure(BenchSetting(arguments.rows, Path(scratch)))
    sys.stdout.writelines(f"{name:42}{value:16.4g}\n" for name, value in figures.items())
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(figures, indent=2) + "\n")
    sys.stdout.write(f"written to {arguments.out}\n")


if __name__ == "__main__":
    main()
