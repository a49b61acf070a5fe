# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A run records what it sees of each step. What cannot be recorded is marked missing, with the reason; it never stops
the run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from verl.crosscheck.console import MARK, say
from verl.crosscheck.evidence import files
from verl.crosscheck.evidence.step import StepEvidence, TensorChange
from verl.crosscheck.exchange import filesystem
from verl.crosscheck.exchange.session.claim import RunSlot
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.redaction import text_without_secrets
from verl.crosscheck.run.observe.gather import EvidenceHeader, Observed, evidence_of_batch
from verl.crosscheck.run.step_times import StepTimes
from verl.crosscheck.settings import CkptFormat, Detail

T = TypeVar("T")


class Recorder:
    """Keeps the evidence of one run.

    Args:
        place: the run's place in its session, whose folder the files go to.
        detail: how much; `OFF` records nothing.
        max_tokens: response tokens to keep of a step; None keeps all.
    """

    def __init__(self, place: RunSlot, detail: Detail, max_tokens: int | None, times: StepTimes) -> None:
        self.detail = detail
        self._place, self._max_tokens, self._times = place, max_tokens, times
        self._sampling: Mapping[str, Any] = {}
        self._missing: dict[str, Reason] = {}
        self._warned: set[str] = set()

    @property
    def on(self) -> bool:
        return self.detail is not Detail.OFF

    def tell_sampling(self, sampling: Mapping[str, Any], missing: Mapping[str, Reason]) -> None:
        """How this run samples and trains; goes into the evidence of each step."""
        self._sampling = sampling
        self._missing.update(missing)

    def observe(
        self, observed: Callable[[], Observed], update_index: int, form: CkptFormat | None = None
    ) -> StepEvidence | None:
        """The evidence of a step that has just been trained; None if nothing is recorded.

        Args:
            observed: gives what the trainer holds.
            form: of the pair's checkpoints, if that is known.
        """
        if not self.on:
            return None
        with self._times.spent("evidence"):
            seen = self.kept("the evidence of this step", observed)
            sampling = {**self._sampling, **({"ckpt_format": form.value} if form is not None else {})}
            about = EvidenceHeader(
                self._place.mode, self._place.run_id, update_index, self.detail, self._max_tokens, sampling
            )
            if seen is None:
                return None
            evidence, reason = self._attempt(lambda: evidence_of_batch(seen, about))
            if evidence is None:
                self._warn("the rows of this step", reason)
                evidence = _empty(seen, about, reason)
            return replace(evidence, missing={**evidence.missing, **self._missing})

    def save(
        self,
        evidence: StepEvidence,
        changes: Mapping[str, TensorChange],
        weights: Mapping[str, str],
        missing: Mapping[str, Reason],
    ) -> StepEvidence:
        """Keep a step's evidence, with what the workers told of it."""
        evidence = replace(evidence, changes=changes, weights=weights, missing={**evidence.missing, **missing})
        with self._times.spent("evidence"):
            path = self._place.names.evidence(evidence.global_step)
            self.kept(str(path), lambda: self._write(path, evidence))
        return evidence

    def _write(self, path: Path, evidence: StepEvidence) -> int:
        ensure_folder(path.parent)
        return files.save(path, evidence)

    def kept(self, what: str, make: Callable[[], T]) -> T | None:
        """What `make` gives; None, with a word in the log, if it fails."""
        made, reason = self._attempt(make)
        if reason:
            self._warn(what, reason)
        return made

    def _attempt(self, make: Callable[[], T]) -> tuple[T | None, str]:
        try:
            return make(), ""
        except Exception as e:
            return None, text_without_secrets(f"{type(e).__name__}: {e}", os.environ)

    def _warn(self, what: str, reason: str) -> None:
        """Say once what is not recorded."""
        if reason not in self._warned:
            self._warned.add(reason)
            say(MARK, f"Warning: {what} is not recorded ({reason}). The run goes on; the verdict lacks it", "yellow")


def ensure_folder(folder: Path) -> None:
    """Make a folder for its owner alone, unless it is there."""
    with suppress(FileExistsError):
        filesystem.active().mkdir(folder)


def _empty(seen: Observed, about: EvidenceHeader, reason: str) -> StepEvidence:
    """Evidence without rows."""
    return StepEvidence(
        about.mode,
        about.run_id,
        seen.global_step,
        about.update_index,
        about.detail,
        batch_rows=len(seen.batch),
        row_ids=np.zeros(0, np.uint64),
        lengths=np.zeros(0, np.int32),
        sampling=about.sampling,
        missing={"rows": because(ReasonCode.NOT_RECORDED_ERROR, error=reason)},
    )
