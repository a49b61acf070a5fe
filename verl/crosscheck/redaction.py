# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A run's configuration without what could be a secret, as plain JSON. Called before a configuration is shown or leaves
its process.

In doubt something is left out: the price is that a comparison of two runs says that it did not look at that value.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Mapping
from enum import Enum
from itertools import pairwise
from typing import Any

LEFT_OUT = "<left out>"
"""Stands where something was left out: for a whole value, or for a part of a text."""

MIN_SECRET_CHARS = 8
"""Shorter values of environment variables are not looked for: they are found in many a harmless text."""

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_SECRET_WORD = re.compile(
    r"secrets?|passwords?|passwd|passphrase|pwd|credentials?|creds?|o?auth|authorization|bearer|cookies?|netrc|"
    r"(?:api|access|secret|private|auth|hf)(?:keys?|tokens?)"
)
_OWNER_OF_A_KEY = re.compile("api|access|private|secret|signing|encryption|ssh|account|service|license|client")
_OWNER_OF_TOKENS = re.compile("api|access|auth|hf|refresh|bot|user")
_PIECE_OF_TEXT = re.compile(
    "bos|eos|pad|unk|sep|cls|mask|start|end|stop|special|added|extra|image|im|video|audio|vision|think|tool|newline|"
    "boundary|per|every|max|min|num|new|total"
)
"""What stands in front of `token` where that is a piece of text or a count, and no key to a door."""

_VARIABLES = frozenset({"env_vars", "env_variables", "environment_variables", "extra_env", "envvars"})
_MAYBE_VARIABLES = frozenset({"env", "envs", "environ", "environment"})
_VARIABLE_NAME = re.compile(r"[A-Z_][A-Z0-9_]*")
_ASSIGNED_VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*=.*", re.DOTALL)

_SECRETS_IN_TEXT = tuple(
    re.compile(pattern)
    for pattern in (
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
        r"(?<=://)[^\s/]*(?=@)",  # user and password of a URL
        r"(?<=://)[^\s/:@]+:(?!\d+/)[^\s@]*(?=@)",  # a password with a slash in it
        r"(?i)(?<=bearer )\s*[^\s\"',;]+",
        r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{16,}",
        r"(?<![A-Za-z0-9])sk-[A-Za-z0-9_-]{16,}",
        r"(?<![A-Za-z0-9])gh[a-z]_[A-Za-z0-9]{16,}",
        r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{16,}",
        r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{16,}",
        r"(?<![A-Za-z0-9])(?:AKIA|ASIA)[0-9A-Z]{16}(?![0-9A-Za-z])",
        r"(?<![A-Za-z0-9])xox[a-z]-[A-Za-z0-9-]{10,}",
        r"(?<=hooks\.slack\.com/services/)[^\s\"',;]+",
        r"(?i)(?<=[?&]sig=)[^&\s\"',;]+",
        r"(?i)(?<=signature=)[^&\s\"',;]+",
        r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}",
        r"(?<![A-Za-z0-9])eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",  # JSON web token
    )
)
_ASSIGNMENT = re.compile(r"""([A-Za-z][\w-]*)(?=(["']?\s*[=:]\s*["']?|\s+)([^\s&"',;]+))""")
"""Looks ahead at the value, which may be an assignment itself."""
_WANDB_KEY = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{40}(?![0-9A-Za-z])")


def without_secrets(config: Mapping[Any, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """A deep copy of a resolved configuration as plain JSON, with `LEFT_OUT` in place of what could be a secret.

    Left out are sections of environment variables, values whose name says secret, what has the shape of a known kind
    of token, user and password of URLs, and, wherever it stands, the content of environment variables whose name says
    secret. Values that JSON does not have become text: NaN and the infinities too.

    Args:
        environ: The process's environment; its values are looked for and never returned.
    """
    return _Redaction(_known_secrets(environ)).of_mapping(config, under_secret=False)


def text_without_secrets(text: str, environ: Mapping[str, str]) -> str:
    """A text, such as an error's message, with `LEFT_OUT` in place of what could be a secret; see `without_secrets`."""
    return _Redaction(_known_secrets(environ)).of_text(text)


def _known_secrets(environ: Mapping[str, str]) -> list[str]:
    return [
        value
        for name, value in environ.items()
        if len(value) >= MIN_SECRET_CHARS and _says_secret(name) and not _is_path_here(value)
    ]


def _is_path_here(value: str) -> bool:
    """A name can say secret and mean a place: PWD, a file with a key in it. Places are no secrets."""
    return value.startswith("/") and os.path.exists(value)  # noqa: PTH110  no other call takes any text for a path


def is_left_out(value: Any) -> bool:
    """Whether `value`, of a configuration that `without_secrets` gave, lacks something."""
    if isinstance(value, Mapping):
        return any(is_left_out(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple):
        return any(map(is_left_out, value))
    return isinstance(value, str) and LEFT_OUT in value


class _Redaction:
    """One walk over a configuration, with the `known` secrets to look for."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = tuple(known)

    def of_mapping(self, mapping: Mapping[Any, Any], *, under_secret: bool) -> dict[str, Any]:
        pair = {str(key).lower() for key in mapping} >= {"name", "value"}
        named_secret = pair and _says_secret(str(next(v for k, v in mapping.items() if str(k).lower() == "name")))
        return {
            self.of_text(str(key)): self._of_entry(
                str(key), value, under_secret or (named_secret and str(key).lower() == "value")
            )
            for key, value in mapping.items()
        }

    def _of_entry(self, name: str, value: Any, under_secret: bool) -> Any:
        if _holds_variables(name, value):
            return LEFT_OUT
        if under_secret or _says_secret(name):
            return self.of_value(value, under_secret=True)
        if isinstance(value, str) and _says_key(name):
            return self.of_text(_WANDB_KEY.sub(LEFT_OUT, value))
        return self.of_value(value, under_secret=False)

    def of_value(self, value: Any, *, under_secret: bool) -> Any:
        if isinstance(value, Enum):
            value = value.value
        if isinstance(value, Mapping):
            return self.of_mapping(value, under_secret=under_secret)
        if isinstance(value, list | tuple):
            return [self.of_value(each, under_secret=under_secret) for each in value]
        if isinstance(value, set | frozenset):
            return sorted((self.of_value(each, under_secret=under_secret) for each in value), key=str)
        if value is None or isinstance(value, bool):
            return value
        return LEFT_OUT if under_secret else self._of_leaf(value)

    def _of_leaf(self, value: Any) -> Any:
        if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
            plain = int(value) if isinstance(value, int) else float(value)
            return LEFT_OUT if any(secret in repr(plain) for secret in self._known) else plain
        return self.of_text(str(value))

    def of_text(self, text: str) -> str:
        """`text` with `LEFT_OUT` in place of each secret that is found in it."""
        spans = [span for secret in self._known for span in _occurrences(secret, text)]
        spans += [found.span() for pattern in _SECRETS_IN_TEXT for found in pattern.finditer(text)]
        spans += [found.span(3) for found in _ASSIGNMENT.finditer(text) if _is_secret_assignment(found)]
        for start, end in _merged_from_the_end(spans):
            text = f"{text[:start]}{LEFT_OUT}{text[end:]}"
        return text


def _says_secret(name: str) -> bool:
    """Whether a name, of a key or of an environment variable, says that its value is a secret."""
    words = [word.lower() for word in _WORD.findall(name)]
    if words[-1:] == ["pass"] or any(map(_SECRET_WORD.fullmatch, words)):
        return True
    if any(word in ("key", "keys") and _OWNER_OF_A_KEY.fullmatch(before) for before, word in pairwise(words)):
        return True
    return words[-1:] in (["token"], ["tokens"]) and _open_a_door(words)


def _open_a_door(words: list[str]) -> bool:
    """`token` alone, or of somebody; `tokens` are counted more often than kept, so these need an owner."""
    if any(map(_PIECE_OF_TEXT.fullmatch, words)):
        return False
    return words[-1] == "token" or any(map(_OWNER_OF_TOKENS.fullmatch, words))


def _says_key(name: str) -> bool:
    return not {"key", "keys", "wandb"}.isdisjoint(word.lower() for word in _WORD.findall(name))


def _holds_variables(name: str, value: Any) -> bool:
    """Whether an entry is a section of environment variables; an `env` may also be what an agent acts in."""
    lowered = name.lower()
    if lowered in _VARIABLES or lowered.endswith(("_env_vars", "_environ")):
        return value is not None
    if lowered not in _MAYBE_VARIABLES and not lowered.endswith("_env"):
        return False
    if isinstance(value, Mapping):
        return bool(value) and all(_VARIABLE_NAME.fullmatch(str(each)) for each in value)
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(each, str) and _ASSIGNED_VARIABLE.fullmatch(each) for each in value)
    return isinstance(value, str) and _ASSIGNED_VARIABLE.fullmatch(value) is not None


def _is_secret_assignment(found: re.Match[str]) -> bool:
    """`name=value`, `name: value` in a text; `--name value`, but not words of a sentence."""
    name, between, _ = found.groups()
    option = found.string[: found.start()].endswith("--")
    return _says_secret(name) and (option or not between.isspace())


def _occurrences(secret: str, text: str) -> Iterable[tuple[int, int]]:
    start = text.find(secret)
    while start >= 0:
        yield start, start + len(secret)
        start = text.find(secret, start + 1)


def _merged_from_the_end(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans of a text without overlaps, the last first."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged[::-1]
