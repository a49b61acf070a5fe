# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Element types of a record, and arrays and tensors of them as integers of the same bits.

A record never computes with floats: a float32 is carried as int32, a bfloat16 as int16, a complex number as two lanes,
a numpy text of five characters as five code points. So NaN payloads and the sign of zero survive by construction.
What is being saved is looked at block by block: only one block at a time is brought to the CPU, converted or compared.

Torch is imported only where a tensor is at hand or asked for.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt

from verl.crosscheck.errors import EncodingError
from verl.crosscheck.exchange.record.container import CARRIER_OF_STORAGE, MalformedError

if TYPE_CHECKING:
    import torch

Carried = npt.NDArray[Any]
"""A numpy array of a carrier type: integers only."""

INTEGER_STORAGES = ("U8", "I8", "U16", "I16", "U32", "I32", "U64", "I64")
"""From narrow to wide: the order in which a narrower type is looked for."""

_TENSOR_STORAGES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "uint16": "U16",
    "int16": "I16",
    "uint32": "U32",
    "int32": "I32",
    "uint64": "U64",
    "int64": "I64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    # Newer or rarer one-byte floats: stored as plain bytes, for readers that do not know them.
    "float8_e4m3fnuz": "U8",
    "float8_e5m2fnuz": "U8",
    "float8_e8m0fnu": "U8",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex32": "F16",
    "complex64": "F32",
    "complex128": "F64",
}

_ARRAY_STORAGES = {
    "b1": "BOOL",
    "u1": "U8",
    "i1": "I8",
    "u2": "U16",
    "i2": "I16",
    "u4": "U32",
    "i4": "I32",
    "u8": "U64",
    "i8": "I64",
    "f2": "F16",
    "f4": "F32",
    "f8": "F64",
    "c8": "F32",
    "c16": "F64",
}


@dataclass(frozen=True)
class Form:
    """How elements of one type are carried and stored."""

    storage: str
    """The safetensors type, unless a narrower one holds the values."""
    lanes: int | None = None
    """Length of the extra last axis of types that take several carriers per element; None without such an axis."""
    narrowable: bool = False
    """Whether a narrower integer type may take the values."""

    @property
    def carrier(self) -> np.dtype[Any]:
        """The integer type, little-endian, that has the bits of one lane."""
        return np.dtype("<" + CARRIER_OF_STORAGE[self.storage])

    def carried_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the shape of the carriers of an array of this shape."""
        return shape if self.lanes is None else (*shape, self.lanes)

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Return the memory that an array of this shape takes once restored."""
        return math.prod(self.carried_shape(shape)) * self.carrier.itemsize


def tensor_type(tensor: torch.Tensor) -> str:
    """Return the name of a tensor's type in a record: `int64`, `bfloat16`."""
    return str(tensor.dtype).removeprefix("torch.")


def tensor_form(name: str) -> Form | None:
    """Return the form of a torch type by its name; None where a record cannot hold it."""
    storage = _TENSOR_STORAGES.get(name)
    if storage is None:
        return None
    lanes = 2 if name.startswith("complex") else None
    return Form(storage, lanes, narrowable="int" in name)


def array_form(dtype: np.dtype[Any]) -> Form | None:
    """Return the form of a numpy type, object excluded; None where a record cannot hold it."""
    if dtype.kind in "US" and dtype.subdtype is None:
        storage = "U32" if dtype.kind == "U" else "U8"
        return Form(storage, dtype.itemsize // (4 if dtype.kind == "U" else 1), narrowable=True)
    found = _ARRAY_STORAGES.get(f"{dtype.kind}{dtype.itemsize}")
    if found is None or dtype.subdtype is not None:
        return None
    return Form(found, 2 if dtype.kind == "c" else None, narrowable=dtype.kind in "ui")


def array_type(name: object) -> np.dtype[Any]:
    """Return the numpy type of a name as written by `dtype.str`; ValueError for anything else."""
    if not isinstance(name, str) or len(name) > 12 or name[:1] not in ("<", ">", "|") or not name[2:].isdecimal():
        raise ValueError(f"{name!r} is not a numpy type of a record")
    dtype = np.dtype(name)
    if array_form(dtype) is None or dtype.str != name:  # numpy lets the size of a huge text overflow
        raise ValueError(f"{name!r} is not a numpy type of a record")
    return dtype


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a record, without torch.

    Args:
        type: torch's name of its element type: `int64`, `bfloat16`.
        carriers: the bits of its elements; complex numbers have an extra last axis of two.
    """

    type: str
    carriers: Carried

    @property
    def shape(self) -> tuple[int, ...]:
        """The tensor's own, without the axis of complex numbers."""
        return self.carriers.shape[:-1] if self.type.startswith("complex") else self.carriers.shape

    @property
    def is_complex(self) -> bool:
        return self.type.startswith("complex")

    @property
    def is_float(self) -> bool:
        """Whether its elements are real floating-point numbers."""
        return "float" in self.type

    def numpy(self) -> npt.NDArray[Any]:
        """Return the values as numpy has them: bfloat16 and 8-bit floats as float32, complex32 as complex64.

        Every other type is numpy's own, and shares the memory of the carriers.
        """
        if self.type == "bfloat16":
            return (self.carriers.astype(np.uint16).astype(np.uint32) << 16).view(np.float32)
        if self.type.startswith("float8"):
            return small_floats(self.type)[self.carriers]
        if self.is_complex:
            lanes = self.carriers.view({2: np.float16, 4: np.float32, 8: np.float64}[self.carriers.itemsize])
            lanes = lanes.astype(np.float32) if lanes.dtype == np.float16 else lanes
            values: npt.NDArray[Any] = lanes.view(np.result_type(lanes, np.complex64))[..., 0]
            return values
        return self.carriers.view(np.dtype(self.type))

    def torch(self) -> torch.Tensor:
        """Return the tensor; shares the memory of the carriers.

        Raises:
            MalformedError: this version of torch has no such type.
        """
        import torch

        dtype = getattr(torch, self.type, None)
        if dtype is None:
            raise MalformedError(f"torch {torch.__version__} has no type {self.type!r}")
        if not self.carriers.size:
            return torch.empty(self.shape, dtype=dtype)  # not from numpy, whose strides of nothing torch cannot view
        tensor = torch.from_numpy(self.carriers)
        if self.is_complex:
            real = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}[self.type]
            return torch.view_as_complex(tensor.view(real))
        return tensor if tensor.dtype == dtype else tensor.view(dtype)


_SMALL_FLOATS = {
    "float8_e4m3fn": (3, 7, (0x7F, 0xFF)),
    "float8_e4m3fnuz": (3, 8, (0x80,)),
    "float8_e5m2fnuz": (2, 16, (0x80,)),
}
"""Bits of the mantissa, bias of the exponent, and the bytes that are not a number."""


def small_floats(name: str) -> npt.NDArray[np.float32]:
    """Return the value of each of the 256 bytes as an 8-bit float of the type `name`."""
    codes = np.arange(256, dtype=np.int32)
    if name == "float8_e5m2":  # the upper byte of a float16
        return (codes << 8).astype(np.uint16).view(np.float16).astype(np.float32)
    if name == "float8_e8m0fnu":  # an exponent alone
        return np.where(codes == 0xFF, np.nan, np.exp2(codes - 127.0)).astype(np.float32)
    bits, bias, not_numbers = _SMALL_FLOATS[name]
    mantissa, exponent = codes & ((1 << bits) - 1), (codes & 0x7F) >> bits
    # The exponent 0 has no leading one, and the scale of the exponent 1.
    significand = mantissa / (1 << bits) + (exponent > 0)
    values = np.where(codes > 0x7F, -1.0, 1.0) * significand * np.exp2(np.maximum(exponent, 1) - float(bias))
    values[list(not_numbers)] = np.nan
    found: npt.NDArray[np.float32] = values.astype(np.float32)
    return found


def as_array(carriers: Carried, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Return the numpy array of type `dtype` with these carriers; shares their memory where the byte order allows."""
    if dtype.itemsize == 0 or 0 in shape:
        return np.ndarray(shape, dtype)  # no bytes; numpy.zeros would widen texts of no characters
    if dtype.byteorder == ">":
        carriers = carriers.byteswap()
    return carriers.view(dtype).reshape(shape)


Index = tuple[int | slice, ...]
"""Selects one block of an array."""

BLOCK_BYTES = 8 << 20
"""How much of one array is converted, hashed or compared at a time."""

_MAX_DIMENSIONS = 31  # numpy 1 has 32, and a complex number takes one

_TORCH_OF_CARRIER = {"u1": "uint8", "i1": "int8", "i2": "int16", "i4": "int32", "i8": "int64"}


class RefusedError(Exception):
    """A value has no representation; collects the path to it while it is raised."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.trail: list[str] = []

    def at(self, root: str) -> EncodingError:
        """Return the error for the user, for a value under `root`."""
        return EncodingError(f"{root}{''.join(reversed(self.trail))}: {self.problem}")


def is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a torch tensor, without importing torch: while nobody has, none is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def tensor_source(tensor: torch.Tensor) -> ByteSource:
    """Return a tensor as a source of carriers; RefusedError for what a file cannot hold."""
    import torch

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
    form = tensor_form(tensor_type(tensor))
    if form is None or tensor.ndim > _MAX_DIMENSIONS:
        raise RefusedError(f"a tensor of {tensor.dtype} with {tensor.ndim} dimensions is not representable; {advice}")
    return ByteSource(tensor, form)


def array_source(array: npt.NDArray[Any]) -> ByteSource:
    """Return a numpy array, not of objects, as a source of carriers; RefusedError for what a file cannot hold."""
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
    """Yield indexes that cut an array of this shape into consecutive runs of at most `block_bytes`, in C order."""
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
        """Yield indexes of the data's blocks, in C order."""
        lane_bytes = self.form.carrier.itemsize * (1 if self.form.lanes is None else max(1, self.form.lanes))
        return blocks(tuple(self.data.shape), lane_bytes)

    def block(self, index: Index) -> Carried:
        """Return one block as carriers on the CPU; shares the data's memory where it can."""
        if is_tensor(self.data):
            return _tensor_carriers(self.data[index], self.form)
        assert isinstance(self.data, np.ndarray)
        whole: tuple[Any, ...] = (*index, ...)  # the ellipsis makes numpy give an array, not a scalar, for no axis
        return _array_carriers(self.data[whole], self.form)


def _tensor_carriers(part: torch.Tensor, form: Form) -> Carried:
    import torch

    part = part.detach().cpu().resolve_conj().resolve_neg()
    if form.lanes is not None:
        part = torch.view_as_real(part)
    if not form.narrowable:
        part = part.view(getattr(torch, _TORCH_OF_CARRIER[form.carrier.str[1:]]))
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
    """Return booleans as 0 and 1: uninitialised memory may hold other bytes, which mean true."""
    return np.not_equal(carriers, 0).view(np.uint8) if form.storage == "BOOL" else carriers
