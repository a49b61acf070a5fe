# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Tensors and arrays that are being saved, seen as carriers, block by block; and the refusal of what cannot be saved.

Blocks keep the memory that saving needs small: only one block at a time is brought to the CPU, converted or compared.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from verl.crosscheck.errors import EncodingError
from verl.crosscheck.exchange.record.types import Carried, Form, array_form, tensor_form, tensor_type

Index = tuple[int | slice, ...]
"""Selects one block of an array."""

BLOCK_BYTES = 8 << 20
"""How much of one array is converted, hashed or compared at a time."""

_MAX_DIMENSIONS = 31  # numpy 1 has 32, and a complex number takes one

_TORCH_OF_CARRIER = {
    "u1": torch.uint8,
    "i1": torch.int8,
    "i2": torch.int16,
    "i4": torch.int32,
    "i8": torch.int64,
}


class RefusedError(Exception):
    """A value has no representation; collects the path to it on the way up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.trail: list[str] = []

    def at(self, root: str) -> EncodingError:
        """The error for the user, for a value under `root`."""
        return EncodingError(f"{root}{''.join(reversed(self.trail))}: {self.problem}")


def tensor_source(tensor: torch.Tensor) -> ByteSource:
    """A tensor as a source of carriers; RefusedError for what a file cannot hold."""
    advice = "store a plain dense tensor on the CPU or an accelerator"
    if tensor.is_nested:
        raise RefusedError("a nested (jagged) tensor is not representable; store it padded, or its values and offsets")
    if type(tensor) is not torch.Tensor:
        raise RefusedError(f"{type(tensor).__name__} is not representable; store value.detach() or a plain tensor")
    if tensor.layout != torch.strided:
        raise RefusedError(f"a tensor of layout {tensor.layout} is not representable; store value.to_dense()")
    if tensor.is_quantized:
        raise RefusedError("a quantised tensor is not representable; store value.int_repr(), the scale and zero point")
    if tensor.is_meta:
        raise RefusedError(f"a tensor on the meta device has no values; {advice}")
    if tensor.requires_grad:
        raise RefusedError("a tensor that requires grad is not representable; store value.detach()")
    form = tensor_form(tensor_type(tensor.dtype))
    if form is None or tensor.ndim > _MAX_DIMENSIONS:
        raise RefusedError(f"a tensor of {tensor.dtype} with {tensor.ndim} dimensions is not representable; {advice}")
    return ByteSource(tensor, form)


def array_source(array: npt.NDArray[Any]) -> ByteSource:
    """A numpy array, not of objects, as a source of carriers; RefusedError for what a file cannot hold."""
    if type(array) is not np.ndarray:
        raise RefusedError(f"numpy {type(array).__name__} is not representable; store numpy.asarray(value)")
    form = array_form(array.dtype)
    if form is None or array.ndim > _MAX_DIMENSIONS:
        advice = "store int64 by value.view('i8')" if array.dtype.kind in "mM" else "convert it with value.astype(...)"
        raise RefusedError(
            f"a numpy array of dtype {array.dtype} with {array.ndim} dimensions is not representable; {advice}"
        )
    return ByteSource(array, form)


def blocks(shape: tuple[int, ...], itemsize: int, block_bytes: int = BLOCK_BYTES) -> Iterator[Index]:
    """Indexes that cut an array of this shape into consecutive runs of at most `block_bytes`, in C order."""
    if not shape:
        yield ()
        return
    axis = 0
    while axis < len(shape) - 1 and math.prod(shape[axis + 1 :]) * itemsize > block_bytes:
        axis += 1
    step = max(1, block_bytes // max(1, math.prod(shape[axis + 1 :]) * itemsize))
    for outer in itertools.product(*(range(n) for n in shape[:axis])):
        for start in range(0, shape[axis], step):
            yield (*outer, slice(start, start + step))


@dataclass(frozen=True)
class ByteSource:
    """A tensor or array that is being saved, seen as carriers, block by block."""

    data: torch.Tensor | npt.NDArray[Any]
    form: Form

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the carriers: the data's own, with the lanes as last axis."""
        return self.form.carried_shape(tuple(self.data.shape))

    def blocks(self) -> Iterator[Index]:
        """Indexes of the data's blocks, in C order."""
        lane_bytes = self.form.carrier.itemsize * (1 if self.form.lanes is None else max(1, self.form.lanes))
        return blocks(tuple(self.data.shape), lane_bytes)

    def block(self, index: Index) -> Carried:
        """One block as carriers, on the CPU; shares the data's memory where it can."""
        if isinstance(self.data, torch.Tensor):
            return _tensor_carriers(self.data[index], self.form)
        whole: tuple[Any, ...] = (*index, ...)  # the ellipsis makes numpy give an array, not a scalar, for no axis
        return _array_carriers(self.data[whole], self.form)


def _tensor_carriers(part: torch.Tensor, form: Form) -> Carried:
    part = part.detach().cpu().resolve_conj().resolve_neg()
    if form.lanes is not None:
        part = torch.view_as_real(part)
    if not form.narrowable:
        part = part.view(_TORCH_OF_CARRIER[form.carrier.str[1:]])
    return _clean(part.numpy(), form)


def _array_carriers(part: npt.NDArray[Any], form: Form) -> Carried:
    # The bits are reinterpreted in the array's own byte order and swapped as integers.
    own_order = form.carrier.newbyteorder(">" if part.dtype.byteorder == ">" else "<")
    if form.lanes is None:
        return _clean(part.view(own_order).astype(form.carrier, copy=False), form)
    shape = form.carried_shape(part.shape)
    if 0 in shape:
        return np.empty(shape, form.carrier)
    return np.ascontiguousarray(part).view(own_order).reshape(shape).astype(form.carrier, copy=False)


def _clean(carriers: Carried, form: Form) -> Carried:
    """Booleans as 0 and 1: memory that was never written may hold other bytes, which mean true."""
    return np.not_equal(carriers, 0).view(np.uint8) if form.storage == "BOOL" else carriers
