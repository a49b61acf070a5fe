# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Every error of the cross-check.

    CrossCheckError
    ├── SettingsError       a value of the configuration, also a ValueError
    ├── DirectoryError      the exchange directory cannot be used
    ├── PublishError        an artefact could not be saved
    ├── DamagedError        an artefact is there and is not what was written
    ├── EncodingError       a value that an artefact cannot represent
    ├── MismatchError       an artefact answers another question than the one asked
    └── WaitTimeoutError    the other run made no progress in time, also a TimeoutError

Each takes one message, so that it survives pickling and crosses Ray. A message says what failed, where, what was
expected and found, and what to type next.
"""


class CrossCheckError(Exception):
    """Root of the tree."""


class SettingsError(CrossCheckError, ValueError):
    """A configuration value is not allowed, or two of them exclude each other."""


class DirectoryError(CrossCheckError):
    """A directory for artefacts cannot be created, written or trusted."""


class PublishError(CrossCheckError):
    """An artefact could not be saved; nothing of it is visible to the other run."""


class DamagedError(CrossCheckError):
    """An artefact is complete by name but truncated, altered, or not of this format."""


class EncodingError(CrossCheckError):
    """A value has no representation in the format; the message names its key."""


class MismatchError(CrossCheckError):
    """An artefact was made for other prompts, another kind of call or another step than the reader's own."""


class WaitTimeoutError(CrossCheckError, TimeoutError):
    """What was waited for did not arrive in time."""
