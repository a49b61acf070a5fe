# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What was asked: the identity of prompts, and of one call of `generate_sequences`.

Responses joined to other prompts than they answer train a model on nonsense without an error. So each rollout carries
the identity of its call, and a reader compares it with its own before it uses a number of it.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from verl.crosscheck.errors import EncodingError, MismatchError

if TYPE_CHECKING:
    import torch

PROMPT_KEYS = ("raw_prompt", "raw_prompt_ids", "full_prompts", "multi_modal_data", "input_ids", "prompts")
"""Fields of a batch that say what is asked of the model, in 0.7.1 and in recipes on top of it. Others, such as image
paths in `extra_info`, may differ between two hosts that ask the same."""

PREVIEW_CHARS = 160


class CallKind(str, Enum):
    """What a call of `generate_sequences` is for."""

    TRAINING = "training"
    """Samples to train on."""
    BASELINE = "baseline"
    """Greedy samples that ReMax subtracts."""
    VALIDATION = "validation"
    """Samples that only metrics are computed from."""

    @classmethod
    def of(cls, meta_info: Mapping[str, Any]) -> CallKind:
        """The kind, from the `meta_info` that the trainer sends along."""
        if meta_info.get("validate", False):
            return cls.VALIDATION
        return cls.TRAINING if meta_info.get("do_sample", True) else cls.BASELINE


@dataclass(frozen=True)
class Prompts:
    """The prompts of a batch of B rows, in order.

    Args:
        digests: B hexadecimal digests, one a row.
        previews: for each distinct digest, the start of its prompt as text, for messages.
    """

    digests: tuple[str, ...]
    previews: Mapping[str, str]

    @classmethod
    def of(cls, fields: Mapping[str, Any], rows: int) -> Prompts:
        """Identify the B `rows` of a batch from its fields: `PROMPT_KEYS` if any is there, else all but `uid`.

        Raises:
            EncodingError: a prompt holds something whose content is not known.
        """
        keys = [key for key in PROMPT_KEYS if key in fields] or sorted(fields.keys() - {"uid"})
        asked = list(zip(*(fields[key] for key in keys), strict=True)) if keys else [()] * rows
        try:
            digests = tuple(digest(row) for row in asked)
        except EncodingError as e:
            raise EncodingError(
                f"the prompts of a batch (columns {', '.join(keys)}) cannot be identified: {e}"
            ) from None
        previews: dict[str, str] = {}
        for row, row_digest in zip(asked, digests, strict=True):
            if row_digest not in previews:
                previews[row_digest] = _preview(row[0] if row else "")
        return cls(digests, previews)

    def preview(self, row: int) -> str:
        return self.previews.get(self.digests[row], self.digests[row])


@dataclass(frozen=True)
class Call:
    """One call of `generate_sequences`.

    Args:
        index: how many calls came before it.
        global_step: the trainer's step; None if the caller did not say.
    """

    index: int
    kind: CallKind
    global_step: int | None
    prompts: Prompts

    def to_json(self) -> dict[str, Any]:
        return {
            "index": self.index,
            "kind": self.kind.value,
            "global_step": self.global_step,
            "prompt_digests": list(self.prompts.digests),
            "prompt_previews": dict(self.prompts.previews),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Call:
        """Inverse of `to_json`.

        Raises:
            KeyError, TypeError, ValueError: `data` is not what `to_json` gives.
        """
        prompts = Prompts(tuple(map(str, data["prompt_digests"])), dict(data["prompt_previews"]))
        step = data["global_step"]
        return cls(int(data["index"]), CallKind(data["kind"]), None if step is None else int(step), prompts)


def require_same_call(
    own: Call, recorded: Call, source: str, advice: str, consequence: str = "Nothing of it was used."
) -> None:
    """Return if `recorded`, the call that a rollout answers, is the one that this run makes.

    Args:
        source: where the rollout lies.
        advice: what to do about a difference.
        consequence: what a difference leads to.

    Raises:
        MismatchError: it is not; shows the call, the step and the first difference with both values.
    """
    difference = _first_difference(own, recorded)
    if difference:
        raise MismatchError(
            f"{source} answers another call than this run's call {own.index} ({own.kind.value}, global step "
            f"{own.global_step}): {difference}. {consequence} {advice}"
        )


def _first_difference(own: Call, recorded: Call) -> str | None:
    for name in ("index", "kind", "global_step"):
        mine, theirs = getattr(own, name), getattr(recorded, name)
        if mine != theirs:
            mine, theirs = (v.value if isinstance(v, Enum) else v for v in (mine, theirs))
            return f"its {name.replace('_', ' ')} is {theirs}, expected {mine}"
    ours, other = own.prompts, recorded.prompts
    if len(ours.digests) != len(other.digests):
        return f"its batch has {len(other.digests)} rows, expected {len(ours.digests)}"
    rows = [row for row, pair in enumerate(zip(ours.digests, other.digests, strict=True)) if pair[0] != pair[1]]
    if not rows:
        return None
    order = " (the same prompts in another order)" if sorted(ours.digests) == sorted(other.digests) else ""
    asked, expected = other.preview(rows[0]), ours.preview(rows[0])
    beyond = ", which differ outside the part shown" if asked == expected else ""
    return (
        f"{len(rows)} of {len(ours.digests)} prompts differ{order}, first in row {rows[0]}: it asks {asked!r}, "
        f"expected {expected!r}{beyond}"
    )


def digest(value: Any, *, exact: bool = False) -> str:
    """Hexadecimal digest of a value by content: equal for equal prompts on any host, whatever object holds them.

    Numpy scalars count as Python's, tuples as lists, and a dict's keys as text without order; with `exact` they do not.

    Raises:
        EncodingError: the value is, or holds, something whose content is not known here.
    """
    state = hashlib.blake2b(digest_size=16)
    for chunk in _chunks(value, exact):
        state.update(len(chunk).to_bytes(8, "little"))
        state.update(chunk)
    return state.hexdigest()


def _chunks(value: Any, exact: bool) -> Iterable[bytes]:
    """Bytes that stand for `value`."""
    if isinstance(value, np.generic):
        if exact:
            yield str(value.dtype).encode()
        value = value.item()
    if isinstance(value, Mapping):
        yield f"map {len(value)}".encode()
        for key in value if exact else sorted(value, key=str):
            yield from _chunks(key if exact else str(key), exact)
            yield from _chunks(value[key], exact)
    elif isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.dtype == object):
        yield f"{type(value).__name__ if exact else 'list'} {len(value)}".encode()
        for item in value:
            yield from _chunks(item, exact)
    else:
        yield from _leaf(value)


def _is_tensor(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether a value is a torch tensor, without importing torch: while nobody has, none is."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _leaf(value: Any) -> tuple[bytes, bytes]:
    """Kind and content of a value without parts."""
    if _is_tensor(value):
        flat = value.detach().cpu().contiguous().view(-1)
        content = flat.view(sys.modules["torch"].uint8).numpy().tobytes() if flat.numel() else b""
        return f"tensor {value.dtype} {tuple(value.shape)}".encode(), content
    if isinstance(value, np.ndarray):
        return f"array {value.dtype} {value.shape}".encode(), value.tobytes()
    if isinstance(value, bytes):
        return b"bytes", value
    if value is None or isinstance(value, str | bool | int | float):
        return type(value).__name__.encode(), str(value).encode("utf-8", "surrogatepass")
    if hasattr(value, "tobytes") and hasattr(value, "mode") and hasattr(value, "size"):  # a PIL image
        return f"image {value.mode} {value.size}".encode(), value.tobytes()
    raise EncodingError(
        f"a value of type {type(value).__name__} has no identity: what cannot be compared between two runs cannot be "
        "checked. Give it as text, number, bytes, list, dict, array, tensor or image"
    )


def _preview(value: Any) -> str:
    """The start of a prompt as a person would recognise it: the last message of a chat, or the value's text."""
    if isinstance(value, list | tuple | np.ndarray) and len(value) and isinstance(value[-1], Mapping):
        value = value[-1].get("content", value[-1])
    text = str(value.tolist() if isinstance(value, np.ndarray) or _is_tensor(value) else value)
    return text if len(text) <= PREVIEW_CHARS else text[:PREVIEW_CHARS] + "..."
