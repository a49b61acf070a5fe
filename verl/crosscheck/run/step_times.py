# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Measures where the time of a step's exchange goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from verl.crosscheck.identity import Call, CallKind
from verl.protocol import DataProto

PREFIX = "share_data/"


class StepTimes:
    """Seconds by name, until they are collected."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    @contextmanager
    def spent(self, name: str) -> Iterator[None]:
        start_s = time.perf_counter()
        yield
        self.add(name, time.perf_counter() - start_s)

    def collect(self, suffix: str = "") -> dict[str, float]:
        """Return the seconds so far, or those whose name has the suffix, under the names of the metrics; then forget
        them."""
        names = [name for name in self._seconds if name.endswith(suffix)]
        return {f"{PREFIX}{name}": self._seconds.pop(name) for name in names}

    def account(self, call: Call, output: DataProto) -> None:
        """Add the times of `call` to `output` if it is trained on: the trainer logs them then. Keep those of other
        calls for the next update."""
        spent = self.collect("_rollout")
        spent[f"{PREFIX}identify"] = sum(self.collect("identify").values())
        if call.kind is CallKind.TRAINING:
            output.meta_info["timing"] = {**(output.meta_info.get("timing") or {}), **spent}
        else:
            for name, seconds in spent.items():
                self.add(f"{name.removeprefix(PREFIX)}_{call.kind.value}", seconds)
