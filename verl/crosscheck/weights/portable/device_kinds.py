# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""From which kinds of device a file of `torch.save` was saved, found without unpickling it.

The pickle inside is read as a list of instructions, with a stack of what is known of each value: texts, tuples of them,
names of globals. Nothing is imported, built or called.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl.crosscheck.errors import DamagedError
from verl.crosscheck.exchange.record.container import MalformedError, open_file

MAX_PICKLE_BYTES = 64 << 20
_KIND = re.compile(r"[a-z][a-z0-9_]{1,19}")
_MESH_KEYS = ("device_type", "_device_type")
_STORAGE_FIELDS = 5
_LOCATION = 3


def device_kinds(path: Path) -> set[str]:
    """Return the kinds of device (`cpu`, `cuda`, `npu` ...) of the storages, device meshes and devices in a file.

    Raises:
        DamagedError: not a file of `torch.save`, or too large a pickle in it.
        FileNotFoundError: there is none.
    """
    try:
        return kinds_in_pickle(_pickle_of(path))
    except (MalformedError, zipfile.BadZipFile, ValueError, IndexError, NotImplementedError) as error:
        raise DamagedError(f"{path}: not a checkpoint of torch.save whose devices can be read: {error}") from None


def kinds_in_pickle(data: bytes) -> set[str]:
    """Return the same for the pickle itself. Raise ValueError or IndexError if it is not one."""
    walk = _Walk()
    for opcode, argument, _ in pickletools.genops(data):
        walk.step(opcode, argument)
    return {kind for kind in (place.split(":")[0] for place in walk.places) if _KIND.fullmatch(kind)}


def _pickle_of(path: Path) -> bytes:
    with open_file(path) as file, zipfile.ZipFile(file) as archive:
        names = [name for name in archive.namelist() if name == "data.pkl" or name.endswith("/data.pkl")]
        if len(names) != 1:
            raise MalformedError(f"one data.pkl in it expected, {len(names)} found")
        with archive.open(names[0]) as member:
            data = member.read(MAX_PICKLE_BYTES + 1)
    if len(data) > MAX_PICKLE_BYTES:
        raise MalformedError(f"a pickle of at most {MAX_PICKLE_BYTES} bytes expected")
    return data


@dataclass(frozen=True)
class _Global:
    name: str


_MARK = object()
_ALL_SINCE_MARK = [pickletools.markobject, pickletools.stackslice]
_TEXTS = ("STRING", "UNICODE")
_PUT = ("PUT", "BINPUT", "LONG_BINPUT")
_GET = ("GET", "BINGET", "LONG_BINGET")


class _Walk:
    """The stack and memo of an unpickler that knows texts, tuples and globals; anything else is None."""

    def __init__(self) -> None:
        self.places: set[str] = set()
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def step(self, opcode: pickletools.OpcodeInfo, argument: Any) -> None:
        if opcode.name in _PUT:
            self._memo[int(argument)] = self._stack[-1]
        elif opcode.name == "MEMOIZE":
            self._memo[len(self._memo)] = self._stack[-1]
        elif opcode.name in _GET:
            self._stack.append(self._memo.get(int(argument)))
        elif opcode.name == "MARK":
            self._stack.append(_MARK)
        elif opcode.name == "DUP":
            self._stack.append(self._stack[-1])
        else:
            taken = self._take(opcode.stack_before if opcode.name != "OBJ" else _ALL_SINCE_MARK)
            self._look(opcode.name, taken)
            if opcode.stack_after:
                self._stack.append(self._made(opcode, argument, taken))

    def _take(self, wanted: list[pickletools.StackObject]) -> list[Any]:
        """Return the values that an instruction takes, in their order, without the mark."""
        taken: list[Any] = []
        for each in reversed(wanted):
            if each is pickletools.stackslice:
                while self._stack[-1] is not _MARK:
                    taken.append(self._stack.pop())
            elif each is pickletools.markobject:
                while self._stack.pop() is not _MARK:
                    pass
            else:
                taken.append(self._stack.pop())
        return taken[::-1]

    def _made(self, opcode: pickletools.OpcodeInfo, argument: Any, taken: list[Any]) -> Any:
        if opcode.name.endswith(_TEXTS) or opcode.name.startswith(("BINUNICODE", "SHORT_BINUNICODE")):
            return argument if isinstance(argument, str) else None
        if "TUPLE" in opcode.name:
            return tuple(taken)
        if opcode.name == "GLOBAL":
            return _Global(str(argument))
        if opcode.name == "STACK_GLOBAL":
            return _Global(" ".join(map(str, taken)))
        # EMPTY_DICT and the like, numbers, and whatever a call would have returned; a dictionary stays where it is
        return None

    def _look(self, name: str, taken: list[Any]) -> None:
        if name == "BINPERSID" and isinstance(taken[0], tuple) and len(taken[0]) == _STORAGE_FIELDS:
            self._note(taken[0][_LOCATION])
        if name in ("SETITEM", "SETITEMS", "DICT"):
            items = taken if name == "DICT" else taken[1:]
            for key, value in zip(items[::2], items[1::2], strict=False):
                if isinstance(key, str) and key in _MESH_KEYS:
                    self._note(value)
        if name == "REDUCE" and taken[0] == _Global("torch device") and isinstance(taken[1], tuple) and taken[1]:
            self._note(taken[1][0])

    def _note(self, place: Any) -> None:
        if isinstance(place, str):
            self.places.add(place)
