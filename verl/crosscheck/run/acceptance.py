# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Loads what another run made, if it fits what this run asked for: differences are raised, or warned of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from verl.crosscheck.console import MARK, say
from verl.crosscheck.errors import DamagedError, MismatchError
from verl.crosscheck.exchange.artefacts import read_artefact_about
from verl.crosscheck.exchange.directory import require_own_file
from verl.crosscheck.exchange.manifest import read_checked
from verl.crosscheck.identity import Call, CallKind, require_same_call
from verl.crosscheck.run.checkpoints import LAYOUT, require_device
from verl.crosscheck.run.hooks import ActorFiles
from verl.crosscheck.run.indexing import CallKey
from verl.crosscheck.run.rollouts import load_rollout
from verl.crosscheck.settings import CkptFormat
from verl.protocol import DataProto

SAME_QUESTION = (
    "Start both runs with the same data files, data.seed, data.shuffle, batch sizes, rollout.n, test_freq and "
    "val_before_train, at the same time, in a directory of their own."
)
SAME_LAYOUT = (
    "Upstream's checkpoints load only on the same kind of device with the same number of ranks and the same sharding; "
    "those of any other layout are exchanged with trainer.share_data_ckpt_format=auto on both runs."
)
VALIDATE_AFTER_RESUME = (
    "The other run seems to have been resumed without the validation that ends the step: resume it with "
    "trainer.val_before_train=True."
)
USED_ALL_THE_SAME = "It is used all the same, since trainer.share_data_strict=False."


def load_answer(path: Path, call: Call, prompts: DataProto, *, strict: bool) -> DataProto:
    """Return the rollout in `path` as the answer to `call`, as if it had just been generated.

    Raises:
        DamagedError: the file is another user's, or not as it was written.
        MismatchError: see `require_answer`.
    """
    require_own_file(path)
    output = load_rollout(
        path,
        prompts,
        "Is it still there, and readable?",
        lambda recorded: require_answer(call, recorded, path, strict=strict),
    )
    output.meta_info["timing"] = {}  # the recorded one is of the run, or the time, that made it
    return output


def recorded_key(path: Path) -> CallKey:
    """Return what a rollout says that it answers. Its body is not read.

    Raises:
        FileNotFoundError: there is none.
        DamagedError: it says nothing that could be a call.
    """
    about = read_artefact_about(path)
    try:
        return CallKey(CallKind(about["call"]), about["global_step"])
    except (KeyError, ValueError) as e:
        raise DamagedError(f"{path} does not say what it answers ({e!r}). Nothing of it was used") from None


def require_answer(own: Call, recorded: Call, path: Path, *, strict: bool) -> None:
    """Return if the rollout in `path` answers this run's call.

    Raises:
        MismatchError: it answers another one, and `strict`; else that is warned of. Another number of rows is an error
            in any case: no batch could be made of it.
    """
    skipped = own.kind is CallKind.VALIDATION and recorded.kind is not CallKind.VALIDATION
    advice = VALIDATE_AFTER_RESUME if skipped else SAME_QUESTION
    if strict or len(own.prompts.digests) != len(recorded.prompts.digests):
        require_same_call(own, recorded, str(path), advice)
        return
    with _warned():
        require_same_call(own, recorded, str(path), advice, USED_ALL_THE_SAME)


def load_checked(path: Path, actor: ActorFiles, about: dict[str, Any], *, strict: bool) -> None:
    """Load the checkpoint in `path` into the actor, if it is of the update that `about` says.

    Raises:
        DamagedError, MismatchError: see `manifest.read_checked`, `require_same_update` and
            `checkpoints.require_device`; nothing was loaded.
        SettingsError: it is portable, and the trainer cannot load such a one.
    """
    found = read_checked(path).about
    require_same_update(path, about, found, strict=strict)
    form = format_of(found)
    if form is CkptFormat.NATIVE and "device" in about:
        require_device(path, about["device"])
    actor.load_as(form)(str(path))


def require_same_update(path: Path, own: dict[str, Any], found: dict[str, Any], *, strict: bool) -> None:
    """Return if the checkpoint in `path` is of the update that this run has just made.

    Args:
        own, found: what each says of its update, see `checkpoints.actor_about`.

    Raises:
        MismatchError: it is of another one, and `strict`; else that is warned of. A native checkpoint of another layout
            is an error in any case: upstream could not load it.
    """
    native = format_of(found) is CkptFormat.NATIVE
    for key, value in own.items():
        if found.get(key) == value or (key in LAYOUT and not native):
            continue
        if key in LAYOUT or strict:
            raise _not_same_update(path, own, found, key, "It was not loaded.")
        with _warned():
            raise _not_same_update(path, own, found, key, USED_ALL_THE_SAME)


def format_of(about: Mapping[str, Any]) -> CkptFormat:
    """Return the form of a checkpoint by what it says of itself; native if it says nothing, as old ones do.

    Raises:
        DamagedError: the form is not one that is known.
    """
    value = about.get("format", CkptFormat.NATIVE.value)
    for each in (CkptFormat.NATIVE, CkptFormat.PORTABLE):
        if value == each.value:
            return each
    raise DamagedError(f"the checkpoint's format is {value!r:.40}, which is none. It was not loaded")


def _not_same_update(
    path: Path, own: dict[str, Any], found: dict[str, Any], key: str, consequence: str
) -> MismatchError:
    layout = key in LAYOUT
    made = "by another kind of run than this" if layout else "after another update than this run's"
    return MismatchError(
        f"{path} was saved {made} (update {own['index']}): its {key.replace('_', ' ')} is {found.get(key)!r}, "
        f"expected {own[key]!r}. {consequence} {SAME_LAYOUT if layout else SAME_QUESTION}"
    )


@contextmanager
def _warned() -> Iterator[None]:
    try:
        yield
    except MismatchError as e:
        say(MARK, f"Warning: {e}", "yellow")
