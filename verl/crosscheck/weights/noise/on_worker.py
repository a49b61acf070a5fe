# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Functions that Ray runs inside the training workers, to predict how far rounding moves log-probs and gradients.

They go through upstream's own functions of the worker, so number formats, padding, temperature, micro-batches, loss
and checkpointing of activations are the run's. All ranks have to call them together. They leave no trace: parameters,
gradients, moments, modes of modules and random states are as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import ray
import torch
from torch import nn

from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.weights.calls import actor_worker, model_of, model_owner
from verl.crosscheck.weights.noise.gradient import GradientSums, gradient_sums, local_gradients
from verl.crosscheck.weights.noise.rounding import Roundoff, rounding, training_roundoff
from verl.protocol import DataProto

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WorkerPlace:
    """A rank's place, as far as noise is concerned."""

    dp_rank: int
    dp_size: int
    why_not: Reason | None = None
    """Why noise cannot be measured here."""


@dataclass(frozen=True, eq=False)
class LogProbPass:
    """What one pass over a rank's rows gave; tokens of the response mask alone, row after row."""

    log_probs: Floats
    """[N]"""
    entropies: Floats | None
    """[N]"""


@dataclass(frozen=True, eq=False)
class LogProbPasses:
    """Passes of one data-parallel rank."""

    row_tokens: npt.NDArray[np.int64]
    """[R], sums to N."""
    plain: LogProbPass
    noisy: Mapping[str, LogProbPass]
    """By whose number format is rounded in: `train`, `engine`."""


def place(worker: Any) -> WorkerPlace:
    """Return a rank's place. Does not communicate."""
    actor = actor_worker(worker)
    owner = model_owner(actor)
    if not isinstance(model_of(owner), nn.Module):
        return WorkerPlace(0, 1, because(ReasonCode.NOISE_BACK_END, back_end="Megatron"))
    if owner is not actor:
        return WorkerPlace(owner.get_data_parallel_rank(), owner.get_data_parallel_size())
    mesh = getattr(actor, "ulysses_device_mesh", None)
    if mesh is None:
        return WorkerPlace(torch.distributed.get_rank(), torch.distributed.get_world_size())
    return WorkerPlace(mesh["dp"].get_local_rank(), mesh["dp"].size())


def log_prob_passes(
    worker: Any, parts: Sequence[Any], seed: int, engine: Roundoff | None
) -> tuple[int, LogProbPasses | None]:
    """Compute log-probs without and with noise. Return this rank's data-parallel rank, and the passes if it has them.

    Args:
        parts: rows of each data-parallel rank, or references to them.
        seed: of the noise.
        engine: roundoff of the rollout engine's format; None if it is not known.
    """
    actor = actor_worker(worker)
    rank, rows, model = _own_part(actor, parts)
    roundoffs = {"train": training_roundoff(), **({} if engine is None else {"engine": engine})}
    with _no_trace(actor, model):
        plain = _log_probs(actor, rows)
        noisy = {}
        for number, (name, roundoff) in enumerate(roundoffs.items()):
            with rounding(model, roundoff, _seed(seed, rank, number)):
                noisy[name] = _log_probs(actor, rows)
    if plain is None:
        return rank, None
    row_tokens = rows.batch["response_mask"].bool().sum(dim=1).numpy().astype(np.int64)
    return rank, LogProbPasses(row_tokens, plain, {name: each for name, each in noisy.items() if each is not None})


def gradient_passes(worker: Any, parts: Sequence[Any], seed: int) -> dict[str, GradientSums]:
    """Compute the gradient of the run's own loss without and with noise. Return sums of this rank's shards, by tensor.

    Args:
        parts, seed: as of `log_prob_passes`.
    """
    actor = actor_worker(worker)
    rank, rows, model = _own_part(actor, parts)
    optimizer = _optimizer(actor)
    plain: dict[str, torch.Tensor] = {}
    found: dict[str, GradientSums] = {}

    def keep() -> None:
        plain.update({name: each.to("cpu", copy=True) for name, each in local_gradients(model).items()})

    def compare() -> None:
        found.update(gradient_sums(model, optimizer, plain))

    with _no_trace(actor, model):
        _backward(actor, rows, keep)
        _clear(model)
        with rounding(model, training_roundoff(), _seed(seed, rank, 2)):
            _backward(actor, rows, compare)
    return found


def _own_part(actor: Any, parts: Sequence[Any]) -> tuple[int, DataProto, nn.Module]:
    rank = place(actor).dp_rank
    part = parts[rank]
    rows = cast(DataProto, ray.get(part) if isinstance(part, ray.ObjectRef) else part)
    return rank, rows, cast(nn.Module, model_of(model_owner(actor)))


def _seed(seed: int, rank: int, number: int) -> int:
    return hash((seed, rank, number))


# Upstream's functions of the two kinds of workers. Each gets a copy of the rows: they change what they are given.


def _log_probs(actor: Any, rows: DataProto) -> LogProbPass | None:
    """Return log-probs and entropies; None on a rank whose output upstream does not collect."""
    mask_BT = rows.batch["response_mask"].bool()
    if model_owner(actor) is actor:
        output = actor.compute_log_prob(_copy(rows)).batch
        log_probs_BT, entropies_BT = output["old_log_probs"], output.get("entropys")
    else:
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        config = actor.actor.engine_config
        data = _no_padding(rows, config, config.infer_micro_batch_size_per_gpu)
        tensordict_utils.assign_non_tensor(data, calculate_entropy=True, compute_loss=False)
        output = actor.compute_log_prob(data)
        if output is None:
            return None
        log_probs_BT = no_padding_2_padding(tensordict_utils.get(output, "log_probs"), data)
        entropies_BT = no_padding_2_padding(tensordict_utils.get(output, "entropy"), data)
    log_probs, entropies = (
        None if values is None else values.float().cpu()[mask_BT].numpy() for values in (log_probs_BT, entropies_BT)
    )
    assert log_probs is not None
    return LogProbPass(log_probs, entropies)


def _backward(actor: Any, rows: DataProto, measure: Callable[[], None]) -> None:
    """Run upstream's update of the actor up to the optimizer's first step, and `measure` in its place."""
    try:
        if model_owner(actor) is actor:
            with _in_place_of(actor.actor, "_optimizer_step", measure):
                actor.update_actor(_copy(rows))
        else:
            from verl.utils import tensordict_utils

            config = actor.actor.engine_config
            data = _no_padding(rows, config, config.micro_batch_size_per_gpu)
            total = len(rows) * actor.actor.engine.get_data_parallel_size()
            entropy = bool(actor.config.actor.entropy_coeff)
            tensordict_utils.assign_non_tensor(data, calculate_entropy=entropy, global_batch_size=total)
            with _in_place_of(actor.actor.engine, "optimizer_step", measure):
                actor.actor.train_batch(data)
    except _Measured:
        return
    finally:
        _offload(actor)
    raise RuntimeError(f"the update of {type(actor).__name__} made no step of its optimizer")


def _copy(rows: DataProto) -> DataProto:
    return DataProto(rows.batch.clone(), dict(rows.non_tensor_batch), dict(rows.meta_info))


def _no_padding(rows: DataProto, config: Any, micro_batch_size: int | None) -> Any:
    """Return rows in the form that the new workers take, in micro-batches of at most the configured size."""
    from verl.utils import tensordict_utils
    from verl.workers.utils.padding import left_right_2_no_padding

    data = left_right_2_no_padding(_copy(rows).to_tensordict())
    if not config.use_dynamic_bsz and micro_batch_size:
        size = next(n for n in range(min(micro_batch_size, len(rows)), 0, -1) if len(rows) % n == 0)
        tensordict_utils.assign_non_tensor(data, micro_batch_size_per_gpu=size)
    return data


class _Measured(BaseException):
    """Leaves upstream's update in the place of the optimizer's step; not for handlers of errors."""


@contextmanager
def _in_place_of(holder: Any, name: str, measure: Callable[[], None]) -> Iterator[None]:
    """Have `measure` called in the place of a method of one object, and then the caller left by `_Measured`."""

    def measure_and_leave(*args: Any, **kwargs: Any) -> None:
        measure()
        raise _Measured

    before = vars(holder).get(name)
    setattr(holder, name, measure_and_leave)
    try:
        yield
    finally:
        delattr(holder, name)
        if before is not None:
            setattr(holder, name, before)


def _offload(actor: Any) -> None:
    """Do what the legacy worker's update, which was left early, does at its end; the new one's does it in any case."""
    if model_owner(actor) is not actor:
        return
    from verl.utils.fsdp_utils import offload_fsdp_model_to_cpu, offload_fsdp_optimizer

    if getattr(actor, "_is_offload_param", False):
        offload_fsdp_model_to_cpu(actor.actor_module_fsdp)
    if getattr(actor, "_is_offload_optimizer", False):
        offload_fsdp_optimizer(optimizer=actor.actor_optimizer)


def _optimizer(actor: Any) -> torch.optim.Optimizer:
    owner = model_owner(actor)
    return cast(torch.optim.Optimizer, actor.actor_optimizer if owner is actor else owner.optimizer)


@contextmanager
def _no_trace(actor: Any, model: nn.Module) -> Iterator[None]:
    """Restore gradients, modes of modules and random states, and give back cached memory of the device."""
    from verl.utils.device import get_device_name, get_torch_device

    kind = get_device_name()
    devices = [] if kind == "cpu" else [get_torch_device().current_device()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    modes = [(module, module.training) for module in model.modules()]
    _clear(model)
    try:
        with torch.random.fork_rng(devices, device_type=kind if devices else "cuda"):
            yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        for module, training in modes:
            module.training = training
        get_torch_device().empty_cache()


def _clear(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.grad = None
