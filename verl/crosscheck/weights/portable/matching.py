# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the tensors of a folder are those of this module: looked at before the first byte is loaded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from verl.crosscheck.errors import MismatchError
from verl.crosscheck.weights.portable.manifest import Entry, PortableManifest, dtype_name
from verl.crosscheck.weights.portable.naming import Kind


@dataclass(frozen=True)
class Known:
    """What a module says of one of its tensors."""

    name: str
    kind: Kind
    dtype: torch.dtype
    shape: tuple[int, ...]
    aliases: tuple[str, ...] = ()


def match(own: Sequence[Known], manifest: PortableManifest, path: Path) -> dict[str, Entry]:
    """The folder's tensor for each of the module's, by the module's name; frozen bases included.

    Raises:
        MismatchError: they are not the same tensors; names the first one of each kind of difference.
    """
    exchanged = [each for each in own if each.kind != "base"]
    found = {each.name: _entries_of(each, manifest) for each in exchanged}
    used = {entry.name for entries in found.values() for entry in entries}
    problems = [
        _list("the folder lacks {} of this run's tensors", [name for name, entries in found.items() if not entries]),
        _list("this run's actor lacks {} of the folder's tensors", [n for n in manifest.tensors if n not in used]),
        _differences(each for each in exchanged if found[each.name] and _differ(each, found[each.name])),
        *_base_problems(own, manifest.left_out),
    ]
    for each in exchanged:
        if not any(problems) and (problem := _wrong(each, found[each.name][0])):
            problems.append(problem)
    if any(problems):
        raise MismatchError(
            f"the weights in {path} are not those of this run's actor, and nothing of them was loaded: "
            + "; ".join(filter(None, problems))
            + _advice(exchanged, manifest)
        )
    bases = {each.name: manifest.left_out[each.name] for each in own if each.kind == "base"}
    return {name: entries[0] for name, entries in found.items()} | bases


def _entries_of(each: Known, manifest: PortableManifest) -> list[Entry]:
    """The folder's tensors under any of the names that one of the module's has."""
    names = dict.fromkeys(manifest.tied.get(name, name) for name in (each.name, *each.aliases))
    return [manifest.tensors[name] for name in names if name in manifest.tensors]


def _differ(each: Known, entries: Sequence[Entry]) -> bool:
    return len({(entry.dtype, entry.shape, entry.checksum) for entry in entries}) > 1


def _differences(several: Iterable[Known]) -> str:
    for each in several:
        return (
            f"{each.name} and {', '.join(each.aliases)} are one tensor in this run (tied) and have different values "
            "in the folder. Set tie_word_embeddings alike on both sides"
        )
    return ""


def _base_problems(own: Sequence[Known], left_out: Mapping[str, Entry]) -> list[str]:
    bases = {each.name: each for each in own if each.kind == "base"}
    text = "{} frozen tensors under adapters are only in "
    problems = [
        _list(text + "this run", [name for name in bases if name not in left_out]),
        _list(text + "the other run", [name for name in left_out if name not in bases]),
    ]
    if any(problems):
        return problems
    return [problem for name in bases if (problem := _wrong(bases[name], left_out[name]))][:1]


def _wrong(each: Known, entry: Entry) -> str:
    if each.shape != entry.shape:
        return f"{each.name} has shape {list(each.shape)} here, and {list(entry.shape)} in the folder"
    if each.dtype.is_floating_point != entry.torch_dtype.is_floating_point:
        return f"{each.name} is of type {dtype_name(each.dtype)} here, and {entry.dtype} in the folder"
    return ""


def _list(text: str, names: Sequence[str]) -> str:
    return f"{text.format(len(names))} (the first: {names[0]})" if names else ""


def _advice(own: Sequence[Known], manifest: PortableManifest) -> str:
    here = any(each.kind == "adapter" for each in own)
    there = any(entry.kind == "adapter" for entry in manifest.tensors.values())
    if here == there:
        return ". Both runs need the same model"
    one, other = ("This run trains", "the other does not") if here else ("The other run trains", "this one does not")
    return f". {one} LoRA adapters and {other}: set actor_rollout_ref.model.lora_rank alike on both sides"
