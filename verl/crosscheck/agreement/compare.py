# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Compares the resolved configurations and the facts of two runs: are they set up to compute the same thing?

A configuration is what `verl.crosscheck.redaction` left of it; facts are what `facts` found out. Both are plain JSON.
`table` lists the keys that may differ. What was not compared is reported, never taken for equal.
Called before the first exchange; knows nothing of files, Ray or Hydra.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from itertools import groupby
from typing import Any

from verl.crosscheck.agreement.table import Situation, allowing_rule, meaning_of_unset
from verl.crosscheck.errors import AgreementError
from verl.crosscheck.evidence.old_reasons import read_reason
from verl.crosscheck.overrides import assignment, removal
from verl.crosscheck.reasons import Reason, ReasonCode, because
from verl.crosscheck.redaction import is_left_out

NOT_KNOWN = "not_known"
"""The only key of a fact that could not be had; its value is the reason, see `not_known`."""

VALUE_CHARS = 48
"""Longest value in a report; of a longer one the part that differs is shown."""

FACT_SOURCES = {
    "model": "actor_rollout_ref.model.path and actor_rollout_ref.model.override_config",
    "tokenizer": "actor_rollout_ref.model.tokenizer_path and actor_rollout_ref.model.custom_chat_template",
    "data": "data.train_files and data.val_files",
    "sampling": "actor_rollout_ref.rollout",
    "optimiser": "actor_rollout_ref.actor.optim and critic.optim",
    "files": "the key that the fact is named after",
    "adapters": "actor_rollout_ref.model.lora_adapter_path, and from chance where it is null",
}
"""Where to look when a fact differs, by the first part of its name."""


class Unset(Enum):
    """The value of a key that a configuration does not have. Null is a value."""

    NOT_SET = "(not set)"


NOT_SET = Unset.NOT_SET


@dataclass(frozen=True)
class Difference:
    """A key, of a configuration or of facts, with both runs' values; `NOT_SET` where a run has none."""

    key: str
    own: Any
    other: Any


@dataclass(frozen=True)
class NotCompared:
    """A key that nothing is known about, and why."""

    key: str
    reason: Reason


@dataclass(frozen=True)
class Allowed:
    """A difference that the table allows, and why."""

    difference: Difference
    reason: Reason


def flatten(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested configuration's values by dotted key. Lists are values; an empty section holds no setting."""
    return dict(_leaves(config, ""))


def _leaves(section: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in section.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def setting_differences(
    own: Mapping[str, Any], other: Mapping[str, Any], *, resumed: bool = False
) -> tuple[list[Difference], list[NotCompared], list[Allowed]]:
    """Return the keys of two configurations that must agree and do not; those of which a value was left out because it
    could be a secret; and those that differ and may. All sorted.

    Args:
        resumed: whether one of the runs goes on from a checkpoint.
    """
    mine, theirs = flatten(own), flatten(other)
    situation = Situation.of(mine, theirs, resumed=resumed)
    wrong: list[Difference] = []
    hidden: list[NotCompared] = []
    allowed: list[Allowed] = []
    for key in sorted(mine.keys() | theirs.keys()):
        found = Difference(key, mine.get(key, NOT_SET), theirs.get(key, NOT_SET))
        one_sided = (found.own is NOT_SET or found.other is NOT_SET) and not meaning_of_unset(key)
        rule = allowing_rule(key, situation, one_sided=one_sided)
        if is_left_out(found.own) or is_left_out(found.other):
            if rule is None:
                hidden.append(NotCompared(key, because(ReasonCode.SECRET)))
        elif _same(_meant(key, found.own), _meant(key, found.other)):
            pass
        elif rule is None:
            wrong.append(found)
        else:
            allowed.append(Allowed(found, because(rule.reason)))
    return wrong, hidden, allowed


def _meant(key: str, value: Any) -> Any:
    if value is NOT_SET:
        return next(iter(meaning_of_unset(key)), NOT_SET)
    return value


def _same(one: Any, other: Any) -> bool:
    """Return whether two values are equal: 1 is 1.0, True is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return bool(one == other)


def fact_differences(own: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[list[Difference], list[NotCompared]]:
    """Return facts that differ, and facts that could not be compared since a run does not know them; both sorted."""
    wrong: list[Difference] = []
    unknown: list[NotCompared] = []
    for found in _facts(own, other, ""):
        if isinstance(found, NotCompared):
            unknown.append(found)
        else:
            wrong.append(found)
    return sorted(wrong, key=lambda each: each.key), sorted(unknown, key=lambda each: each.key)


def _facts(own: Mapping[str, Any], other: Mapping[str, Any], prefix: str) -> Iterator[Difference | NotCompared]:
    for name in own.keys() | other.keys():
        key = f"{prefix}{name}"
        mine, theirs = own.get(name, NOT_SET), other.get(name, NOT_SET)
        unknown = _why_unknown(key, mine, theirs)
        if unknown is not None:
            yield unknown
        elif isinstance(mine, Mapping) and isinstance(theirs, Mapping):
            yield from _facts(mine, theirs, f"{key}.")
        elif not _same(mine, theirs):
            yield Difference(key, mine, theirs)


def _why_unknown(key: str, mine: Any, theirs: Any) -> NotCompared | None:
    own = _gap(mine, ReasonCode.OWN_SILENT, ReasonCode.OWN_UNKNOWN, ReasonCode.OWN_SECRET)
    other = _gap(theirs, ReasonCode.OTHER_SILENT, ReasonCode.OTHER_UNKNOWN, ReasonCode.OTHER_SECRET)
    if own is not None and other is not None:
        return NotCompared(key, because(ReasonCode.BOTH, own=own, other=other))
    found = own or other
    return None if found is None else NotCompared(key, found)


def _gap(fact: Any, silent: ReasonCode, unknown: ReasonCode, secret: ReasonCode) -> Reason | None:
    if fact is NOT_SET:
        return because(silent)
    if isinstance(fact, Mapping) and NOT_KNOWN in fact:
        return because(unknown, why=read_reason(fact[NOT_KNOWN]))
    return because(secret) if is_left_out(fact) else None


def not_known(reason: Reason) -> dict[str, Any]:
    """Return a fact that could not be had, with the reason, as it stands among the facts of a run."""
    return {NOT_KNOWN: reason.to_json()}


@dataclass(frozen=True)
class Comparison:
    """How two runs compare.

    Args:
        differences: Settings that must agree and do not.
        fact_differences: Facts that must agree and do not.
        not_compared: What is not known to agree, settings and facts.
        allowed: Settings that differ and may.
    """

    differences: tuple[Difference, ...] = ()
    fact_differences: tuple[Difference, ...] = ()
    not_compared: tuple[NotCompared, ...] = ()
    allowed: tuple[Allowed, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing is known to differ that must not."""
        return not self.differences and not self.fact_differences

    def overrides(self) -> list[str]:
        """Return Hydra overrides that give this run the other run's settings; not quoted for a shell."""
        given = [each for each in self.differences if each.other is not NOT_SET]
        taken = [each.key for each in self.differences if each.other is NOT_SET]
        replaced = tuple(f"{each.key}." for each in given)
        # Removals come first: the other run may have a section where this one has a value.
        return [
            *(removal(key) for key in taken if not key.startswith(replaced)),
            *(assignment(each.key, each.other, known=each.own is not NOT_SET) for each in given),
        ]

    def report(self, own_name: str, other_name: str) -> str:
        """Return everything that differs as plain text: a table with the values of both runs, then what to type."""
        parts = [_table("setting", self.differences, own_name, other_name)]
        if self.differences:
            flags = " \\\n  ".join(map(shlex.quote, self.overrides()))
            parts.append(
                f"Give both runs the same values. To take those of {other_name}, add to the command of {own_name}:\n"
                f"  {flags}"
            )
        parts.append(_table("fact", self.fact_differences[:MOST_FACTS], own_name, other_name))
        if (more := len(self.fact_differences) - MOST_FACTS) > 0:
            parts.append(f"  and {more} facts more, up to {self.fact_differences[-1].key}")
        parts += [
            f"Facts of `{group}` come from {FACT_SOURCES.get(group, 'what the run loaded')}: name the same there."
            for group in dict.fromkeys(each.key.split(".")[0] for each in self.fact_differences)
        ]
        parts.append("\n".join(self.not_compared_lines()))
        return "\n\n".join(filter(None, parts))

    def not_compared_lines(self) -> list[str]:
        """Return what is not known to agree, with the reasons; empty if everything was compared."""
        by_reason = sorted(self.not_compared, key=lambda each: (str(each.reason), each.key))
        lines = [
            f"  {', '.join(each.key for each in group)}: {reason}"
            for reason, group in groupby(by_reason, key=lambda each: str(each.reason))
        ]
        return ["Not compared:", *lines] if lines else []


MOST_FACTS = 12
"""How many facts that differ are shown: of a model's tensors there may be thousands."""

LENGTH_OF_THE_RUN = frozenset({"trainer.total_training_steps", "trainer.total_epochs"})
"""How long a run is to last. A step depends on it only if a schedule does."""


def without_length(comparison: Comparison, config: Mapping[str, Any]) -> Comparison:
    """Return a comparison with a run that has ended, without the length of the run, unless a schedule depends on it.

    Args:
        config: of the run that goes on.
    """
    if _depends_on_length(flatten(config)):
        return comparison
    kept = tuple(each for each in comparison.differences if each.key not in LENGTH_OF_THE_RUN)
    return replace(comparison, differences=kept)


def _depends_on_length(flat: Mapping[str, Any]) -> bool:
    """Return whether a learning rate depends on the length of the run: by a schedule, or by the share that warms up."""
    for key, value in flat.items():
        if key.endswith(("lr_scheduler_type", "lr_decay_style", "warmup_style")) and value not in ("constant", None):
            return True
        if key.endswith("lr_warmup_steps_ratio") and value:
            steps = flat.get(key.removesuffix("_ratio"))
            if not isinstance(steps, int) or steps <= 0:
                return True
    return False


def compare(
    own_config: Mapping[str, Any],
    other_config: Mapping[str, Any],
    own_facts: Mapping[str, Any],
    other_facts: Mapping[str, Any],
    *,
    resumed: bool = False,
) -> Comparison:
    """Compare two runs.

    Args:
        resumed: whether one of the runs goes on from a checkpoint.
    """
    settings, hidden, allowed = setting_differences(own_config, other_config, resumed=resumed)
    facts, unknown = fact_differences(own_facts, other_facts)
    return Comparison(tuple(settings), tuple(facts), (*hidden, *unknown), tuple(allowed))


def require_agreement(comparison: Comparison, own_name: str, other_name: str, *, strict: bool) -> str:
    """Return what to warn of, "" if nothing: differences if not `strict`, and what was not compared.

    Raises:
        AgreementError: `strict`, and something differs that must not; shows all of it, and what to type.
    """
    report = comparison.report(own_name, other_name)
    if comparison.agrees:
        return report
    text = (
        f"{own_name} and {other_name} are set up to compute different things, so that a difference between their "
        f"curves would say nothing about rollout or training.\n\n{report}"
    )
    if strict:
        raise AgreementError(
            f"{text}\n\nNothing was exchanged. To go on in spite of it, type trainer.share_data_strict=False on both "
            "sides."
        )
    return text


def _table(title: str, rows: Iterable[Difference], own_name: str, other_name: str) -> str:
    """Return rows with aligned columns, "" if there are none."""
    cells = [(each.key, *_shown(each.own, each.other)) for each in rows]
    if not cells:
        return ""
    cells = [(title, own_name, other_name), *cells]
    widths = [max(len(row[column]) for row in cells) for column in range(2)]
    return "\n".join(f"  {key:{widths[0]}}  {own:{widths[1]}}  {other}".rstrip() for key, own, other in cells)


def _shown(own: Any, other: Any) -> tuple[str, str]:
    """Return both values as text of at most `VALUE_CHARS`; of long ones the part where they begin to differ."""
    texts = _as_text(own), _as_text(other)
    if max(map(len, texts)) <= VALUE_CHARS:
        return texts
    pairs = enumerate(zip(*texts, strict=False))
    differs_at = next((at for at, (one, other) in pairs if one != other), min(map(len, texts)))
    start = max(0, min(differs_at - VALUE_CHARS // 4, max(map(len, texts)) - VALUE_CHARS))
    return _cut(texts[0], start), _cut(texts[1], start)


def _cut(text: str, start: int) -> str:
    """Return `VALUE_CHARS` of `text` from `start`, with dots where something is missing."""
    shown = text[start : start + VALUE_CHARS]
    if start:
        shown = f"...{shown[3:]}"
    return f"{shown[:-3]}..." if len(text) > start + VALUE_CHARS else shown


def _as_text(value: Any) -> str:
    return NOT_SET.value if value is NOT_SET else json.dumps(value, ensure_ascii=False, sort_keys=True)
