# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Attempts that must not stop a run: what fails is reported in the log, once for each reason, and is not recorded."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from verl.crosscheck.console import MARK, say
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.redaction import text_without_secrets

T = TypeVar("T")


class Attempts:
    """The attempts of one run."""

    def __init__(self) -> None:
        self._warned: set[str] = set()

    def result(self, what: str, make: Callable[[], T]) -> T | None:
        """Return what `make` returns; None, with a warning that `what` is not recorded, if it fails."""
        return self.result_or_reason(what, make)[0]

    def result_or_reason(self, what: str, make: Callable[[], T]) -> tuple[T | None, str]:
        """Return as `result` does, and why there is nothing; an empty reason if there is something."""
        try:
            return make(), ""
        except Exception as e:
            reason = text_without_secrets(f"{type(e).__name__}: {e}", os.environ)
        if reason not in self._warned:
            self._warned.add(reason)
            say(MARK, f"Warning: {what} is not recorded ({reason}). The run goes on; the verdict lacks it", "yellow")
        return None, reason

    def keep(self, path: Path, write: Callable[[Path], object]) -> None:
        """Call `write` with a path in the run's folder; its folder is made, for its owner alone, if it is missing."""

        def make_folder_and_write() -> None:
            with suppress(FileExistsError):
                filesystem.active().mkdir(path.parent)
            write(path)

        self.result(str(path), make_folder_and_write)
