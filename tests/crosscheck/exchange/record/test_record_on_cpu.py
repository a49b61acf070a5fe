# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A record comes back as it was, is small and readable by anyone; what it cannot hold is named."""

from __future__ import annotations

import ast
import collections
import dataclasses
import datetime
import enum
import io
import math
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from verl.crosscheck.errors import EncodingError
from verl.crosscheck.exchange.record import container
from verl.crosscheck.exchange.record.container import read_about
from verl.crosscheck.exchange.record.record import Record, read_record, write_record
from verl.crosscheck.exchange.record.types import small_floats

TENSOR_TYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.uint16, torch.int16, torch.uint32, torch.int32, torch.uint64),
    *(torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu, torch.complex32),
    *(torch.complex64, torch.complex128),
]
ARRAY_TYPES = [
    *("|b1", "|i1", "|u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", "<f8", "<c8", "<c16"),
    *(">i2", ">u4", ">i8", ">f2", ">f4", ">f8", ">c16", "<U1", "<U5", ">U3", "|S1", "|S4"),
]
relaxed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def save(path: Path, record: Record) -> int:
    with path.open("wb") as file:
        return write_record(file, record)


def round_trip(folder: Path, record: Record) -> Record:
    path = folder / "record"
    assert save(path, record) == path.stat().st_size
    return read_record(path)


def bits(tensor: torch.Tensor) -> bytes:
    if not tensor.numel():
        return b""
    return tensor.resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def assert_same(one: Any, two: Any) -> None:
    """Same types all the way down, same bits, same order of keys."""
    assert type(one) is type(two)
    if isinstance(one, torch.Tensor):
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        assert bits(one) == bits(two)
    elif isinstance(one, np.ndarray) and one.dtype == object:
        assert one.shape == two.shape
        for left, right in zip(one.reshape(-1), two.reshape(-1), strict=True):
            assert_same(left, right)
    elif isinstance(one, np.ndarray | np.generic):
        assert (one.dtype, one.shape) == (two.dtype, two.shape)
        assert one.tobytes() == two.tobytes()
    elif isinstance(one, dict):
        for left, right in zip(one.items(), two.items(), strict=True):
            assert_same(left, right)
    elif isinstance(one, list | tuple):
        for left, right in zip(one, two, strict=True):
            assert_same(left, right)
    elif isinstance(one, float):
        assert struct.pack(">d", one) == struct.pack(">d", two)
    else:
        assert one == two


def random_tensor(dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
    """Every bit pattern may occur, NaN payloads and subnormal numbers too."""
    count = math.prod(shape)
    if not count:
        return torch.empty(shape, dtype=dtype)
    if dtype == torch.bool:
        return (torch.arange(count) % 3 == 1).reshape(shape)
    raw = np.random.default_rng(7).integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).reshape(shape)


def object_array(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), dtype=object)
    for row, value in enumerate(values):
        array[row] = value
    return array


# ---------------------------------------------------------------- tensors


@pytest.mark.parametrize("dtype", TENSOR_TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (2, 3, 5), (0,), (0, 4), (4, 0)], ids=str)
def test_tensor_of_any_type_and_shape(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = random_tensor(dtype, shape)
    back = round_trip(tmp_path, Record(tensors={"x": tensor}, meta={"cell": tensor}))
    assert_same(back.tensors["x"], tensor)
    assert_same(back.meta["cell"], tensor)
    assert back.tensors["x"].stride() == tensor.stride()


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(12).reshape(3, 4).t(),
        torch.arange(5).expand(4, 5),
        torch.arange(40)[3:30:4],
        torch.arange(24.0).reshape(2, 3, 4).permute(2, 0, 1),
        torch.tensor([[1 + 2j, 3 - 4j]]).conj(),
        torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)[:, 1:],
    ],
    ids=["transposed", "expanded", "strided", "permuted", "conjugate", "negative", "sliced"],
)
def test_tensor_that_is_a_view(tmp_path: Path, tensor: torch.Tensor) -> None:
    back = round_trip(tmp_path, Record(tensors={"x": tensor}, meta={"cell": tensor}))
    assert_same(back.tensors["x"], tensor)
    assert_same(back.meta["cell"], tensor)
    assert back.tensors["x"].is_contiguous()


@pytest.mark.parametrize(("low", "high", "stored"), [
    (0, 1, "U8"), (0, 255, "U8"), (-1, 127, "I8"), (-128, 0, "I8"), (0, 256, "U16"), (0, 65535, "U16"),
    (-129, 0, "I16"), (-1, 32767, "I16"), (0, 149_999, "U32"), (-1, 40_000, "I32"), (0, 2**32 - 1, "U32"),
    (-1, 2**31 - 1, "I32"), (0, 2**32, "I64"), (-(2**63), 2**63 - 1, "I64"),
])  # fmt: skip
def test_integers_take_the_narrowest_type(tmp_path: Path, low: int, high: int, stored: str) -> None:
    tensor = torch.tensor([[low, high], [high, low]])
    back = round_trip(tmp_path, Record(tensors={"x": tensor}))
    assert_same(back.tensors["x"], tensor)
    with safetensors.safe_open(tmp_path / "record", "np") as file:
        assert file.get_slice("tensors/x").get_dtype() == stored


@relaxed
@given(array=hnp.arrays(st.sampled_from([np.int64, np.int32, np.uint8, np.uint64]), hnp.array_shapes(min_side=0)))
def test_any_integers(tmp_path: Path, array: np.ndarray) -> None:
    back = round_trip(tmp_path, Record(tensors={"x": torch.from_numpy(array)}, arrays={"x": array}))
    assert_same(back.tensors["x"], torch.from_numpy(array.copy()))
    assert_same(back.arrays["x"], array)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_nan_payloads_infinities_and_the_sign_of_zero(tmp_path: Path, dtype: torch.dtype) -> None:
    special = torch.tensor([math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5], dtype=dtype)
    carrier = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    payload = (torch.tensor([math.inf], dtype=dtype).view(carrier) + 1).view(dtype)  # a signalling NaN
    tensor = torch.cat([special, payload])
    zeros = torch.tensor([-0.0] * 50 + [0.0] * 950, dtype=dtype)
    back = round_trip(tmp_path, Record(tensors={"x": tensor, "zeros": zeros, "minus": zeros[:50].clone()}))
    assert bits(back.tensors["x"]) == bits(tensor)
    assert bits(back.tensors["zeros"]) == bits(zeros)
    assert bits(back.tensors["minus"]) == bits(zeros[:50])


def test_true_may_be_any_byte_in_memory(tmp_path: Path) -> None:
    unwritten = torch.tensor([0, 2, 255], dtype=torch.uint8).view(torch.bool)
    back = round_trip(tmp_path, Record(tensors={"x": unwritten, "all": unwritten[1:2].clone()}))
    assert back.tensors["x"].view(torch.uint8).tolist() == [0, 1, 1]
    assert back.tensors["all"].view(torch.uint8).tolist() == [1]


# ---------------------------------------------------------------- small


def rollout(rows: int = 6) -> dict[str, torch.Tensor]:
    input_ids = torch.arange(rows * 20).reshape(rows, 20) * 1000
    scores = torch.zeros(rows, 16)
    scores[:, 3] = 0.5
    return {
        "prompts": input_ids[:, :4].clone(),
        "responses": input_ids[:, 4:].clone(),
        "input_ids": input_ids,
        "attention_mask": torch.ones(rows, 20, dtype=torch.int64),
        "rm_scores": scores,
    }


def test_what_repeats_is_stored_once(tmp_path: Path) -> None:
    tensors = rollout()
    back = round_trip(tmp_path, Record(tensors=tensors))
    stored = safetensors.torch.load_file(tmp_path / "record")
    assert set(stored) == {"tensors/input_ids", "tensors/rm_scores", "positions/tensors/rm_scores", "values.json"}
    assert stored["tensors/rm_scores"].tolist() == [0.5] * 6
    assert stored["positions/tensors/rm_scores"].tolist() == [3, 19, 35, 51, 67, 83]
    assert_same(dict(back.tensors), tensors)


def test_slices_of_three_dimensions_and_equal_tensors(tmp_path: Path) -> None:
    position_ids = torch.arange(2 * 3 * 40).reshape(2, 3, 40)
    tensors = {
        "tail": position_ids[..., 30:].clone(),
        "all": position_ids.clone(),
        "same": position_ids.clone(),
        "other_type": position_ids.to(torch.int32),
        "middle": position_ids[..., 5:15].clone(),
    }
    back = round_trip(tmp_path, Record(tensors=tensors))
    assert_same(dict(back.tensors), tensors)
    stored = set(safetensors.torch.load_file(tmp_path / "record"))
    assert stored == {"tensors/all", "tensors/other_type", "tensors/middle", "values.json"}


def test_slices_across_block_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = torch.arange(3 * 50).reshape(3, 50)
    tensors = {"wide": wide, "tail": wide[:, 9:].clone(), "near": wide[:, 9:].clone()}
    tensors["near"][2, 40] += 1
    monkeypatch.setattr("verl.crosscheck.exchange.record.types.blocks.__defaults__", (64,))
    back = round_trip(tmp_path, Record(tensors=tensors))
    assert_same(dict(back.tensors), tensors)
    assert set(safetensors.torch.load_file(tmp_path / "record")) == {"tensors/wide", "tensors/near", "values.json"}


def test_tensors_that_came_from_one_do_not_share_memory(tmp_path: Path) -> None:
    back = round_trip(tmp_path, Record(tensors=rollout()))
    before = back.tensors["input_ids"].clone()
    back.tensors["responses"].fill_(-1)
    back.tensors["prompts"].fill_(-1)
    assert torch.equal(back.tensors["input_ids"], before)


def test_file_that_expands_too_far_is_stored_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "EXPANSION_FLOOR_BYTES", 0)
    tensors = {"zeros": torch.zeros(100, 1000)}
    back = round_trip(tmp_path, Record(tensors=tensors))
    assert_same(dict(back.tensors), tensors)
    assert set(safetensors.torch.load_file(tmp_path / "record")) == {"tensors/zeros", "values.json"}


def test_memory_while_saving_stays_small(tmp_path: Path) -> None:
    tensors = {"ids": torch.arange(1 << 23).reshape(2048, -1), "log_probs": torch.rand(2048, 4096)}
    batch_bytes = sum(tensor.nbytes for tensor in tensors.values())
    tracemalloc.start()
    try:
        save(tmp_path / "record", Record(tensors=tensors))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < peak <= 0.25 * batch_bytes


# ---------------------------------------------------------------- arrays


@pytest.mark.parametrize("name", ARRAY_TYPES)
@pytest.mark.parametrize("shape", [(), (5,), (3, 2), (0,), (0, 3)], ids=str)
def test_array_of_any_type_and_shape(tmp_path: Path, name: str, shape: tuple[int, ...]) -> None:
    count = math.prod(shape)
    if name[1] in "US":
        texts = ["", "a", "Zü", "日本語テキ", "end"] if name[1] == "U" else [b"", b"a", b"\xff\x00b", b"abcd", b"z"]
        array = np.array([texts[i % 5] for i in range(count)], dtype=name).reshape(shape)
    elif name == "|b1":
        array = (np.arange(count) % 2 == 0).reshape(shape)
    else:
        raw = np.random.default_rng(3).integers(0, 256, count * np.dtype(name).itemsize, dtype=np.uint8)
        array = raw.view(name).reshape(shape)
    back = round_trip(tmp_path, Record(arrays={"x": array}, meta={"cell": array}))
    assert_same(back.arrays["x"], array)
    assert_same(back.meta["cell"], array)
    assert back.arrays["x"].flags.writeable


def test_array_that_is_a_view(tmp_path: Path) -> None:
    base = np.arange(24, dtype=np.float64).reshape(4, 6)
    arrays = {
        "fortran": np.asfortranarray(base),
        "strided": base[::-2, 1::2],
        "repeated": np.broadcast_to(base, (2, 4, 6)),
    }
    texts = np.array([["ab", "c"], ["d", "ef"]]).T
    back = round_trip(tmp_path, Record(arrays={**arrays, "texts": texts}))
    for name, array in {**arrays, "texts": texts}.items():
        assert_same(back.arrays[name], array)


def test_text_arrays_of_no_characters(tmp_path: Path) -> None:
    array = np.ndarray((3,), np.dtype("<U0"))
    assert_same(round_trip(tmp_path, Record(arrays={"x": array})).arrays["x"], array)


def test_object_arrays_as_a_rollout_has_them(tmp_path: Path) -> None:
    two_dimensional = np.empty((2, 2), dtype=object)
    two_dimensional[:] = [[1, "a"], [None, (2.5,)]]
    zero_dimensional = np.empty((), dtype=object)
    zero_dimensional[()] = [1, 2]
    arrays = {
        "uid": object_array(["6f1c", "6f1c"]),
        "raw_prompt": object_array([[{"role": "user", "content": "2+2? ü日🙂"}], [{"role": "user", "content": ""}]]),
        "reward_model": object_array([{"style": "rule", "ground_truth": "4"}, {"ground_truth": ["1", None]}]),
        "turn_scores": object_array([[0.5, np.float32(0.1)], []]),
        "same_length": object_array([[1, 2], [3, 4]]),
        "multi_modal_inputs": object_array(
            [{"pixel_values": torch.randn(4, 3).bfloat16(), "thw": torch.tensor([[1, 2]])}, {}]
        ),
        "arrays_in_cells": object_array([np.array([1, 2]), np.array(["x", "yz"])]),
        "zero_dimensional_cells": object_array([np.array(5), torch.tensor(5)]),
        "nothing": object_array([None, None]),
        "__num_turns__": np.array([2, 2], dtype=np.int32),
        "two": two_dimensional,
        "zero": zero_dimensional,
        "empty": np.empty((0, 3), dtype=object),
        "nested": object_array([two_dimensional, zero_dimensional]),
    }
    assert_same(dict(round_trip(tmp_path, Record(arrays=arrays)).arrays), arrays)


def test_an_empty_batch(tmp_path: Path) -> None:
    record = Record(
        tensors={"ids": torch.empty(0, 8, dtype=torch.int64), "scores": torch.empty(0, 4)},
        arrays={"uid": np.empty(0, dtype=object), "turns": np.empty(0, dtype=np.int32)},
        meta={},
    )
    back = round_trip(tmp_path, record)
    assert_same(dict(back.tensors), record.tensors)
    assert_same(dict(back.arrays), record.arrays)
    nothing = round_trip(tmp_path, Record())
    assert (nothing.tensors, nothing.arrays, nothing.meta, nothing.about) == ({}, {}, {}, {})


def test_an_object_in_two_rows_stays_one_object(tmp_path: Path) -> None:
    shared, picture = {"weights": [0.5]}, torch.arange(4)
    equal = {"weights": [0.5]}
    arrays = {
        "extra_info": object_array([shared, shared, equal]),
        "inputs": object_array([{"pixels": picture}, {"pixels": picture}, {"pixels": picture.clone()}]),
    }
    back = round_trip(tmp_path, Record(arrays=arrays)).arrays
    assert_same(dict(back), arrays)
    assert back["extra_info"][0] is back["extra_info"][1]
    assert back["extra_info"][0] is not back["extra_info"][2]
    assert back["inputs"][0]["pixels"] is back["inputs"][1]["pixels"]
    assert back["inputs"][0]["pixels"] is not back["inputs"][2]["pixels"]
    assert safetensors.torch.load_file(tmp_path / "record")["cells/U8"].tolist() == [0, 1, 2, 3] * 2


# ---------------------------------------------------------------- values

SCALARS = [
    np.dtype(name).type(1) for name in ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8")
]
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(min_value=-(10**40), max_value=10**40),
    st.floats(allow_nan=True),
    st.text(st.characters(codec=None)),
    st.binary(max_size=40),
    st.sampled_from([*SCALARS, np.str_("é"), np.bytes_(b"a\x00"), np.float32("nan"), np.complex128(1 - 2j)]),
    hnp.arrays(
        hnp.scalar_dtypes().filter(lambda d: d.kind in "biufc" and d.itemsize <= 16 and d.str[1:] != "f16"), (2, 3)
    ),
    hnp.arrays(np.float32, hnp.array_shapes(max_dims=2)).map(torch.from_numpy),
)
keys = st.one_of(st.text(max_size=5), st.sampled_from(["$", "of", "shape"]), st.integers(), st.booleans(), st.none())
values = st.recursive(
    plain,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=5), inner, max_size=4),
        st.dictionaries(
            st.one_of(keys, st.tuples(st.integers(), st.text(max_size=2)), st.binary(max_size=3)), inner, max_size=4
        ),
        st.lists(inner, max_size=3).map(object_array),
    ),
    max_leaves=12,
)


@relaxed
@given(cells=st.lists(values, max_size=4), meta=st.dictionaries(st.text(max_size=4), values, max_size=3))
def test_any_value_in_cells_and_meta(tmp_path: Path, cells: list[Any], meta: dict[str, Any]) -> None:
    back = round_trip(tmp_path, Record(arrays={"x": object_array(cells)}, meta=meta))
    assert_same(back.arrays["x"], object_array(cells))
    assert_same(back.meta, meta)


@pytest.mark.parametrize("value", [
    10**5000, -(2**63) - 1, 2**63, "\ud83d\ude00", "\ud800", "\x00\u2028", {"\ud800": 1}, {1: "a", "1": "b"}, {True: 0},
    {"$": "tuple", "of": []}, {(1, ("a",)): 2}, {np.float32(0.1): 1}, {b"k": 1}, (), [()], b"", b"\x80\x04pickle",
    {None: None, 1.5: 2}, {float("nan"): 1}, -0.0, 5e-324, 1e308, np.str_("trailing\x00"), np.bytes_(b"\x00"),
    struct.unpack(">d", bytes.fromhex("7ff0000000000001"))[0], [[[[[[]]]]]],
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_value_that_json_alone_would_change(tmp_path: Path, value: Any) -> None:
    back = round_trip(tmp_path, Record(arrays={"x": object_array([value])}, meta={"x": value}))
    assert_same(back.meta["x"], value)
    assert_same(back.arrays["x"][0], value)


@pytest.mark.parametrize("scalar", [*SCALARS, np.complex128(2j), np.float16("nan")], ids=lambda value: value.dtype.name)
def test_numpy_scalars_keep_their_type(tmp_path: Path, scalar: np.generic) -> None:
    back = round_trip(tmp_path, Record(meta={"x": scalar, "in": [scalar]}))
    assert_same(back.meta, {"x": scalar, "in": [scalar]})


def test_order_of_all_keys(tmp_path: Path) -> None:
    names = ["z", "a", "m", "tensors/a", "__metadata__", "$", "", "ünï🙂", "a"[:1] + "a"]
    record = Record(
        tensors={name: torch.arange(number * 3 + 6).reshape(3, -1) for number, name in enumerate(names)},
        arrays={name: np.array([number]) if number % 2 else object_array([name]) for number, name in enumerate(names)},
        meta={name: {inner: 0 for inner in names[::-1]} for name in names},
        about={name: number for number, name in enumerate(names)},
    )
    back = round_trip(tmp_path, record)
    assert list(back.tensors) == list(back.arrays) == list(back.meta) == list(back.about) == names
    assert [list(inner) for inner in back.meta.values()] == [names[::-1]] * len(names)
    assert_same(dict(back.tensors), record.tensors)
    assert_same(dict(back.arrays), record.arrays)


# ---------------------------------------------------------------- refusals


class Colour(enum.IntEnum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int


def recursive() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(("value", "kind", "advice"), [
    (datetime.datetime(2026, 1, 2), "datetime", "isoformat"),
    (datetime.date(2026, 1, 2), "date", "isoformat"),
    ({1, 2}, "set", "sorted"),
    (Path("x"), "Path", "str(value)"),
    (Colour.RED, "Colour", "value.value"),
    (Point(1), "Point", "convert it"),
    (collections.OrderedDict(a=1), "OrderedDict", "dict(value)"),
    (object(), "object", "convert it"),
    (len, "builtin_function", "convert it"),
    (np.datetime64("2026-01-02"), "datetime64", "convert it"),
    (np.longdouble(1), "longdouble", "convert it"),
    (np.array(["2026-01-02"], dtype="M8[D]"), "datetime64", "view('i8')"),
    (np.zeros(2, dtype=[("a", "i4")]), "dtype", "astype"),
    (np.ma.array([1]), "MaskedArray", "asarray"),
    (torch.nn.Parameter(torch.ones(1)), "Parameter", "detach"),
    (torch.ones(1, requires_grad=True), "grad", "detach"),
    (torch.ones(2).to_sparse(), "layout", "to_dense"),
    (torch.ones(2, device="meta"), "meta device", "plain dense"),
    (torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8), "quantised", "int_repr"),
    (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)]), "nested", "padded"),
    (torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged), "nested", "padded"),
    ({frozenset(): 1}, "dict key of type frozenset", "use a str"),
    (recursive(), "contains itself", "flatten"),
], ids=lambda value: type(value).__name__)  # fmt: skip
def test_refused_value_is_named_with_its_path_and_a_remedy(tmp_path: Path, value: Any, kind: str, advice: str) -> None:
    cell = object_array([1, {"deep": [0, ({"when": value},)]}])
    for record, root in [
        (Record(arrays={"extra_info": cell}), "arrays['extra_info'][1]['deep'][1][0]['when']"),
        (Record(meta={"timing": {"a": [value]}}), "meta['timing']['a'][0]"),
    ]:
        with pytest.raises(EncodingError) as caught:
            save(tmp_path / "record", record)
        message = str(caught.value)
        assert message.startswith(root)
        assert kind in message
        assert advice in message
        assert (tmp_path / "record").stat().st_size == 0, "nothing may be written before the refusal"


def test_refused_tensor_array_and_name(tmp_path: Path) -> None:
    two = np.empty((2, 2), dtype=object)
    two[1, 0] = object()
    cases: list[tuple[Record, str]] = [
        (Record(tensors={"values": torch.ones(2).to_sparse()}), "tensors['values']: a tensor of layout"),
        (Record(tensors={"values": np.ones(2)}), "tensors['values']: a torch tensor expected, ndarray found"),  # type: ignore[dict-item]
        (Record(arrays={"uid": ["a"]}), "arrays['uid']: a numpy array expected, list found"),  # type: ignore[dict-item]
        (
            Record(arrays={"when": np.array(["2026"], dtype="M8[Y]")}),
            "arrays['when']: a numpy array of dtype datetime64[Y]",
        ),
        (Record(arrays={"x": two}), "arrays['x'][1][0]: object is not representable"),
        (Record(arrays={"x": np.ma.array([1])}), "arrays['x']: numpy MaskedArray is not representable"),
        (Record(meta={1: 1}), "meta[1]: a str"),  # type: ignore[dict-item]
        (Record(tensors={"\ud800": torch.ones(1)}), "tensors['\\ud800']: a str"),
    ]
    for record, expected in cases:
        with pytest.raises(EncodingError) as caught:
            save(tmp_path / "record", record)
        assert str(caught.value).startswith(expected)


# ---------------------------------------------------------------- the file


def test_about_is_read_without_the_body(tmp_path: Path) -> None:
    about = {"index": 3, "kind": "train", "rows": [1, 2.5, None, True], "nested": {"ü": "日"}}
    path = tmp_path / "record"
    save(path, Record(tensors={"x": torch.rand(64, 64)}, about=about))
    content = bytearray(path.read_bytes())
    content[-1000:] = b"\xff" * 1000
    path.write_bytes(content)
    assert read_about(path) == about
    assert list(read_about(path)) == list(about)


@pytest.mark.parametrize("about", [
    {"x": (1, 2)}, {"x": math.nan}, {1: 2}, {"x": np.float32(1)}, {"x": b""}, {"x": "y" * (1 << 20)},
], ids=["tuple", "nan", "int key", "numpy", "bytes", "too large"])  # fmt: skip
def test_about_is_plain_and_small(tmp_path: Path, about: dict[Any, Any]) -> None:
    with pytest.raises(EncodingError, match="^about: "):
        save(tmp_path / "record", Record(about=about))


def test_the_stock_library_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "record"
    log_probs = torch.randn(6, 16)
    save(path, Record(
        tensors={**rollout(), "log_probs": log_probs, "half": log_probs.bfloat16(), "flags": log_probs > 0},
        arrays={"turns": np.array([2, 1, 3, 2, 2, 2]), "uid": object_array(["a"] * 6)},
        about={"index": 3},
    ))  # fmt: skip
    stored = safetensors.torch.load_file(path)
    assert torch.equal(stored["tensors/log_probs"], log_probs)
    assert torch.equal(stored["tensors/half"], log_probs.bfloat16())
    assert torch.equal(stored["tensors/flags"], log_probs > 0)
    assert torch.equal(stored["tensors/input_ids"].long(), rollout()["input_ids"])
    assert stored["arrays/turns"].tolist() == [2, 1, 3, 2, 2, 2]
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    assert set(metadata) == {"schema", "size", "xxh3_128", "about"}
    assert metadata["schema"] == "verl-crosscheck.record/1"
    assert int(metadata["size"]) == path.stat().st_size


def test_header_is_small_and_everything_is_aligned(tmp_path: Path) -> None:
    path = tmp_path / "record"
    inputs = object_array([{"pixels": torch.rand(3), "grid": torch.tensor([number, 70_000])} for number in range(500)])
    save(
        path,
        Record(tensors={"odd": torch.ones(3).bool() ^ (torch.arange(3) > 0), **rollout()}, arrays={"inputs": inputs}),
    )
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    assert (8 + length) % 8 == 0
    assert length < 4096, "cells must not appear one by one in the header"
    for entry in (
        entry for name, entry in ast.literal_eval(content[8 : 8 + length].decode()).items() if name[:1] != "_"
    ):
        itemsize = {"BOOL": 1, "U8": 1, "U32": 4, "F32": 4}[entry["dtype"]]
        assert entry["data_offsets"][0] % itemsize == 0


def test_a_file_that_takes_little_at_a_time_and_a_start_inside_a_file(tmp_path: Path) -> None:
    class Slow(io.BytesIO):
        def write(self, data: Any) -> int:
            return super().write(memoryview(data)[:100])

    record = Record(tensors=rollout(), about={"a": 1})
    slow, late = Slow(), io.BytesIO(b"before")
    late.seek(6)
    size = write_record(slow, record)
    assert write_record(late, record) == size == len(slow.getvalue()) == slow.tell()
    assert late.getvalue() == b"before" + slow.getvalue()
    (tmp_path / "record").write_bytes(slow.getvalue())
    assert_same(dict(read_record(tmp_path / "record").tensors), rollout())


def test_the_same_record_gives_the_same_bytes() -> None:
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        write_record(file, Record(tensors=rollout(), arrays={"x": object_array([{1: 2}])}, meta={"m": b"x"}))
    assert files[0].getvalue() == files[1].getvalue()


def test_the_format_imports_nothing_of_rl_and_no_pickle() -> None:
    folder = Path(container.__file__).parent
    names = "record columns container values types"
    imported = set()
    for name in names.split():
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(node.module or "")
    ours = {name for name in imported if name.startswith("verl")}
    assert ours <= {"verl.crosscheck.errors"} | {f"verl.crosscheck.exchange.record.{name}" for name in names.split()}
    assert {name.split(".")[0] for name in imported - ours} <= {
        *("__future__", "collections", "dataclasses", "functools", "itertools", "json", "math", "os", "pathlib"),
        *("stat", "struct", "sys", "typing", "numpy", "torch", "xxhash"),
    }


WITHOUT_TORCH = """
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

from _verl_overlay import command

command._put_light_package_in_place()
sys.modules["torch"] = None  # whoever imports it fails
from verl.crosscheck.exchange.record.record import read_stored

found = read_stored(Path(sys.argv[1]))
print({name: tensor.numpy().tolist() for name, tensor in found.tensors.items()})
print({name: (tensor.type, tensor.shape) for name, tensor in found.tensors.items()})
print(found.meta["nested"][0].numpy().tolist(), found.arrays["a"].tolist())
"""


def test_a_record_is_read_without_torch(tmp_path: Path) -> None:
    tensors = {
        "half": torch.tensor([1.5, -0.25]),
        "brain": torch.tensor([1.5, -0.25]).bfloat16(),
        "complex": torch.tensor([[1 + 2j]]),
        "none": torch.empty(0, 3, dtype=torch.complex64),
        "flags": torch.tensor([True, False]),
    }
    record = Record(tensors, {"a": np.arange(2)}, {"nested": [torch.tensor([7, 8])]})
    with (tmp_path / "record").open("wb") as file:
        write_record(file, record)
    command = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "record")]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert ast.literal_eval(said[0]) == {
        name: tensor.float().tolist() if name == "brain" else tensor.tolist() for name, tensor in tensors.items()
    }
    assert ast.literal_eval(said[1])["none"] == ("complex64", (0, 3))
    assert ast.literal_eval(said[1])["brain"] == ("bfloat16", (2,))
    assert said[2] == "[7, 8] [0, 1]"


@pytest.mark.parametrize("kind", ["e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu"])
def test_small_floats_are_what_torch_has(kind: str) -> None:
    name = f"float8_{kind}"
    expected = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name)).float().numpy()
    np.testing.assert_array_equal(small_floats(name), expected)
