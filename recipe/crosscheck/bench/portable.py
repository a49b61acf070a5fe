# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What portable weights cost: time to publish and load, memory while doing so, bytes against a native checkpoint.

A model of square fp32 layers is written by 2 ranks of FSDP2 and loaded by 1. Taking turns with that, one process writes
and reads the same bytes plainly: `safetensors` in files of 512 MiB, and `torch.save`, each read back and copied into a
model. `flush_s` is what it takes after that until the files are safe on the disk (fsync), which publishing a checkpoint
waits for; `in_memory` compares without it. Reading is from the page cache. Memory is anonymous memory (`RssAnon`, so
without the files' pages) while a call runs, above what it was before, sampled every 2 ms. Needs Linux.
"""

from __future__ import annotations

import io
import os
import shutil
import statistics
import tempfile
import threading
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from recipe.crosscheck.bench.harness import (
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
from verl.crosscheck.weights.portable import loading, saving, transfer
from verl.crosscheck.weights.portable.writing import FILE_BYTES

WRITERS = 2
MIB = 1 << 20
LARGEST_SIDE = 4096
NATIVE_MIB = 64
"""Size of the model whose native checkpoint is counted: the ratio does not depend on it."""
SAMPLE_S = 0.002


class Memory:
    """Peak of this process's anonymous memory above that at the start, in MiB."""

    extra_mib = 0.0

    @contextmanager
    def watch(self) -> Iterator[None]:
        before, stop = anonymous_mib(), threading.Event()
        self.extra_mib = 0.0

        def sample() -> None:
            while not stop.wait(SAMPLE_S):
                self.extra_mib = max(self.extra_mib, anonymous_mib() - before)

        thread = threading.Thread(target=sample)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def anonymous_mib() -> float:
    """`RssAnon` of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("/proc/self/status has no RssAnon")


def build(mib: int, seed: int) -> nn.Sequential:
    """Square layers, `mib` MiB together."""
    torch.manual_seed(seed)
    side = min(LARGEST_SIDE, int((mib * MIB / 8 / 4) ** 0.5))
    layers = [nn.Linear(side, side, bias=False) for _ in range(round(mib * MIB / 4 / side**2))]
    return nn.Sequential(*layers)


def shard(model: nn.Sequential, ranks: int) -> nn.Module:
    """With FSDP2 over all ranks."""
    mesh = init_device_mesh("cpu", (ranks,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def gathered(result: Any) -> list[Any]:
    results: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(results, result)
    return results


Command = Callable[[Path], dict[str, float]]


def sharded_process(pipe: Connection, mib: int, rank: int, ranks: int, store: Path) -> None:
    """Be a rank: save or load when asked."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(store), ranks), rank=rank, world_size=ranks)
    model, memory = shard(build(mib, seed=ranks), ranks), Memory()

    def save(folder: Path) -> None:
        with memory.watch():
            done = gathered(saving.save_module(model, folder))
            if rank == 0:
                transfer.finish(folder, done)

    def load(folder: Path) -> None:
        with memory.watch():
            prepared = [loading.prepare_module(model, folder)]
            transfer.require_same_bases(folder, prepared)
            transfer.summary(folder, prepared, [loading.load_module(model, folder)])

    def saved(folder: Path) -> dict[str, float]:
        dist.barrier()
        return {"write_s": seconds(lambda: save(folder)), "extra_mib": memory.extra_mib}

    def loaded(folder: Path) -> dict[str, float]:
        return {"read_s": seconds(lambda: load(folder)), "extra_mib": memory.extra_mib}

    serve(pipe, {"save": saved, "load": loaded})
    dist.destroy_process_group()


def plain_process(pipe: Connection, mib: int) -> None:
    """Be the one process that writes and reads the same bytes as anybody would."""
    torch.set_num_threads(1)
    model = build(mib, seed=0)

    def write_safetensors(folder: Path) -> None:
        for number, tensors in enumerate(split(model.state_dict())):
            save_file(tensors, folder / f"{number}.safetensors")

    def read_safetensors(folder: Path) -> None:
        for path in sorted(folder.iterdir()):
            copy(model, load_file(path))

    def write_torch(folder: Path) -> None:
        torch.save(model.state_dict(), folder / "model.pt")

    def read_torch(folder: Path) -> None:
        copy(model, torch.load(folder / "model.pt", weights_only=True))

    def timed(key: str, call: Callable[[Path], None]) -> Command:
        return lambda folder: {key: seconds(lambda: call(folder))}

    writing, reading = (write_safetensors, write_torch), (read_safetensors, read_torch)
    commands = [("write_s", call) for call in writing] + [("read_s", call) for call in reading]
    serve(pipe, {call.__name__: timed(key, call) for key, call in commands})


def split(tensors: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """In files as large as ours."""
    files: list[dict[str, torch.Tensor]] = [{}]
    for name, tensor in tensors.items():
        if sum(each.nbytes for each in files[-1].values()) + tensor.nbytes > FILE_BYTES:
            files.append({})
        files[-1][name] = tensor
    return files


def copy(model: nn.Module, tensors: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        parameters = dict(model.named_parameters())
        for name, tensor in tensors.items():
            parameters[name].copy_(tensor)


def serve(pipe: Connection, commands: dict[str, Command]) -> None:
    """Run commands until told to end."""
    pipe.send("ready")
    while (asked := pipe.recv()) is not None:
        command, folder = asked
        pipe.send(commands[command](folder))


class Counted(io.RawIOBase):
    """A file that only counts what is written."""

    size_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = memoryview(data).nbytes
        self.size_bytes += count
        return count


def native_bytes(mib: int) -> float:
    """Bytes of model and Adam's state by torch.save, as in upstream's checkpoints, per byte of portable weights."""
    model = build(mib, seed=0)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    file = Counted()
    for content in (model.state_dict(), optimizer.state_dict()):
        torch.save(content, file)
    with tempfile.TemporaryDirectory() as folder:
        transfer.finish(Path(folder), [saving.save_module(model, Path(folder))])
        portable = sum(each.stat().st_size for each in Path(folder).iterdir())
    return file.size_bytes / portable


def ask(pipes: list[Connection], command: str, folder: Path) -> dict[str, float]:
    """The largest figures of those who were asked."""
    for pipe in pipes:
        pipe.send((command, folder))
    answers: list[dict[str, float]] = [pipe.recv() for pipe in pipes]
    return {key: max(answer[key] for answer in answers) for key in answers[0]}


def measure(mib: int, rounds: int, scratch: Path) -> dict[str, Any]:
    """Medians of all rounds."""
    context = processes()
    children, pipes = [], []
    roles: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
        *((sharded_process, (mib, rank, WRITERS, scratch / "writers")) for rank in range(WRITERS)),
        (sharded_process, (mib, 0, 1, scratch / "reader")),
        (plain_process, (mib,)),
    ]
    for target, arguments in roles:
        here, there = context.Pipe()
        children.append(context.Process(target=target, args=(there, *arguments), daemon=True))
        children[-1].start()
        there.close()
        pipes.append(here)
    assert all(pipe.recv() == "ready" for pipe in pipes)
    writers, reader, plain = pipes[:WRITERS], pipes[WRITERS : WRITERS + 1], pipes[WRITERS + 1 :]
    ways = {
        "portable": ((writers, "save"), (reader, "load")),
        "safetensors": ((plain, "write_safetensors"), (plain, "read_safetensors")),
        "torch": ((plain, "write_torch"), (plain, "read_torch")),
    }
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ways}
    for number, name in rotations(list(ways), rounds + 1):
        row = measure_once(*ways[name], Path(tempfile.mkdtemp(dir=scratch)))
        if number:  # the first round warms up
            found[name].append(row)
    for pipe, child in zip(pipes, children, strict=True):
        pipe.send(None)
        child.join()
    return figures(found)


def measure_once(
    write: tuple[list[Connection], str], read: tuple[list[Connection], str], folder: Path
) -> dict[str, float]:
    """Write, flush and read one folder, which goes."""
    os.sync()
    wrote, flush_s = ask(*write, folder), seconds(lambda: fsync_all(folder))
    loaded = ask(*read, folder)
    shutil.rmtree(folder)
    row = {"write_s": wrote["write_s"], "flush_s": flush_s, "read_s": loaded["read_s"]}
    extra = {"writer_extra_mib": wrote, "reader_extra_mib": loaded}
    return row | {name: answer["extra_mib"] for name, answer in extra.items() if "extra_mib" in answer}


def figures(found: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Medians, and how much longer publishing and loading took than the plain ways."""
    values = {f"{name}_{key}": [row[key] for row in rows] for name, rows in found.items() for key in rows[0]}
    absolute = {name: round(value, 3) for name, value in medians(values).items()}
    ratios: dict[str, Any] = {}
    for plain in ("safetensors", "torch"):
        pairs = list(zip(found["portable"], found[plain], strict=True))
        for label, keys in (("", ("write_s", "flush_s", "read_s")), ("_in_memory", ("write_s", "read_s"))):
            each = [sum(map(ours.__getitem__, keys)) / sum(map(other.__getitem__, keys)) for ours, other in pairs]
            ratios[f"times_{plain}{label}"] = round(statistics.median(each), 2)
            ratios[f"times_{plain}{label}_rounds"] = [round(ratio, 2) for ratio in each]
    return absolute | ratios


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("--mib", type=int, default=2048, help="size of the model")
    parser.add_argument("--rounds", type=int, default=3, help="rounds after the one that warms up")


def _run(args: Namespace, result: BenchResult) -> int:
    mib, rounds, native_mib = (4, 1, 1) if args.quick else (args.mib, args.rounds, NATIVE_MIB)
    with scratch_folder(args) as scratch:
        result.add(measure(mib, rounds, scratch))
    result.add({"mib": mib, "native_times_portable_bytes": round(native_bytes(native_mib), 3)})
    console().print(figures_table(result.figures))
    return 0


BENCHMARK = Benchmark(_options, _run, lambda args: "portable")
