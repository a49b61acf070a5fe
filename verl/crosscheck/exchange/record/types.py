# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which element types a record can hold, and how each is carried as integers of the same bits.

A record never computes with floats: a float32 is carried as int32, a bfloat16 as int16, a complex number as two lanes,
a numpy text of five characters as five code points. So NaN payloads and the sign of zero survive by construction.
Tables and conversions only; who is carried is in `sources.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Carried = npt.NDArray[Any]
"""A numpy array of a carrier type: integers only."""

CARRIER_OF_STORAGE = {
    "BOOL": "u1",
    "U8": "u1",
    "I8": "i1",
    "U16": "u2",
    "I16": "i2",
    "U32": "u4",
    "I32": "i4",
    "U64": "u8",
    "I64": "i8",
    "F8_E4M3": "u1",
    "F8_E5M2": "u1",
    "F16": "i2",
    "BF16": "i2",
    "F32": "i4",
    "F64": "i8",
}
"""The safetensors types a record uses: every reader since safetensors 0.4 knows them, and none is below a byte."""

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
        """Shape of the carriers of an array of this shape."""
        return shape if self.lanes is None else (*shape, self.lanes)

    def size_bytes(self, shape: tuple[int, ...]) -> int:
        """Memory that an array of this shape takes once restored."""
        return math.prod(self.carried_shape(shape)) * self.carrier.itemsize


def storage_itemsize(storage: str) -> int:
    """Bytes of one element of a safetensors type."""
    return int(CARRIER_OF_STORAGE[storage][1:])


def tensor_type(dtype: torch.dtype) -> str:
    """Name of a torch type in a record: `int64`, `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def tensor_form(name: str) -> Form | None:
    """Form of a torch type by its name; None where a record cannot hold it."""
    storage = _TENSOR_STORAGES.get(name)
    if storage is None or not hasattr(torch, name):
        return None
    lanes = 2 if name.startswith("complex") else None
    return Form(storage, lanes, narrowable="int" in name)


def array_form(dtype: np.dtype[Any]) -> Form | None:
    """Form of a numpy type (object not included); None where a record cannot hold it."""
    if dtype.kind in "US" and dtype.subdtype is None:
        storage = "U32" if dtype.kind == "U" else "U8"
        return Form(storage, dtype.itemsize // (4 if dtype.kind == "U" else 1), narrowable=True)
    found = _ARRAY_STORAGES.get(f"{dtype.kind}{dtype.itemsize}")
    if found is None or dtype.subdtype is not None:
        return None
    return Form(found, 2 if dtype.kind == "c" else None, narrowable=dtype.kind in "ui")


def array_type(name: object) -> np.dtype[Any]:
    """The numpy type of a name as written by `dtype.str`; ValueError for anything else."""
    if not isinstance(name, str) or len(name) > 12 or name[:1] not in ("<", ">", "|") or not name[2:].isdecimal():
        raise ValueError(f"{name!r} is not a numpy type of a record")
    dtype = np.dtype(name)
    if array_form(dtype) is None or dtype.str != name:  # numpy lets the size of a huge text overflow
        raise ValueError(f"{name!r} is not a numpy type of a record")
    return dtype


def as_tensor(carriers: Carried, name: str) -> torch.Tensor:
    """The tensor of type `name` that has these carriers; shares their memory."""
    dtype = getattr(torch, name)
    if not carriers.size:
        shape = carriers.shape[:-1] if name.startswith("complex") else carriers.shape
        return torch.empty(shape, dtype=dtype)  # not from numpy, whose strides of nothing torch cannot view
    tensor = torch.from_numpy(carriers)
    if name.startswith("complex"):
        real = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}[name]
        return torch.view_as_complex(tensor.view(real))
    return tensor if tensor.dtype == dtype else tensor.view(dtype)


def as_array(carriers: Carried, dtype: np.dtype[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """The numpy array of type `dtype` that has these carriers; shares their memory where the byte order allows."""
    if dtype.itemsize == 0 or 0 in shape:
        return np.ndarray(shape, dtype)  # no bytes; numpy.zeros would widen texts of no characters
    if dtype.byteorder == ">":
        carriers = carriers.byteswap()
    return carriers.view(dtype).reshape(shape)
