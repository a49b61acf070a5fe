# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Which row of one run is which row of the other: by its tokens, since batches are reordered to balance ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import xxhash

RowIds = npt.NDArray[np.uint64]


def row_ids(
    prompts: Sequence[npt.NDArray[np.int32]],
    responses: Sequence[npt.NDArray[np.int32]],
    tie_breakers: Sequence[npt.NDArray[np.float64]] = (),
) -> RowIds:
    """[B] identity of each row.

    Equal rows (a prompt answered twice in the same way) are told apart by a count, in the order of `tie_breakers`: so
    two runs give the same identity to rows that have the same reward and advantage.

    Args:
        prompts, responses: B each, token ids without padding.
        tie_breakers: [B] each, most important first.
    """
    base = np.fromiter(
        (_of_tokens(prompt, response) for prompt, response in zip(prompts, responses, strict=True)),
        np.uint64,
        count=len(prompts),
    )
    order = np.lexsort((*reversed(tie_breakers), base))
    ids = base.copy()
    repeats = 0
    for before, row in pairwise(order):
        repeats = repeats + 1 if base[before] == base[row] else 0
        if repeats:
            ids[row] = xxhash.xxh3_64_intdigest(f"{base[row]:016x}/{repeats}".encode())
    return ids


def unpadded(
    prompts_BP: npt.NDArray[Any], responses_BT: npt.NDArray[Any], attention_BS: npt.NDArray[Any]
) -> tuple[list[npt.NDArray[np.int32]], list[npt.NDArray[np.int32]]]:
    """B prompts and B responses as `row_ids` takes them, from a padded batch with S = P + T positions."""
    attended = attention_BS.astype(np.bool_, copy=False)
    width = responses_BT.shape[1]

    def rows(tokens: npt.NDArray[Any], keep: npt.NDArray[np.bool_]) -> list[npt.NDArray[np.int32]]:
        return [row[kept] for row, kept in zip(tokens.astype(np.int32, copy=False), keep, strict=True)]

    return rows(prompts_BP, attended[:, :-width]), rows(responses_BT, attended[:, -width:])


def identities(tokens: Sequence[npt.NDArray[np.int32]]) -> RowIds:
    """[B] identity of each sequence of token ids: equal sequences have equal ones."""
    found = (xxhash.xxh3_64_intdigest(np.ascontiguousarray(row, "<i4").tobytes()) for row in tokens)
    return np.fromiter(found, np.uint64, count=len(tokens))


def lowest_within(ids: RowIds, lengths: npt.NDArray[np.integer[Any]], max_tokens: int | None) -> npt.NDArray[np.intp]:
    """Indexes of the rows to keep, in ascending order of identity: as many as have at most `max_tokens` together, and
    at least one. Identities are digests, so that is a random choice, and the same one in both runs."""
    order = np.argsort(ids, kind="stable")
    if max_tokens is None:
        return order
    total = np.cumsum(np.asarray(lengths, np.int64)[order])
    return order[: max(1, int(np.searchsorted(total, max_tokens, side="right")))]


def _of_tokens(prompt: npt.NDArray[np.int32], response: npt.NDArray[np.int32]) -> int:
    state = xxhash.xxh3_64(len(prompt).to_bytes(8, "little"))
    state.update(np.ascontiguousarray(prompt, "<i4").tobytes())
    state.update(np.ascontiguousarray(response, "<i4").tobytes())
    return state.intdigest()
