# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What the exchange costs: hand-offs of a rollout and of a checkpoint, file size, load time, memory while saving,
signs of life, interpreter start.

The batch is what a rollout of single-turn text gives: prompts of up to 1024 tokens, padded on the left, and responses
of up to 3072, padded on the right (0.37 GB for 2048 rows). Upstream's `DataProto.save_to_disk` and `load_from_disk` run
in the same process on the same batch, taking turns with ours. Needs Linux (`/proc`).
"""

from __future__ import annotations

import gc
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch

from recipe.crosscheck.bench.harness import (
    BenchFailed,
    Benchmark,
    BenchResult,
    console,
    figures_table,
    fsync_all,
    medians,
    processes,
    rotations,
    scratch_folder,
    seconds,
)
from verl.crosscheck.clock import SystemClock
from verl.crosscheck.exchange.layout import ArtefactKind, Layout
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.exchange.publish import publish_folder
from verl.crosscheck.exchange.record.record import Record, read_record, write_record
from verl.crosscheck.exchange.session.liveness import beat, this_process
from verl.crosscheck.exchange.session.own_run import open_run
from verl.crosscheck.exchange.session.peer import Peer
from verl.crosscheck.exchange.session.run_files import Card, Start
from verl.crosscheck.exchange.session.wait import Wait
from verl.crosscheck.run.rollouts import identify_call, load_rollout, save_rollout
from verl.crosscheck.settings import HEARTBEAT_INTERVAL_S, ShareMode
from verl.protocol import DataProto

ROOT = Path(__file__).resolve().parents[3]
PROMPT_TOKENS = 1024
RESPONSE_TOKENS = 3072
VOCABULARY = 150_000
PAD_ID = 0
SAVE_ROUNDS = 3
LOADS_IN_A_ROW = 3
HAND_OFF_ROWS = 64
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
    """What the measurements share.

    Args:
        rows: of the batch.
        scratch: an empty directory on the disk under test.
        pauses_s: how long the consumer waits before each hand-off: it looks less often the longer it has waited.
        load_rounds: times `LOADS_IN_A_ROW` loads.
        start_rounds: times two starts of an interpreter.
        ckpt_bytes, ckpt_rounds: size of the checkpoint, and how often each way is taken.
        signs: calls that CPU time is taken of.
    """

    rows: int
    scratch: Path
    pauses_s: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0) * 5
    load_rounds: int = 7
    start_rounds: int = 41
    ckpt_bytes: int = CHECKPOINT_BYTES
    ckpt_rounds: int = CHECKPOINT_ROUNDS
    signs: int = SIGNS

    @classmethod
    def quick(cls, scratch: Path) -> BenchSetting:
        return cls(16, scratch, (0.05,) * 3, 1, 3, 2**23, 1, 20)


def rollout_batch(rows: int) -> DataProto:
    """A rollout as upstream's DataProto: tensors (rows, tokens), object arrays (rows,), meta."""
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
    batch: DataProto = DataProto.from_dict(
        tensors, _non_tensors(rows), meta_info={"global_steps": 7, "temperature": 1.0}
    )
    return batch


def _non_tensors(rows: int) -> dict[str, Any]:
    """Object arrays as a data set of word problems gives; no two rows share an object."""
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


def batch_bytes(batch: DataProto) -> int:
    """Size of the batch's tensors."""
    return sum(tensor.nbytes for tensor in batch.batch.values())


def save_ours(batch: DataProto, path: Path) -> None:
    """Save a DataProto as a record."""
    record = Record(dict(batch.batch.items()), batch.non_tensor_batch, batch.meta_info, {"kind": "benchmark"})
    with path.open("wb") as file:
        write_record(file, record)


def load_ours(path: Path) -> DataProto:
    """Load a record as a DataProto."""
    record = read_record(path)
    batch: DataProto = DataProto.from_dict(dict(record.tensors), dict(record.arrays), meta_info=dict(record.meta))
    return batch


def save_upstream(batch: DataProto, path: Path) -> None:
    """Save a DataProto as upstream does."""
    batch.save_to_disk(str(path))


def load_upstream(path: Path) -> DataProto:
    """Load a DataProto as upstream does."""
    return DataProto.load_from_disk(str(path))


def measure_files(setting: BenchSetting) -> Figures:
    """Size on disk, and time to load and save, upstream and ours taking turns.

    Each side loads a few times in a row: a virtual machine takes up to 0.3 s to give back memory that it had lent away,
    which the first load after a pause pays for. The fastest loads are shown as well, for a busy machine only adds time.
    """
    batch = rollout_batch(setting.rows)
    ours, upstream = setting.scratch / "ours.safetensors", setting.scratch / "upstream.pkl"
    calls: dict[str, Callable[[], object]] = {
        "load_ours": lambda: load_ours(ours),
        "load_upstream": lambda: load_upstream(upstream),
        "save_ours": lambda: save_ours(batch, ours),
        "save_upstream": lambda: save_upstream(batch, upstream),
    }
    taken: dict[str, list[float]] = {name: [] for name in calls}

    def take(*names: str) -> None:
        for name in names:
            taken[name].append(seconds(calls[name]))

    for _ in range(SAVE_ROUNDS):
        take("save_upstream", "save_ours")
    _require_equal(batch, load_ours(ours))
    for _ in range(setting.load_rounds):
        take(*["load_upstream"] * LOADS_IN_A_ROW, *["load_ours"] * LOADS_IN_A_ROW)
    median = medians(taken)
    return {
        "batch_bytes": batch_bytes(batch),
        "file_bytes": ours.stat().st_size,
        "file_ratio": ours.stat().st_size / upstream.stat().st_size,
        "load_speedup": median["load_upstream"] / median["load_ours"],
        "load_speedup_of_fastest": min(taken["load_upstream"]) / min(taken["load_ours"]),
        **{f"{name}_ms_median": value * 1000 for name, value in median.items()},
    }


def _require_equal(batch: DataProto, loaded: DataProto) -> None:
    """Return if what was loaded is what was saved.

    Raises:
        BenchFailed: it is not.
    """
    for name, tensor in batch.batch.items():
        other = loaded.batch[name]
        if other.dtype != tensor.dtype or not bool((other == tensor).all()):
            raise BenchFailed(f"{name} came back different")
    for name, array in batch.non_tensor_batch.items():
        if array.tolist() != loaded.non_tensor_batch[name].tolist():
            raise BenchFailed(f"{name} came back different")


def measure_memory(setting: BenchSetting) -> Figures:
    """Peak memory on top of the batch while saving, each in a process of its own, as a share of the batch."""
    found = {}
    for side in ("ours", "upstream"):
        with ProcessPoolExecutor(1, mp_context=processes()) as child:
            found[side] = child.submit(memory_while_saving, side, setting.rows, setting.scratch).result()
    return {"save_extra_memory_ratio": found["ours"], "save_extra_memory_ratio_upstream": found["upstream"]}


def memory_while_saving(side: str, rows: int, folder: Path) -> float:
    """Save once, and compare the kernel's peak of this process's memory with what it was before; run in a child.

    A small batch is saved first, so that imports and pools are not charged.
    """
    save = {"ours": save_ours, "upstream": save_upstream}[side]
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
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
    import _verl_overlay

    path_line = f"{Path(_verl_overlay.__file__).parents[1]}\n"
    installed_line = (ROOT / "overlay" / "verl_overlay.pth").read_text()
    lines = {"with": path_line + installed_line, "without": path_line}
    probe = (
        "import os, site, sys, time; start = time.perf_counter(); site.addsitedir(sys.argv[1]); "
        "print(time.perf_counter() - start, '_verl_overlay' in sys.modules)"
    )
    taken: dict[str, list[float]] = {name: [] for name in lines}
    for name, text in lines.items():
        (setting.scratch / name).mkdir()
        (setting.scratch / name / "verl_overlay.pth").write_text(text)
    for _ in range(setting.start_rounds):
        for name in lines:
            command = [sys.executable, "-S", "-c", probe, str(setting.scratch / name)]
            took_s, imported = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
            if imported != str(name == "with"):
                raise BenchFailed(f"the overlay's .pth was not processed as expected ({name})")
            taken[name].append(float(took_s))
    return {"startup_ms": (medians(taken)["with"] - medians(taken)["without"]) * 1000}


def measure_hand_off(setting: BenchSetting) -> Figures:
    """From the call that publishes a small rollout until another process, waiting for it, has it as a batch in memory.

    Both processes read the system's one monotonic clock.
    """
    batch, layout = rollout_batch(HAND_OFF_ROWS), Layout(setting.scratch)
    here, there = processes().Pipe()
    consumer = processes().Process(target=consume, args=(there, setting.scratch, len(setting.pauses_s)))
    consumer.start()
    there.close()  # so that a consumer's death ends the waiting for it
    try:
        here.recv()  # it is ready
        milliseconds = []
        for index, pause_s in enumerate(setting.pauses_s):
            time.sleep(pause_s)
            start_s = time.monotonic()
            save_rollout(layout.rollout(index), identify_call(index, batch), batch, batch)
            milliseconds.append((here.recv() - start_s) * 1000)
    except EOFError:
        consumer.join()
        raise BenchFailed(f"the consumer ended with status {consumer.exitcode}") from None
    consumer.join()
    return {"hand_off_ms_median": statistics.median(milliseconds), "hand_off_ms_max": max(milliseconds)}


def consume(pipe: Connection, directory: Path, count: int) -> None:
    """Wait for each rollout, load it, and send when it was there; run in a child."""
    own, layout, wait = rollout_batch(HAND_OFF_ROWS), Layout(directory), Wait(60.0, lambda waiting: None)
    pipe.send("ready")
    for index in range(count):
        wait.until_listed(layout.rollout(index))
        load_rollout(layout.rollout(index), own, "")
        pipe.send(time.monotonic())


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
    for number, name in rotations(list(ways), rounds + 1):
        if rounds > 1:  # one round says little, idle disk or not, and others may write without end
            os.sync()
        took_s = seconds(ways[name])
        shutil.rmtree(target)
        if number:  # the first round reads the source into memory
            taken[name].append(took_s)
    shutil.rmtree(source)
    median = medians(taken)
    pairs = zip(taken["hand_off"], taken["copy_flushed"], strict=True)
    return {
        "ckpt_bytes": size_bytes,
        **{f"ckpt_{name}_s_median": value for name, value in median.items()},
        **{f"ckpt_{name}_s_fastest": min(values) for name, values in taken.items()},
        "ckpt_overhead_over_flushed_copy": median["hand_off"] / median["copy_flushed"] - 1,
        "ckpt_overhead_over_flushed_copy_by_rounds": statistics.median(ours / other for ours, other in pairs) - 1,
        "ckpt_overhead_over_copy_in_memory": median["hand_off"] / median["copy"] - 1,
        **_without_the_copy(scratch, 3 * rounds),
    }


def _copy_flushed(source: Path, target: Path) -> None:
    shutil.copytree(source, target)
    fsync_all(target)


def _hand_off(source: Path, target: Path) -> None:
    publish_folder(
        target, lambda stage: shutil.copytree(source, stage, dirs_exist_ok=True), {"kind": "ckpt", "index": 0}
    )
    read_checked(target)


def _without_the_copy(scratch: Path, rounds: int) -> Figures:
    """What publishing and checking take with next to nothing to copy: all that does not grow with the bytes."""
    source, target, taken_s = scratch / "small", scratch / "ckpt_1", []
    source.mkdir()
    for number in range(CHECKPOINT_FILES):
        (source / f"model_world_size_8_rank_{number}.pt").write_bytes(b"x")
    for _ in range(rounds):
        taken_s.append(seconds(lambda: _hand_off(source, target)) - seconds(lambda: shutil.rmtree(target)))
    return {"ckpt_fixed_ms": statistics.median(taken_s) * 1000}


def measure_signs_of_life(scratch: Path, signs: int = SIGNS) -> Figures:
    """CPU time of this thread, the system's included, that heartbeats and reports of progress take, in percent of one
    core with a heartbeat every few seconds and steps as short as the demo's; and that a look at the other run takes."""
    root = scratch / "signs"
    root.mkdir(mode=0o700)
    card = Card("r" * 16, "", ShareMode.CKPT, "host", this_process(), "now", {}, "cpu", 1, "fsdp", Start(), 0, {})
    run = open_run(root, card, silence_s=180.0, clock=SystemClock())
    peer = Peer(run.slot.session.folder, ShareMode.CKPT, 180.0, SystemClock())
    beat_s = _thread_seconds(lambda: beat(run.slot.names.heartbeat, 1), signs)
    report_s = _thread_seconds(lambda: run.report_published(ArtefactKind.ROLLOUT, 0, "training"), signs)
    look_s = _thread_seconds(peer.look, signs)
    shutil.rmtree(root)
    return {
        "heartbeat_us": beat_s * 1e6,
        "report_us": report_s * 1e6,
        "look_us": look_s * 1e6,
        "signs_of_life_percent_of_core": (beat_s / HEARTBEAT_INTERVAL_S + REPORTS_A_STEP * report_s / SHORT_STEP_S)
        * 100,
    }


def _thread_seconds(call: Callable[[], object], signs: int) -> float:
    """CPU time of one call, on average over many."""
    call()
    start_s = time.thread_time()
    for _ in range(signs):
        call()
    return (time.thread_time() - start_s) / signs


MEASUREMENTS: list[Callable[[BenchSetting], Figures]] = [
    measure_hand_off,
    measure_files,
    measure_memory,
    measure_start,
    lambda setting: measure_signs_of_life(setting.scratch, setting.signs),
    lambda setting: measure_checkpoint(setting.scratch, setting.ckpt_bytes, setting.ckpt_rounds),
]


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=2048, help="rows of the batch (default 2048: 0.37 GB)")


def _run(args: Namespace, result: BenchResult) -> int:
    for number, measure in enumerate(MEASUREMENTS):
        with scratch_folder(args) as scratch:
            setting = BenchSetting.quick(scratch) if args.quick else BenchSetting(args.rows, scratch)
            result.add({**({} if number else {"rows": setting.rows}), **measure(setting)})
    console().print(figures_table(result.figures))
    return 0


BENCHMARK = Benchmark(_options, _run, lambda args: "exchange")
